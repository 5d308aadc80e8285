"""Look on, answer and stop, from beside whoever drives a journal.

Reads what is written, and leaves messages; never runs a call, and writes nothing else.
"""

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Self

from treefold.core.call_keys import name_in
from treefold.core.errors import InvalidValueError, StoreError, UnknownQuestionError, UsageError
from treefold.core.forking import Edit, fitting_place
from treefold.core.frames import Frame
from treefold.core.question import Question, QuestionKind
from treefold.core.states import NodeState
from treefold.core.store import Store, TreeRow
from treefold.core.views import NodeView
from treefold.runtime.commands import edit_as_data, read_command, refusals_in, write_command
from treefold.runtime.observed_tree import ObservedTree, unknown_node
from treefold.runtime.poll import Poll
from treefold.runtime.tree_reader import TreeReader
from treefold.runtime.watch import Watch
from treefold.stores.deprecated import checked_store

_UNDER_WAY: Final = (NodeState.Waiting.value, NodeState.Running.value)
_KEPT: Final = 32  # trees that were looked at last, and are not read anew


def attach(source: Store | str | os.PathLike[str]) -> "Observer":
    """Look on at a journal: the path of its file, or a store, whoever drives it.

    Raises:
        StoreError: there is none, or it cannot be read.

    Example:
        >>> import treefold
        >>> def add(ctx, a: int, b: int) -> int:
        ...     return a + b
        >>> function, store = treefold.CodeFunction(callable=add), treefold.MemoryStore()
        >>> with treefold.Runtime([function], store=store) as runtime:
        ...     runtime.invoke(function, {"a": 1, "b": 2}).result()
        3
        >>> with treefold.attach(store) as observer:
        ...     [(tree.function, observer.get_view(tree.id).outputs) for tree in observer.trees()]
        [('add', 3)]
    """
    if not isinstance(source, str | os.PathLike):
        return Observer(checked_store(source))
    path = os.fspath(source)
    if not os.path.exists(os.path.expanduser(path)):
        raise StoreError(
            path, "there is no such file; give the path that a Runtime(store=...) was made with"
        )
    from treefold.stores.sqlite_store import SqliteStore  # noqa: PLC0415 - who has one needs none

    store = SqliteStore(path)
    return Observer(store, closing=store)


