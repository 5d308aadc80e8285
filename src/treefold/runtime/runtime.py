"""The public facade: the one object that a program makes, usable from any thread."""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import Token
from functools import partial
from types import ModuleType, TracebackType
from typing import Any, ClassVar, Final, Literal, ParamSpec, Self, TypeVar, overload

from treefold.core.address import address
from treefold.core.budget import Budget, as_text
from treefold.core.commands import (
    AnswerQuestion,
    CancelCall,
    ClaimQuestion,
    Command,
    ExpireQuestion,
    ForkTree,
    PauseCall,
    ResumeCall,
    SayToCall,
)
from treefold.core.decisions import HookHandler, Hooks, Rules
from treefold.core.deps import DepsSource
from treefold.core.edit import Edit, edit_of
from treefold.core.errors import (
    ClosedError,
    InvalidValueError,
    UnknownQuestionError,
    UsageError,
)
from treefold.core.events import StopCause
from treefold.core.frames import Frame
from treefold.core.function import Function, Node, RunContext
from treefold.core.notification import Notification
from treefold.core.question import RESUME, Question, QuestionKind
from treefold.core.said import SaidMessage, checked_message
from treefold.core.states import NodeState
from treefold.core.store import Store
from treefold.core.views import NodeView
from treefold.core.work_engine import Stop, WorkEngine
from treefold.runtime.backend import Forking, SharedWork
from treefold.runtime.calls.budgets import Account
from treefold.runtime.calls.live_call import LiveCall
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.stack import stack_through
from treefold.runtime.calls.walk import root_of, subtree
from treefold.runtime.context import Context
from treefold.runtime.durable.worker_settings import WorkerSettings, WorkerStatus
from treefold.runtime.engine import Engine, StartPolicy
from treefold.runtime.graph import check_listed, discover
from treefold.runtime.guarding import Guarding
from treefold.runtime.in_memory import InMemory
from treefold.runtime.limits.limits import DEFAULT_LIMITS, Limits
from treefold.runtime.limits.model_names import ModelNames
from treefold.runtime.loops.loop_handle import BackgroundLoop, LoopHandle
from treefold.runtime.loops.threads import finish_in_thread
from treefold.runtime.past_runs import PastRuns
from treefold.runtime.questions.pauses import pause_node, why_not_paused
from treefold.runtime.services import Services
from treefold.runtime.tree_registry import TreeRegistry
from treefold.runtime.trees.event_stream import EventStream
from treefold.runtime.trees.question_board import QuestionBoard
from treefold.runtime.trees.watch import Watch

log = logging.getLogger(__name__)

T = TypeVar("T")
Q = ParamSpec("Q")
# A function that tells people of a question, or the address of a webhook.
Notify = Callable[[Notification], Awaitable[object] | object] | str

_POLL_INTERVAL: Final = 0.1  # seconds between two polls of the inbox


