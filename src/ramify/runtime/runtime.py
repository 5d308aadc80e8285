"""Run functions: the one object that a program makes, and may use from any thread."""

import asyncio
import itertools
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from contextvars import Token
from types import TracebackType
from typing import Any, ClassVar, Self

from ramify.core.errors import ClosedError, DuplicateNameError, UsageError
from ramify.core.function import Function, Node, RunContext, checked_function
from ramify.core.views import NodeView
from ramify.runtime.context import Context
from ramify.runtime.forest import Forest
from ramify.runtime.home import BackgroundHome, Home
from ramify.runtime.node import CodeNode
from ramify.runtime.request import Request
from ramify.runtime.tree import Tree
from ramify.runtime.walk import subtree
from ramify.runtime.watch import Watch


class Runtime:
    """Runs functions as trees of nodes, and keeps the trees until they are deleted.

    With ``async with`` it lives in the caller's loop, and turns run inside the block are its nodes
    too; otherwise it has a loop of its own in a background thread. Leaving a ``with`` block waits
    for the calls that still run, or cancels them if an exception leaves it. Everything may be used
    from any thread.

    Example:
        >>> from ramify import CodeFunction, Runtime
        >>> def add(ctx, a: int, b: int) -> int:
        ...     return a + b
        >>> with Runtime([CodeFunction(callable=add)]) as runtime:
        ...     runtime.invoke(runtime.invocable_functions["add"], {"a": 1, "b": 2}).result()
        3
    """

    keeps_finished_trees: ClassVar[bool] = True
    patience: ClassVar[float] = 10.0  # seconds until a call that was cancelled is cancelled again

    def __init__(self, specs: Iterable[Function] = ()) -> None:
        self.invocable_functions: Mapping[str, Function] = _discover(specs)
        self._forest = Forest(keeps_finished=self.keeps_finished_trees)
        self._context = Context(self, None)
        self._home: Home | None = None
        self._lock = threading.Lock()  # for changing from no home to one, from open to closed
        self._closed = False
        self._ids = itertools.count(1)
        self._numbers = itertools.count(1)
        self._token: Token[RunContext] | None = None

    # Calls

    def get_ctx(self) -> Context:
        """Return a context outside any call: what it invokes is a top-level call."""
        return self._context

    def invoke(
        self,
        function: Function,
        args: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> Node:
        """Start a top-level call of *function* and return its node at once."""
        return self._context.invoke(function, args, timeout=timeout)

    def start(self, request: Request, parent: CodeNode | None) -> CodeNode:
        """Start the call that *request* asks for; its task has the context variables of here."""
        home = self._open_home()
        if parent is not None:  # it is the loop's, and not to be touched from elsewhere
            return home.call(self._start_child, home, request, parent)
        tree = Tree(next(self._numbers), kept=self.keeps_finished_trees)
        node = CodeNode(next(self._ids), request, parent=None, tree=tree, home=home)
        self._forest.add(node)
        home.tell(node.start, Context(self, node))
        return node

    def _start_child(self, home: Home, request: Request, parent: CodeNode) -> CodeNode:
        node = CodeNode(next(self._ids), request, parent=parent, tree=parent.tree, home=home)
        self._forest.add(node)
        node.start(Context(self, node))
        return node

    # What runs and what ran

    def list_toplevel(self) -> list[Node]:
        """Return the top-level calls, oldest first."""
        return list[Node](self._forest.roots)

    def get_subtree(self, id: int) -> list[Node]:
        """Return the node with this id and all below it, each before those that it called."""
        return list[Node](subtree(self._forest.find(id)))

    def get_view(self, id: int) -> NodeView:
        """Return the node with this id, and all below it, as they stand."""
        return self._forest.find(id).tree.view(id)

    def watch(self, node: Node | int, as_of_seq: int = 0, timeout: float | None = None) -> Watch:
        """Wait for a view of *node* newer than the one numbered *as_of_seq*.

        ``await`` the watch, call its ``result()`` from another thread, or iterate over it either
        way; a TimeoutError says that nothing happened for *timeout* seconds.
        """
        found = self._forest.find(node)
        return Watch(found.home, found.tree, found.id, as_of_seq=as_of_seq, timeout=timeout)

    def cancel(self, id: int, reason: str = "cancelled") -> None:
        """Stop the node with this id and every call it made."""
        self._forest.find(id).cancel(reason)

    def delete(self, id: int) -> None:
        """Forget a finished tree and close what its session bags hold.

        Raises:
            UsageError: *id* is not a top-level call, or it still runs.
        """
        root = self._forest.find(id)
        try:
            root.home.call(self._forest.delete, root)
        except ClosedError:  # and all bags with it
            self._forest.forget(root)

    # Beginning and end

    def lives_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether it runs calls on *loop*."""
        return self._home is not None and self._home.loop is loop and not self._closed

    def close(self) -> None:
        """Cancel what still runs, close what the session bags hold, and end the background loop."""
        self._close(cancel=True)

    def _close(self, *, cancel: bool) -> None:
        if self._home is not None and not self._closed:
            self._home.forbid_waiting("closing the runtime", "leave the 'async with' block instead")
        with self._lock:
            home, was_closed = self._home, self._closed
            self._closed = was_closed or cancel or home is None
        if was_closed or home is None:
            return
        try:
            self._end_forest(home, cancel=cancel)
        except BaseException:  # Ctrl-C, say: then it is not waited for any longer
            self._end_forest(home, cancel=True)
            raise
        finally:
            self._closed = True
            if isinstance(home, BackgroundHome):
                home.stop()

    def _end_forest(self, home: Home, *, cancel: bool) -> None:
        if not home.loop.is_closed():
            ending = self._forest.end(cancel=cancel, patience=self.patience)
            asyncio.run_coroutine_threadsafe(ending, home.loop).result()

    def __enter__(self) -> Self:
        self._open_home()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close(cancel=kind is not None)

    async def __aenter__(self) -> Self:
        if self._home is not None or self._closed:
            raise UsageError("this runtime has been used already; make a new one for this block")
        self._home = Home(asyncio.get_running_loop(), self.patience)
        self._token = RunContext.active.set(self._context)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._token is not None:
            with suppress(ValueError):  # left in another context than it was entered in
                RunContext.active.reset(self._token)
        self._closed = kind is not None
        try:
            await self._forest.end(cancel=self._closed, patience=self.patience)
        finally:
            self._closed = True

    def _open_home(self) -> Home:
        """Return where it lives; that is a loop of its own if it has none yet."""
        if self._closed or (self._home is not None and self._home.loop.is_closed()):
            raise ClosedError("this runtime has been closed; make a new one to run more calls")
        if self._home is not None:
            return self._home
        with self._lock:
            if self._closed:
                raise ClosedError("this runtime has been closed; make a new one to run more calls")
            if self._home is None:
                self._home = BackgroundHome(self.patience)
            return self._home


def _discover(specs: Iterable[Function]) -> dict[str, Function]:
    """Return *specs* and all that they use, by name."""
    found: dict[str, Function] = {}
    queue = deque(specs)
    while queue:
        function = checked_function(queue.popleft(), "a Runtime")
        if found.setdefault(function.name, function) is not function:
            raise DuplicateNameError(
                f"two functions are called {function.name!r}: rename one of {function!r} and"
                f" {found[function.name]!r}"
            )
        queue.extend(used for used in function.uses if found.get(used.name) is not used)
    return found