class Observer:  # noqa: PLR0904 - all that is wanted of a run from elsewhere
    """Sees all that is in a journal, and may say something to whoever drives it.

    What it asks for is left in the journal: a driver that is alive follows within moments, and
    otherwise the next does when it opens the journal. It may be used from any thread. Results are
    plain data, as they were written down; ``update_seqnum`` counts what is written, and is to be
    compared with that of other views of this observer.

    Args:
        store: the journal; whoever gives it closes it.
        closing: what to close with the observer.

    Example:
        >>> import treefold
        >>> async def deploy(ctx) -> str:
        ...     return await ctx.ask("Deploy?", ["yes", "no"])
        >>> function, store = treefold.CodeFunction(callable=deploy), treefold.MemoryStore()
        >>> from treefold import Runtime, attach
        >>> with Runtime([function], store=store) as runtime, attach(store) as other:
        ...     node = runtime.invoke(function)
        ...     while not (questions := other.questions()):
        ...         pass
        ...     other.answer(questions[0].id, "yes")
        ...     questions[0].text, node.result()
        ('Deploy?', 'yes')
    """

    def __init__(self, store: Store, *, closing: Store | None = None) -> None:
        self._given = store
        self._closing = closing
        self._poll = Poll(store)
        self._lock = threading.Lock()
        self._trees: OrderedDict[int, ObservedTree] = OrderedDict()  # looked at last comes last
        self._interrupted: tuple[int, Mapping[int, float]] = (-1, {})  # as of a place

    def __repr__(self) -> str:
        return f"<Observer of {self.name}>"

    @property
    def name(self) -> str:
        """Where the journal is, for messages."""
        return self._given.name

    # What there is

    def trees(self) -> list[TreeRow]:
        """Return all top-level calls, oldest first; one that was given no key has an empty one."""
        return [replace(tree, key=name_in(tree.key)) for tree in self._store.trees()]

    def get_view(self, id: int) -> NodeView:
        """Return the node with this id, and all below it, as they stand in the journal.

        Raises:
            UnknownNodeError: there is no such node.
        """
        return self._tree_of(id).view(id)

    def tree_of(self, id: int) -> int:
        """Return the id of the top-level call that this node is, or is below; reads no tree.

        Raises:
            UnknownNodeError: there is no such node.
        """
        return self._tree_of(id).id

    @property
    def journal(self) -> str:
        """What tells this journal from every other, for ever."""
        return self._store.id

    def last(self) -> int:
        """Return the place of the newest event of the journal: it grows when something happens."""
        return self._store.last()

    def events(self, tree: int, *, long_texts: bool = True) -> TreeReader:
        """Return what reads the events of a tree: each ``read()`` gives those that are new.

        Those that a fork shares with the tree that it comes from stand before its ``TreeForked``.
        Without *long_texts* each of these is read as an empty one, which takes less time and room.
        """
        return TreeReader(self._store, tree, long_texts=long_texts)

    def watch(self, id: int, as_of_seq: int = 0, timeout: float | None = None) -> Watch:
        """Wait for a view of a node newer than the one numbered *as_of_seq*.

        ``await`` the watch, call its ``result()``, or iterate over it either way; a TimeoutError
        says that nothing happened for *timeout* seconds.

        Raises:
            UnknownNodeError: there is no such node.
        """
        tree = self._tree_of(id)
        return Watch(self._poll, tree, id, as_of_seq=as_of_seq, timeout=timeout)

    def stack(self, id: int) -> list[Frame]:
        """Return the calls from the top-level one through a node to what it waits for now.

        Raises:
            UnknownNodeError: there is no such node.
        """
        tree = self._tree_of(id)
        frames = tree.stack(id)
        if tree.id not in self.interrupted():
            return frames
        return [
            replace(frame, state="interrupted") if frame.state in _UNDER_WAY else frame
            for frame in frames
        ]

    @property
    def is_driven(self) -> bool:
        """Whether somebody drives the journal now, in whichever process."""
        return self._store.is_owned()

    def interrupted(self) -> Mapping[int, float]:
        """Return the trees that a process left open when it ended, by their ids.

        They are open and do not wait for a person, and nobody drives the journal. The values are
        the times of their last events, in seconds since the epoch.
        """
        if self.is_driven:
            return {}
        place = self._store.last()
        read, found = self._interrupted
        if read != place:
            found = {
                tree.id: tree.last or tree.started or 0.0
                for tree in self._store.trees()
                if tree.open and not tree.parked
            }
            self._interrupted = place, found
        return found

    def questions(self) -> list[Question]:
        """Return all that waits for a person and that nobody has answered, oldest first."""
        return self._store.questions()

    # What is asked for

    def answer(self, id: str, text: str = "", *, args: Mapping[str, Any] | None = None) -> None:
        """Answer the question with this id, as ``Runtime.answer`` does.

        Raises:
            UnknownQuestionError: there is no such question, or somebody has answered it.
            InvalidValueError: this is no answer to it; the question stays open.
        """
        questions = {question.id: question for question in self._store.questions()}
        if id not in questions:
            known = ", ".join(questions) or "none"
            raise UnknownQuestionError(
                f"no question {id!r} waits for an answer (it may have been answered already);"
                f" open: {known}"
            )
        questions[id].checked(text, args)
        command = {
            "do": "answer",
            "id": id,
            "text": text,
            "args": None if args is None else {**args},
        }
        body = write_command(command, "what is in an answer")
        if not self._store.post(body, question=id):
            raise UnknownQuestionError(f"question {id!r} has been answered already")

    def cancel(self, id: int, reason: str = "cancelled") -> None:
        """Have the node with this id cancelled, and every call it made.

        Raises:
            UnknownNodeError: there is no such node.
            UsageError: it has ended.
        """
        command = {"do": "cancel", "node": id, "reason": _checked(reason)}
        _check_open(self.get_view(id), "cancelled")
        self._post(command)

    def pause(self, id: int, reason: str = "it was paused") -> None:
        """Have the node with this id, and all below it, make no further request or call.

        Raises:
            UnknownNodeError: there is no such node.
            UsageError: it has ended.
        """
        command = {"do": "pause", "node": id, "reason": _checked(reason)}
        _check_open(self.get_view(id), "paused")
        self._post(command)

    def resume(self, id: int) -> None:
        """Have what was paused go on, the node with this id and all below it.

        A top-level call that has failed or was cancelled goes on in a fork of its tree: the one in
        ``trees()`` whose source it is.

        Raises:
            UnknownNodeError: there is no such node.
            UsageError: there is nothing to go on with.
        """
        view, tree = self.get_view(id), self._tree_of(id).id
        if view.state is NodeState.Success:
            _check_open(view, "resumed")
        elif view.state.final and id != tree:
            raise UsageError(f"{_named(view)} has ended; resume node {tree}")
        elif not view.state.final and not is_paused(view) and not self._is_pause_posted():
            raise UsageError(f"{_named(view)} is not paused, nor is anything below it")
        self._post({"do": "resume", "node": id})

    def fork(self, id: int, at: int | None = None, edit: Edit | None = None) -> str:
        """Have a fork begun at the node with this id, as ``Runtime.fork`` does.

        Returns:
            What ``forked`` knows it by.

        Raises:
            UnknownNodeError: there is no such node.
            InvalidValueError: the edit is for something else, or not JSON.
        """
        view = self.get_view(id)
        fitting_place(view.fn, at, edit, is_agent=view.is_agent)
        if at and at > (had := self._tree_of(id).responses(id)):
            raise InvalidValueError(f"node {id} has had {had} responses, and not {at}")
        if edit is not None and not isinstance(edit.model, str | None):
            raise InvalidValueError("another process can only be told the name of a model")
        key = f"#fork {os.urandom(8).hex()}"
        command = {"do": "fork", "node": id, "at": at, "edit": edit_as_data(edit), "key": key}
        self._store.post(write_command(command, "an edit"))
        return key

    def forked(self, key: str) -> int | None:
        """Return the top-level node of a fork that was asked for, when it is there.

        Raises:
            UsageError: the driver will not make it; the message says why.
        """
        found = self._store.find_key(key)
        if found is None:
            _, lines = self._store.read_broadcasts()
            if (why := refusals_in(lines).get(key)) is not None:
                raise UsageError(why)
        return found

    def _post(self, command: Mapping[str, Any]) -> None:
        """Leave a message, unless the last one about that node says the same."""
        earlier = [one for one in self._posted() if one.get("node") == command["node"]]
        if earlier[-1:] != [command]:
            self._store.post(json.dumps(command))

    def _is_pause_posted(self) -> bool:
        return any(one.get("do") == "pause" for one in self._posted())

    def _posted(self) -> list[dict[str, Any]]:
        """Return what others, too, have asked for, and what has not been followed."""
        found: list[dict[str, Any]] = []
        for message in self._store.inbox():
            with suppress(InvalidValueError):
                found.append(read_command(message.body))
        return found

    # The end

    def close(self) -> None:
        """Look on no longer; whoever waits for a view is told so. Closing twice is fine."""
        self._poll.close()
        if self._closing is not None:
            self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def _store(self) -> Store:
        self._poll.check_open()
        return self._given

    def _tree_of(self, id: int) -> ObservedTree:
        """Return the tree that a node is in."""
        found = self._store.find(node=id) if isinstance(id, int) else None
        if found is None:
            raise unknown_node(self._given, id)
        with self._lock:
            tree = self._trees.pop(found, None) or ObservedTree(self._given, found, self._poll)
            self._trees[found] = tree
            if len(self._trees) > _KEPT:
                self._trees.popitem(last=False)
        return tree


def _named(view: NodeView) -> str:
    return f"{view.fn} (node {view.id})"


def _check_open(view: NodeView, what: str) -> None:
    if view.state.final:
        raise UsageError(f"{_named(view)} has ended ({view.state}), and cannot be {what} any more")


def is_paused(view: NodeView) -> bool:
    """Whether a call, or one below it, stands still until somebody says that it may go on."""
    views = [view]
    while views:
        view = views.pop()
        if any(question.kind is QuestionKind.Paused for question in view.questions):
            return True
        views.extend(view.children)
    return False


def _checked(reason: str) -> str:
    if not isinstance(reason, str):
        raise InvalidValueError(f"a reason is some text, not {reason!r}")
    return reason