class Runtime:  # noqa: PLR0904 - the public interface of the whole folder
    """Runs functions as trees of nodes, and keeps the trees until they are deleted.

    With ``async with`` it uses the caller's event loop, and turns run inside the block become its
    nodes, too; otherwise it starts a loop of its own in a background thread, and in a ``with``
    block ``run_sync`` makes calls in it. Leaving a ``with``
    block waits for the calls that still run, or cancels them if an exception leaves it. With a
    store, it does not wait for a tree in which every open call waits for a person, and calls that
    it cancels are resumed by the next runtime. All methods may be used from any thread.

    Args:
        specs: the functions; all functions that they may call are found and checked, too.
        models: a model or its name for agents that name none; or a mapping from the names that
            agents use (a Provider, or a name of your own) to a model or its name, with
            ``"default"`` for the rest. Without a default, the variable ``TREEFOLD_MODEL`` names it.
        limits: how many requests to models may be under way.
        budget: what all calls together may spend.
        hooks: decide about the calls that models ask for, their results and when agents stop; by
            HOOK_PRE_TOOL_USE and the like, or by the names of claude-agent-sdk ("PreToolUse").
        allowed_tools: the only functions that models may call, at any depth.
        disallowed_tools: functions that models may not call.
        guards: further decision hooks, or modules that have some, for runs in the store that they
            guard; new runs are not bound by them.
        deps: what calls have as ``ctx.deps``: an object, or a factory (a function, class or context
            manager function, perhaps async), which is called with a RunInfo for each tree in each
            process that runs it; what it returns is closed with the tree.
        on_provider_failure: after the last retry, ``"raise"`` the error, or ``"pause"`` until a
            person resumes the call.
        on_tool_error: ``"report"`` an exception to the model, or ``"pause"`` until a person
            decides.
        on_budget: for a request that does not fit into a budget: ``"raise"`` BudgetExceeded, or
            ``"pause"`` until a person answers with a larger budget.
        on_new_code: for an open call of an earlier process whose function has changed: ``"adopt"``
            the new version, with a notice; ``"pause"`` until a person resumes the call; or
            ``"pin"`` its tree, which stays as it is until a runtime has the version it began with.
        store: the journal, as a store or the path of a file: every call is recorded there, and
            calls that are open when the process ends are resumed by the next runtime with it.
        redact: applied to each text before it is written.
        notify: tells people of questions: a function, sync or async, that is called once with the
            Notification of each question when it is durable; or an address, to which it is posted
            as JSON.
        engine: places top-level calls on the workers of a shared store: ``invoke`` only submits
            them, and ``work`` runs them, in this process or others.
        worker: how this process takes part in a shared store.
        policy: decides about each call before it is made; ``treefold.testing`` replays with one.

    Example:
        >>> from treefold import CodeFunction, Runtime
        >>> def add(ctx, a: int, b: int) -> int:
        ...     return a + b
        >>> with Runtime([CodeFunction(callable=add)]) as runtime:
        ...     runtime.invoke(runtime.invocable_functions["add"], {"a": 1, "b": 2}).result()
        3
    """

    keeps_finished_trees: ClassVar[bool] = True
    patience: ClassVar[float] = 10.0  # seconds after which a cancelled call is cancelled again

    def __init__(  # noqa: PLR0913 - options, each passed by name
        self,
        specs: Iterable[Function] = (),
        *,
        models: Any = None,
        limits: Limits | None = None,
        budget: Budget | None = None,
        hooks: Hooks | None = None,
        allowed_tools: Iterable[str | Function] | None = None,
        disallowed_tools: Iterable[str | Function] = (),
        guards: Iterable[HookHandler | ModuleType] = (),
        deps: object = None,
        on_provider_failure: Literal["raise", "pause"] = "raise",
        on_tool_error: Literal["report", "pause"] = "report",
        on_budget: Literal["raise", "pause"] = "raise",
        on_new_code: Literal["adopt", "pause", "pin"] = "adopt",
        store: Store | str | os.PathLike[str] | None = None,
        redact: Callable[[str], str] | None = None,
        notify: Notify | None = None,
        engine: WorkEngine | None = None,
        worker: WorkerSettings | None = None,
        policy: StartPolicy | None = None,
    ) -> None:
        for option, value, default in (
            ("on_provider_failure", on_provider_failure, "raise"),
            ("on_tool_error", on_tool_error, "report"),
            ("on_budget", on_budget, "raise"),
        ):
            if value not in {default, "pause"}:
                raise InvalidValueError(f"{option} must be {default!r} or 'pause', got {value!r}")
        if on_new_code not in {"adopt", "pause", "pin"}:
            raise InvalidValueError(
                f"on_new_code must be 'adopt', 'pause' or 'pin', got {on_new_code!r}"
            )
        if not isinstance(limits, Limits | None):
            raise InvalidValueError(f"limits are Limits(...), not {limits!r}")
        if not isinstance(budget, Budget | None):
            raise InvalidValueError(f"a budget is a Budget(...), not {budget!r}")
        models = models if isinstance(models, ModelNames) else ModelNames(models)
        guarding = Guarding(Rules.of(allowed_tools, disallowed_tools, hooks), budget, guards)
        functions = discover(specs, models)
        self.invocable_functions: Mapping[str, Function] = functions
        check_listed(guarding.rules, functions)
        deps_source = DepsSource.of(deps)
        new_notifier = None if notify is None else self._checked_notify(notify)
        # All that may be refused has been checked: from here on nothing would close the store.
        journal = None
        if store is not None:
            from treefold.runtime.opening import open_journal  # noqa: PLC0415 - only for stores

            journal = open_journal(
                store,
                redact=redact,
                functions=functions,
                guarding=guarding,
                on_new_code=on_new_code,
                work_engine=engine,
                settings=worker or WorkerSettings(),
            )
        elif engine is not None:
            raise UsageError(
                "engine= needs a store that several processes share: give store='postgresql://...'"
            )
        loader = None if journal is None else journal.loader
        self._services = Services(
            models=models,
            limits=limits or DEFAULT_LIMITS,
            guarding=guarding,
            deps=deps_source,
            account=None if budget is None else Account(budget, None),
            shared=None if journal is None else journal.allowances,
            pauses_on_provider_failure=on_provider_failure == "pause",
            pauses_on_tool_error=on_tool_error == "pause",
            pauses_on_budget=on_budget == "pause",
            on_new_code=on_new_code,
            board=QuestionBoard(
                expire=self._expire, now=time.time if loader is None else loader.source.now
            ),
            past_runs=PastRuns(None if loader is None else loader.store),
        )
        self._trees = TreeRegistry(
            keeps_finished=self.keeps_finished_trees,
            recorded=int if loader is None else loader.recorded,
        )
        self._engine = Engine(
            self,
            functions,
            self._services,
            self._trees,
            loader=loader,
            connect=InMemory if journal is None else partial(journal.connect, self._execute),
            loop_handle=self._open_loop,
            keeps_trees=self.keeps_finished_trees,
            policy=policy,
        )
        self._backend = self._engine.backend
        board = self._services.board
        self._notifier = None if new_notifier is None else new_notifier(board, self._engine)
        self._context = Context(self._engine, None)
        self._loop_handle: LoopHandle | None = None
        self._lock = threading.Lock()  # guards opening the loop and closing
        self._closed = False
        # Unique; that of the journal if there is one.
        self.id = os.urandom(16).hex() if loader is None else loader.store.id
        self._token: Token[RunContext] | None = None
        self._is_started = False

    # It returns what makes a Notifier. Type checkers infer that; an annotation would import it.
    def _checked_notify(self, notify: Notify):
        from treefold.runtime.questions.notifier import (  # noqa: PLC0415 - few programs have one
            notifier_for,
        )

        return notifier_for(notify)

    def _expire(self, question: Question) -> None:
        """Let a question expire: in the store, unless a person has answered it there."""
        self._backend.expire(question)

    @property
    def store(self) -> Store | None:
        """The store of the journal, or None."""
        return self._backend.store

    # Calls

    def get_ctx(self) -> Context:
        """Return a context outside any call: its ``invoke`` starts top-level calls."""
        return self._context

    def invoke(  # noqa: PLR0913 - options, each passed by name
        self,
        function: Function[..., T],
        args: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        model: Any = None,
        budget: Budget | None = None,
        key: str | None = None,
        queue: str | None = None,
        priority: int = 0,
        deps: object = None,
    ) -> Node[T]:
        """Start a top-level call of *function* and return its node at once.

        A function that is not among those of this runtime is checked now. *timeout* is in seconds
        from the start of the call, in whichever process; *model* and *budget* are for this call. A
        *key* makes the call unique: if it has been made before, in this process or an earlier one
        with the same store, its node is returned. If that failed for want of something outside it
        (a provider, its budget, the store), it continues at the call that failed, in a new tree
        that shares its past, with the new *budget* if one is given. What was spent counts.

        *deps* are the dependencies of this run instead of the runtime's; other processes do not
        have them, and resume the run only if their Runtime has a ``deps``.

        Code outside any call that stops awaiting the node (``asyncio.timeout``, a cancelled task)
        cancels it, unless other such code waits for it as well. With a store it does not: the call
        continues, and leaving the runtime waits for it; give it a *timeout*, or cancel it.

        With an engine the call is only submitted, to *queue*, or else to the queue of the function
        or of this process; higher priorities are run first. ``flush`` waits until it is stored.

        Raises:
            CallGraphError: there is a fault in the function, or in one that it may call.
            InvalidValueError: another call has that key.
            ClosedError: the runtime was closed.
            StoreError: the call with that key cannot be read or continued.
        """
        return self._context.invoke(
            function,
            args,
            timeout=timeout,
            model=model,
            budget=budget,
            key=key,
            queue=queue,
            priority=priority,
            deps=deps,
        )

    def call(self, function: Function[Q, T], /, *args: Q.args, **kwargs: Q.kwargs) -> Node[T]:
        """Start a top-level call with these arguments, which type checkers check."""
        return self._context.call(function, *args, **kwargs)

    # Calls of earlier processes

    def recover(self) -> list[Node]:
        """Resume the trees that earlier processes left open; return their top-level calls.

        This happens automatically when a ``with`` block is entered, or at the first call. A tree in
        which every open call waits for a person is resumed when one answers. A tree that cannot be
        read is left as it is, with a warning in the log.
        """
        self._open_loop()
        found = [self._engine.find_readable(id) for id in self._backend.recovered()]
        return [node for node in found if node is not None and not node.record.inert]

    def held_back(self) -> list[Node]:
        """Return the top-level calls that this process cannot run; their views say why.

        They stay open for a process that has what this one lacks, such as a hook that guards them.
        """
        self._open_loop()
        found = map(self._engine.find_readable, sorted(self._backend.held_back))
        return [node for node in found if node is not None]

    def _execute(self, command: Command) -> Callable[[], bool] | None:
        """Execute the command of an observer; a second time it must change nothing.

        Returns:
            For a cancellation, what tells whether the end of the call is recorded.

        Raises:
            TreefoldError: it cannot be executed.
        """
        match command:
            case AnswerQuestion(id, text, args, token):
                self._backend.find_question(id)
                self._services.board.answer(id, self._choice_for(id, text), args, token)
            case ExpireQuestion(id):
                self._backend.find_question(id)
                with suppress(UnknownQuestionError):  # its call has ended meanwhile
                    self._services.board.expire(id)
            case ClaimQuestion():
                pass  # the process that claimed the question ended before it had answered
            case CancelCall(node, reason, StopCause.Abandoned):
                found = self._find_own(node)
                found.loop_handle.run_sync(found.abandon, reason)
                return lambda: found.has_recorded_end
            case CancelCall(node, reason):
                found = self._find_own(node)
                found.cancel(reason)
                return lambda: found.has_recorded_end
            case PauseCall(node, reason, id):
                found = self._find_own(node)
                found.loop_handle.run_sync(pause_node, found, reason, id)
            case ResumeCall(node, budget, without, ended, paused):
                found = self._find_own(node)
                _check_seen(found, ended=ended)
                self._resume(found, budget, without, paused)
            case SayToCall(node, text, when, id):
                found = self._find_own(node)
                said = SaidMessage(id=id, text=text, when=when)
                found.loop_handle.run_sync(found.say, said)
            case ForkTree(node, key, at, edit, without):
                self._get_forks().fork(node, at, edit_of(edit), key, without)
        return None

    def _find_own(self, id: int) -> CallNode:
        """Return a node that a command is for.

        Raises:
            ClosedError: another process runs its tree now, and executes the command.
        """
        node = self._engine.find(id)
        if self._backend.elsewhere(node) is not None:
            raise ClosedError(f"another worker runs {address(node.path)} now")
        return node

    def _choice_for(self, id: str, text: str) -> str:
        """Return the choice that *text* stands for: observers see the choices redacted."""
        for question in self._services.board.questions():
            for choice in question.choices if question.id == id else ():
                if self._backend.as_written(choice) == text:
                    return choice
        return text

    def record_spans(self, find: Callable[[], str | None] | None) -> None:
        """Record with each top-level call the span that is open where it is made.

        *find* is called there and returns it in the form of the header ``traceparent``, or None.
        ``treefold.views.otel.trace`` uses it to make the spans of a run children of that span.
        """
        self._engine.find_span = find

    # Inspecting trees

    def list_toplevel(self) -> list[Node]:
        """Return the top-level calls, oldest first, including those of earlier processes.

        With a store, finished trees are not kept in memory, and trees that an earlier process left
        parked are not read: each is read when its node is first asked for more than its function,
        path, state and end, while this runtime is open. Any other tree that cannot be read is left
        out, with a warning in the log.
        """
        roots = {root.id: root for root in self._trees.roots}
        if self._backend.store is not None and not self._closed:
            past = self._backend.past_trees(self._open_loop())
            roots.update({root.id: root for root in past})
        return sorted(roots.values(), key=lambda root: root.id)

    def get_subtree(self, id: int) -> list[Node]:
        """Return the node with this id and all below it, each node before its children."""
        return list[Node](subtree(self._engine.find(id)))

    def get_view(self, id: int) -> NodeView:
        """Return a snapshot of the node with this id and all below it."""
        return self._engine.find(id).tree.view(id)

    def watch(self, node: Node | int, as_of_seq: int = 0, timeout: float | None = None) -> Watch:
        """Wait for a view of *node* newer than the one numbered *as_of_seq*.

        ``await`` the watch, call its ``result()`` from another thread, or iterate over it, with
        ``for`` or ``async for``; it raises TimeoutError if nothing happens for *timeout* seconds.
        """
        found = self._engine.find(node)
        views = self._backend.views(found)
        return Watch(found.loop_handle, views, found.id, as_of_seq=as_of_seq, timeout=timeout)

    def events(self, node: Node | int, after: int = 0, timeout: float | None = None) -> EventStream:
        """Return the events of *node* and of all calls below it, until it has ended.

        Iterate with ``for`` in any thread, or with ``async for`` on any event loop. The events of
        the past come first, beginning with the one after number *after*, and then each new one when
        it has happened; TimeoutError is raised if none does for *timeout* seconds. None is lost or
        returned twice.

        With a store they are read from the journal: they are as written there, that is redacted and
        with values as plain data, and durable. A closed runtime raises ClosedError.

        Raises:
            UnknownNodeError: there is no such node.
        """
        found = self._engine.find(node)
        source = self._backend.events(found)
        call = LiveCall(found, self._engine.loaded)
        return EventStream(
            source, found.loop_handle, found.id, after=after, timeout=timeout, call=call
        )

    def stack(self, id: int) -> list[Frame]:
        """Return the calls from the top-level one through node *id* to what it waits for now."""
        return stack_through(self._engine.find(id))

    # Pausing, resuming, forking

    def pause(self, id: int, reason: str = "it was paused") -> None:
        """Pause the node with this id, and all below it, before their next request or call.

        Requests and calls under way are not stopped. A question is open meanwhile: resume or
        cancel.

        Raises:
            UsageError: the node has ended.
        """
        node = self._engine.find(id)
        if (other := self._backend.elsewhere(node)) is not None:
            other.pause(id, reason)
        else:
            node.loop_handle.run_sync(pause_node, node, reason)

    def say(self, id: int, text: str, *, when: Literal["next", "idle"] = "next") -> SaidMessage:
        """Say something to the agent whose call has this id, and which runs or waits.

        It is delivered once, with the next request of the agent, after the results of its calls; or
        with ``when="idle"``, instead of ending. ``get_view(id).messages`` has it with its receipt:
        delivered, and with which response, or too late, because the agent ended before.

        Raises:
            UsageError: it is too late, or the call is not one of an agent.
        """
        text, checked = checked_message(text, when)
        node = self._engine.find(id)
        if (other := self._backend.elsewhere(node)) is not None:
            return other.say(id, text, when=when)
        said = SaidMessage(id=os.urandom(8).hex(), text=text, when=checked)
        node.loop_handle.run_sync(node.say, said)
        return said

    def resume(self, id: int, *, budget: Budget | None = None, without: Sequence[str] = ()) -> Node:
        """Resume everything that is paused in the node with this id and below it.

        A run that this process holds back is resumed if it lacks nothing more; an imported run is
        held back until then. *without* names guards that a person decides to go on without: hooks
        as "module:name", "allowed_tools", "disallowed_tools" or "budget". The decision is recorded.

        A top-level call that has failed or was cancelled continues in a fork of its tree, whose
        top-level node is returned: calls that were cancelled, or failed for want of something
        outside the tree (a provider, a budget, the store), are open again in it, and everything
        else is as it was. There is one such fork: resuming the same call again resumes that. It has
        the *budget*, if given, instead of the one that the call was made with; what was spent
        counts. A call that waits for a larger budget gets *budget*. Without a store only an agent
        whose provider failed can be resumed so; it is called again, and continues after the last
        complete response.

        Raises:
            UsageError: nothing there is paused.
            InvalidValueError: the run has no such guard.
        """
        if not isinstance(budget, Budget | None):
            raise InvalidValueError(f"a budget is a Budget(...), not {budget!r}")
        node = self._engine.find(id)
        found = node if node.parent is not None else self._engine.keys.newest(node)
        return self._resume(found, budget, without)

    def _resume(
        self,
        node: CallNode,
        budget: Budget | None,
        without: Sequence[str],
        seen: Collection[str] | None = None,
    ) -> Node:
        """Resume *node*; of what is paused only what was *seen*, if that is given."""
        id, root = node.id, root_of(node)
        # One that was given up for other workers is cancelled here, and has not ended.
        has_ended = node.state in {NodeState.Error, NodeState.Canceled}
        if has_ended and not node.tree.is_given_up:
            continued = self._backend.resume_ended(node, budget, without)
            if continued is not None:
                return continued
        if (other := self._backend.elsewhere(node)) is not None:
            other.resume(id, budget=budget, without=without)
            return node
        if without or root.record.held_back:
            root.loop_handle.run_sync(self._backend.resume_held_back, root, without)
            return node
        below = {one.id for one in subtree(node)}
        asked = [q for q in self._services.board.questions() if q.node_id in below]
        asked = asked if seen is None else _those_of(node, asked, seen)
        answers = {q.id: RESUME for q in asked if q.kind is QuestionKind.Paused}
        if budget is not None:
            more = as_text(budget)
            answers |= {q.id: more for q in asked if q.kind is QuestionKind.Budget}
        if not answers:
            raise UsageError(why_not_paused(node))
        for question, answer in answers.items():
            with suppress(UnknownQuestionError):  # answered in the meantime
                self._backend.answer(question, answer, None)
        return node

    @overload
    def fork(
        self,
        node: Node[T],
        at: int | None = None,
        edit: Edit | None = None,
        *,
        without: Sequence[str] = (),
    ) -> Node[T]: ...

    @overload
    def fork(
        self,
        node: int,
        at: int | None = None,
        edit: Edit | None = None,
        *,
        without: Sequence[str] = (),
    ) -> Node: ...

    def fork(
        self,
        node: Node | int,
        at: int | None = None,
        edit: Edit | None = None,
        *,
        without: Sequence[str] = (),
    ) -> Node:
        """Start a tree that shares the past of another and runs what follows anew.

        The call *node*, in any tree and at any depth, is made again in the fork, with the *edit*;
        the calls above it continue when it has ended. An agent keeps its first *at* responses and
        continues after them; 0, the default, is its beginning. Calls that were requested before
        *node*, or in parallel with it, are shared; later ones are made again. The original tree is
        not changed. The top-level call of the fork is returned (typed as if *node* were a top-level
        call, too).

        The fork is bound by the permissions that bound the original, and by those of this runtime.
        *without* names guards that a person decides to go on without, as for ``resume``.

        Raises:
            UsageError: there is no store, or *node* is in another.
            InvalidValueError: there is no such response, or the edit does not fit the call.
            StoreError: the journal cannot be read, or earlier events cannot be written to it. On
                the runtime's own event loop, a locked store raises StoreBusyError at once.
        """
        return self._get_forks().fork(node, at, edit, None, without)

    def _get_forks(self) -> Forking:
        if (forks := self._backend.forks) is None:
            raise UsageError("only recorded calls can be forked: use Runtime(store='run.db')")
        return forks

    def questions(self) -> list[Question]:
        """Return the open questions, at any depth of any tree, oldest first.

        A program that calls neither it nor ``answer`` is warned of each question in the log, with
        the command that answers.
        """
        self._services.board.is_read = True
        return self._backend.questions()

    def answer(self, id: str, text: Any = "", *, args: Mapping[str, Any] | None = None) -> None:
        """Answer the question with this id.

        A question with a form takes a value of its type, as an object or as JSON text.

        An approval is answered ``"allow"``, ``"deny"`` or ``"deny: why"``, or by *args*, the
        arguments to use instead; a pause by ``"resume"`` or ``"cancel"``; a call in doubt by
        ``"retry"``, ``"use: RESULT"``, ``"fail"`` or ``"fail: why"``; anything else by one of its
        choices, or by any text if it has none. Yes, y and allow mean the same, as do no, n and
        deny. A budget that is used up is answered by a larger one, ``"usd=5"`` or ``"tokens=90000
        calls=20"``, or by ``"cancel"``.

        Raises:
            UnknownQuestionError: there is no such question, or it has been answered, perhaps by
                another process.
            InvalidValueError: the answer is not valid for it; the question stays open.
            StoreError: the journal, where another process may have answered it, cannot be written.
                On the runtime's own event loop, a locked store raises StoreBusyError at once.
        """
        # It knows of the questions from elsewhere, such as events.
        self._services.board.is_read = True
        self._backend.answer(id, text, args)

    def cancel(self, id: int, reason: str = "cancelled") -> None:
        """Cancel the node with this id, and all below it."""
        node = self._engine.find(id)
        if (other := self._backend.elsewhere(node)) is not None:
            other.cancel(id, reason)
        else:
            node.cancel(reason)

    async def work(
        self,
        *,
        queues: Collection[str] | None = None,
        slots: int | None = None,
        drain: float = 60.0,
        stop: Stop | None = None,
    ) -> None:
        """Run what the engine of a shared store delivers, until *stop* is set.

        Then each tree is given up for other workers as soon as no request and no call that must not
        be repeated is under way, and after *drain* seconds at the latest.

        Args:
            queues: the queues to serve; by default those of ``WorkerSettings``.
            slots: how many trees run at once; by default as in ``WorkerSettings``.
            stop: an event, such as ``asyncio.Event``; without one this runs until it is cancelled.

        Raises:
            UsageError: the runtime has no shared store.
            EngineError: the engine cannot be reached.
            FencedError: this worker counted as dead, because it could not reach the store.
        """
        worker = self._shared_work("work()")
        if not self.lives_on(asyncio.get_running_loop()):
            raise UsageError(
                "work() is for the runtime's own event loop: 'async with Runtime(...)'"
            )
        await worker.work(
            worker.settings.queues if queues is None else queues,
            worker.settings.slots if slots is None else slots,
            drain,
            asyncio.Event() if stop is None else stop,
        )

    @property
    def worker_settings(self) -> WorkerSettings:
        """How this process takes part in a shared store.

        Raises:
            UsageError: the runtime has no shared store.
        """
        return self._shared_work("a worker").settings

    def worker_status(self) -> WorkerStatus:
        """Return how this process does as a worker of a shared store, for health checks.

        Raises:
            UsageError: the runtime has no shared store.
        """
        return self._shared_work("worker_status()").status()

    def _shared_work(self, what: str) -> SharedWork:
        if (worker := self._backend.worker) is None:
            raise UsageError(f"{what} needs a store that several processes share: postgresql://...")
        return worker

    def flush(self) -> None:
        """Block until everything that has happened so far is in the store; not on an event loop.

        Raises:
            StoreError: it cannot be written now; it is retried.
        """
        self._backend.flush()

    @property
    def limits(self) -> Limits:
        """How many requests to models may be under way at once."""
        return self._services.limits

    @property
    def rules(self) -> Rules:
        """Its allowed tools and decision hooks, for what models outside of it ask for."""
        return self._services.guarding.rules

    # Deleting trees

    def delete(self, id: int) -> None:
        """Delete a finished tree, in the store too, and close the objects in its session bags.

        Returns when all of them are closed. On the runtime's own event loop, which must not block,
        it returns at once and a task of the runtime closes them: leaving the runtime waits for that
        task, or write ``await asyncio.to_thread(runtime.delete, id)``.

        Raises:
            UsageError: *id* is not a top-level call, it still runs, or a fork shares its past.
            StoreError: the journal cannot be written. On the runtime's own event loop, a locked
                store raises StoreBusyError at once.
        """
        root = self._engine.find(id)
        self._trees.check_over(root)
        self._backend.delete(root.loop_handle, id)
        self._engine.keys.forget(root)
        closed = threading.Event()
        try:
            root.loop_handle.run_sync(self._trees.delete, root, closed.set)
            if not root.loop_handle.is_current():
                root.loop_handle.wait(closed, None)
        except ClosedError:  # the runtime was closed, and all bags with it
            self._trees.forget(root)

    # Opening and closing

    def lives_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether it runs calls on *loop*."""
        return self._loop_handle is not None and self._loop_handle.loop is loop and not self._closed

    def close(self) -> None:
        """Cancel the calls that still run, close the session bags, and stop the background loop.

        With a store, calls that are cancelled so stay open there, and the next runtime resumes
        them.
        """
        self._close(cancel=True)

    def _close(self, *, cancel: bool) -> None:
        # In a forked process nothing is closed: the parent process does that.
        if self._is_forked():
            return
        if self._loop_handle is not None and not self._closed:
            self._loop_handle.refuse_blocking(
                "closing the runtime", "leave the 'async with' block instead"
            )
        with self._lock:
            loop_handle, was_closed = self._loop_handle, self._closed
            self._closed = was_closed or cancel or loop_handle is None
        if was_closed or loop_handle is None:
            self._close_store()
            return
        try:
            self._log_open_questions()
            self._end_trees(loop_handle, cancel=cancel)
        # Ctrl-C, for example, ends the wait: then the calls are cancelled.
        except BaseException:
            self._end_trees(loop_handle, cancel=True)
            raise
        finally:
            self._closed = True
            self._close_store()
            if isinstance(loop_handle, BackgroundLoop):
                loop_handle.stop()

    def _log_open_questions(self) -> None:
        """Log the open questions, and those that closing waits for."""
        self._services.board.warn_of_unread()
        # With a store closing does not wait for them: they stay open for the next driver.
        if self._backend.store is not None:
            return
        if questions := self._services.board.questions():
            ids = ", ".join(question.id for question in questions)
            log.warning("the runtime ends when these questions are answered: %s", ids)

    def _end_trees(self, loop_handle: LoopHandle, *, cancel: bool) -> None:
        if not loop_handle.loop.is_closed():
            ending = self._end(cancel=cancel)
            asyncio.run_coroutine_threadsafe(ending, loop_handle.loop).result()

    async def _end(self, *, cancel: bool) -> None:
        if cancel:
            # What is taken now would be run without being recorded.
            self._backend.stop_taking()
        suspend = None if self._backend.store is None else self._suspend
        try:
            await self._trees.end(cancel=cancel, suspend=suspend)
            await self._tell_last()
        finally:
            await self._backend.stop()

    def __enter__(self) -> Self:
        self._open_loop()
        # In a call, what runs in this block still belongs to that call; but not to one of the
        # process that this one was forked from.
        active = RunContext.active.get(None)
        if active is None or (isinstance(active, Context) and active.runtime._is_forked()):
            self._token = RunContext.active.set(self._context)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave_context()
        self._close(cancel=kind is not None)

    async def __aenter__(self) -> Self:
        if self._loop_handle is not None or self._closed:
            raise UsageError("this runtime has been used already; make a new one for this block")
        self._loop_handle = LoopHandle(asyncio.get_running_loop(), self.patience)
        self._token = RunContext.active.set(self._context)
        self._start_on(self._loop_handle)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave_context()
        self._closed = kind is not None
        self._log_open_questions()
        try:
            await self._end(cancel=self._closed)
        finally:
            self._closed = True
            if self._backend.store is not None:
                await finish_in_thread(self._close_store)

    def _leave_context(self) -> None:
        if self._token is not None:
            with suppress(ValueError):  # the block was entered in another context
                RunContext.active.reset(self._token)

    def _close_store(self) -> None:
        self._services.board.timers.alarms.close()
        self._backend.close()

    async def _suspend(self) -> None:
        """Suspend the journal, so that cancelled calls stay open for the next driver."""
        await self._tell_last()
        await self._backend.suspend()

    async def _tell_last(self) -> None:
        """Wait until people were told of the questions that are open."""
        if self._notifier is not None:
            await self._notifier.drain()

    def _open_loop(self) -> LoopHandle:
        """Return the handle of its loop; a background loop is started if it has none yet."""
        if self._closed or (self._loop_handle is not None and self._loop_handle.loop.is_closed()):
            raise ClosedError("this runtime has been closed; make a new one to run more calls")
        if self._loop_handle is not None:
            self._loop_handle.check_process()
            return self._loop_handle
        with self._lock:
            if self._closed:
                raise ClosedError("this runtime has been closed; make a new one to run more calls")
            if self._loop_handle is None:
                self._loop_handle = BackgroundLoop(self.patience)
            loop_handle = self._loop_handle
        self._start_on(loop_handle)
        return loop_handle

    def _is_forked(self) -> bool:
        return self._loop_handle is not None and self._loop_handle.is_forked()

    def _start_on(self, loop_handle: LoopHandle) -> None:
        if self._backend.store is None:
            return
        try:
            loop_handle.run_sync(self._start_once, loop_handle)
        # The block is not entered then, so nothing else would close the store.
        except BaseException:
            self._closed = True
            self._close_store()
            if isinstance(loop_handle, BackgroundLoop):
                loop_handle.stop()
            raise

    def _start_once(self, loop_handle: LoopHandle) -> None:
        # Two threads may have opened the loop at the same time.
        if not self._is_started:
            self._is_started = True
            self._backend.start(loop_handle)


def _check_seen(node: CallNode, *, ended: bool) -> None:
    """Check that a call which is to be resumed is as the sender saw it.

    Raises:
        ClosedError: it has ended, as the sender saw in the store, and that is not shown here yet.
        UsageError: it was cancelled, or has ended, since the sender looked.
    """
    if ended and node.is_concluded and not node.has_ended:
        raise ClosedError(f"the end of {address(node.path)} is not shown here yet")
    if not ended and (node.is_concluded or node.cancel_reason is not None):
        raise UsageError(
            f"{node!r} was cancelled, or has ended, before it could be resumed; resume it again to"
            " continue it in a fork"
        )


def _those_of(node: CallNode, asked: Sequence[Question], seen: Collection[str]) -> list[Question]:
    """Return the questions in *asked* that were *seen*: themselves, or the commands for them.

    Raises:
        UsageError: only others wait for an answer.
    """
    known = [one for one in asked if not {one.id, one.command}.isdisjoint(seen)]
    others = {QuestionKind.Paused, QuestionKind.Budget}.intersection(one.kind for one in asked)
    if others and not known:
        raise UsageError(
            f"what was paused in {node!r} is resumed already, and something else waits there: look"
            " at it, and resume it again"
        )
    return known
