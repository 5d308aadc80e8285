"""The exceptions of ``treefold.errors``, which draws their tree; others are in ``agent_errors``."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from treefold.core.address import address
from treefold.core.frames import Frame, agent_traceback

PUBLIC_MODULE: Final = "treefold.errors"


class TreefoldError(Exception):
    """Base of every error that treefold raises; the whole tree is drawn in ``treefold.errors``.

    Example:
        >>> from treefold import TreefoldError, Turn
        >>> try:
        ...     Turn("nothing")
        ... except TreefoldError as error:
        ...     print(error)
        no tool is called 'nothing'; import the module that decorates it with @tool first
    """

    __module__ = PUBLIC_MODULE

    def __init_subclass__(cls, **options: Any) -> None:
        """Name the public module in tracebacks, pickles and journals, for our own errors only."""
        super().__init_subclass__(**options)
        if cls.__module__.startswith("treefold."):
            cls.__module__ = PUBLIC_MODULE


class UsageError(TreefoldError, RuntimeError):
    """The program is wrong; the message says what to change.

    Example:
        >>> from treefold import Runtime
        >>> from treefold.errors import UsageError
        >>> try:
        ...     Runtime(budget="much")
        ... except UsageError as error:
        ...     print(type(error).__name__)
        InvalidValueError
    """


class HeldBackError(UsageError):
    """This process cannot run a recorded tree: it lacks a part of what that is bound to.

    Example:
        >>> from treefold.errors import HeldBackError
        >>> str(HeldBackError(3, "guarded by main:approve, which this process does not have"))
        'run 3 is held back: guarded by main:approve, which this process does not have'
    """

    def __init__(self, run: int, why: str) -> None:
        super().__init__(run, why)
        self.run = run
        self.why = why

    def __str__(self) -> str:
        return f"run {self.run} is held back: {self.why}"


class DefinitionError(UsageError, TypeError):
    """A function, hook or schema cannot be made from what was given.

    Example:
        >>> from treefold import CodeFunction
        >>> def greet(name: str) -> str: ...
        >>> CodeFunction(callable=greet)
        Traceback (most recent call last):
            ...
        treefold.errors.DefinitionError: the callable of 'greet' must take a RunContext first: ...
    """


class DuplicateNameError(UsageError, ValueError):
    """The name is taken by something else.

    Example:
        >>> from treefold import Agent, registries
        >>> with registries():
        ...     first = Agent("worker", "Works.", [])
        ...     second = Agent("worker", "Works, too.", [])
        Traceback (most recent call last):
            ...
        treefold.errors.DuplicateNameError: ...
    """


class CallGraphError(UsageError, ValueError):
    """Functions call each other in a way that is not allowed; the message lists every fault.

    Attributes:
        faults: one sentence for each fault, with the path of calls that leads to it.

    Example:
        >>> from treefold import AgentFunction, Runtime
        >>> Runtime([AgentFunction("greet", "Greet.", user_prompt_template="Greet {nam}!")])
        Traceback (most recent call last):
            ...
        treefold.errors.CallGraphError: greet: its prompt has {nam}, which is none of its ...
    """

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        head = "these functions cannot be run:\n- " if len(self.faults) != 1 else ""
        super().__init__(head + "\n- ".join(self.faults))

    def __reduce__(self) -> tuple[Any, ...]:
        return (CallGraphError, (self.faults,))


class UnregisteredError(UsageError, KeyError):
    """Nothing is registered under that name.

    Example:
        >>> from treefold import ToolRegistry
        >>> from treefold.errors import UnregisteredError
        >>> try:
        ...     ToolRegistry.get("nothing")
        ... except UnregisteredError as error:
        ...     print(error)
        no tool is called 'nothing'; import the module that decorates it with @tool first
    """

    def __str__(self) -> str:
        # KeyError.__str__ would return the repr of the message, with quotes.
        return str(self.args[0]) if self.args else ""


class UnregisteredToolError(UnregisteredError):
    """No tool is registered under that name.

    Example:
        >>> from treefold import ToolRegistry
        >>> ToolRegistry.get("nothing")
        Traceback (most recent call last):
            ...
        treefold.errors.UnregisteredToolError: no tool is called 'nothing'; import ...
    """


class UnregisteredAgentError(UnregisteredError):
    """No agent is registered under that name.

    Example:
        >>> from treefold import AgentRegistry
        >>> AgentRegistry.get("nobody")
        Traceback (most recent call last):
            ...
        treefold.errors.UnregisteredAgentError: no agent is called 'nobody'; make it first: ...
    """


class UnregisteredHookError(UnregisteredError):
    """No hook is registered under that name.

    Example:
        >>> from treefold import HookRegistry
        >>> HookRegistry.get("nothing")
        Traceback (most recent call last):
            ...
        treefold.errors.UnregisteredHookError: no hook is called 'nothing'; decorate a ...
    """


class InvalidValueError(UsageError, ValueError):
    """A value cannot be used here.

    Example:
        >>> from treefold import Limits
        >>> Limits(concurrent_requests=0)
        Traceback (most recent call last):
            ...
        treefold.errors.InvalidValueError: concurrent_requests=0 would let no request through
    """


class NoModelError(InvalidValueError):
    """No model was chosen; the message lists the keys and servers found here.

    Example:
        >>> from treefold.errors import NoModelError
        >>> issubclass(NoModelError, ValueError)
        True
    """


class OtherProtocolError(InvalidValueError):
    """A saved conversation is in the protocol of another provider than the model's.

    Attributes:
        dialect: what the model speaks.

    Example:
        >>> from treefold.errors import OtherProtocolError
        >>> issubclass(OtherProtocolError, ValueError)
        True
    """

    def __init__(self, message: str, dialect: str = "") -> None:
        super().__init__(message)
        self.dialect = dialect


class WrongRunMethodError(UsageError):
    """``returning()`` was used on a streaming tool, or ``yielding()`` on a single-value one.

    Example:
        >>> from treefold import Turn, registries, tool
        >>> with registries():
        ...     @tool
        ...     async def greet() -> str: ...
        >>> Turn(greet).yielding()
        Traceback (most recent call last):
            ...
        treefold.errors.WrongRunMethodError: 'greet' returns a single value: use 'await ...
    """


class SafeExecutionError(UsageError):
    """Refused because the turn or agent is running.

    Example:
        >>> import asyncio
        >>> from treefold import Turn, registries, tool
        >>> async def main():
        ...     with registries():
        ...         @tool
        ...         async def again() -> None:
        ...             await turn.returning()
        ...     turn = Turn(again)
        ...     await turn.returning()
        >>> asyncio.run(main())
        Traceback (most recent call last):
            ...
        treefold.errors.SafeExecutionError: <Turn of again> is running already; wait until ...
    """


class CompletionCheckReturnError(UsageError):
    """A completion check returned something other than True or False.

    Example:
        >>> import asyncio
        >>> from treefold import Agent, ToolType, Turn, registries, tool
        >>> async def main():
        ...     with registries():
        ...         @tool(type=ToolType.COMPLETION_CHECK)
        ...         async def done() -> bool:
        ...             return "yes"
        ...         agent = Agent("checker", "Checks", [done])
        ...         await agent.put(Turn(done))
        ...         [value async for turn, value in agent.run()]
        >>> asyncio.run(main())
        Traceback (most recent call last):
            ...
        treefold.errors.CompletionCheckReturnError: completion check 'done' returned 'yes'; ...
    """


class SerializationError(UsageError, TypeError):
    """A value has no JSON form.

    Example:
        >>> from treefold import Turn, registries, tool
        >>> with registries():
        ...     @tool
        ...     async def greet(name: object) -> str: ...
        ...     Turn(greet, kwargs={"name": object()}).to_dict()
        Traceback (most recent call last):
            ...
        treefold.errors.SerializationError: ...
    """


class UnknownNodeError(UnregisteredError):
    """The runtime has no call with that id.

    Example:
        >>> from treefold import attach
        >>> from treefold.stores import MemoryStore
        >>> attach(MemoryStore()).get_view(7)
        Traceback (most recent call last):
            ...
        treefold.errors.UnknownNodeError: ...
    """


class UnknownQuestionError(UnregisteredError):
    """There is no question with that id, or it has been answered.

    Example:
        >>> from treefold import Runtime
        >>> with Runtime() as runtime:
        ...     runtime.answer("1-1", "yes")
        Traceback (most recent call last):
            ...
        treefold.errors.UnknownQuestionError: no question '1-1' waits for an answer ...
    """


class UnknownSessionError(UnregisteredError):
    """No conversation is saved under that name.

    Example:
        >>> from treefold import SessionStore, UnknownSessionError
        >>> with SessionStore(":memory:") as store:
        ...     try:
        ...         store.delete("trip")
        ...     except UnknownSessionError as error:
        ...         print(error)
        there is no session 'trip'; none is saved
    """


class NoParentSessionError(UsageError):
    """A top-level call asked for the bag of its parent.

    Example:
        >>> from treefold import CodeFunction, Runtime, SessionScope
        >>> def look(ctx) -> object:
        ...     return ctx.get_or_put(SessionScope.Parent, "example", "thing", object)
        >>> with Runtime() as runtime:
        ...     runtime.invoke(CodeFunction(callable=look)).result()
        Traceback (most recent call last):
            ...
        treefold.errors.NoParentSessionError: look was called at top level and has ...
    """


class BlockingCallError(UsageError):
    """The call would block the event loop that has to produce its result.

    Example:
        >>> import asyncio
        >>> from treefold import CodeFunction, Runtime
        >>> def look(ctx) -> int: ...
        >>> async def main():
        ...     async with Runtime() as runtime:
        ...         runtime.invoke(CodeFunction(callable=look)).result()
        >>> asyncio.run(main())
        Traceback (most recent call last):
            ...
        treefold.errors.BlockingCallError: ...
    """


class ClosedError(UsageError):
    """The runtime is closed, or the call that wants to make another has ended.

    Example:
        >>> from treefold import CodeFunction, Runtime
        >>> def look(ctx) -> int: ...
        >>> with Runtime() as runtime:
        ...     pass
        >>> runtime.invoke(CodeFunction(callable=look))
        Traceback (most recent call last):
            ...
        treefold.errors.ClosedError: ...
    """


class IllegalTransitionError(UsageError):
    """A node cannot change from its state to the requested one.

    Example:
        >>> from treefold import NodeState
        >>> from treefold.core.states import check_transition
        >>> check_transition(NodeState.Success, NodeState.Running)
        Traceback (most recent call last):
            ...
        treefold.errors.IllegalTransitionError: a node cannot go from success to running; legal: ...
    """


class CallError(TreefoldError):
    """One call failed; its caller may recover.

    Example:
        >>> from treefold import CodeFunction, Runtime
        >>> from treefold.errors import CallError
        >>> def half(ctx, n: int) -> float: ...
        >>> with Runtime() as runtime:
        ...     try:
        ...         runtime.invoke(CodeFunction(callable=half), {"n": "two"}).result()
        ...     except CallError as error:
        ...         print(type(error).__name__)
        InvalidArgumentsError
    """


class InvalidArgumentsError(CallError, ValueError):
    """The arguments are invalid; the message names each one, so that a model can try again.

    Example:
        >>> from treefold import CodeFunction, Runtime
        >>> def half(ctx, n: int) -> float: ...
        >>> with Runtime() as runtime:
        ...     runtime.invoke(CodeFunction(callable=half), {"m": 1}).result()
        Traceback (most recent call last):
            ...
        treefold.errors.InvalidArgumentsError: half: missing argument 'n'; unknown argument 'm'; ...
    """


class CallTimeoutError(CallError, TimeoutError):
    """The call took longer than its timeout.

    Example:
        >>> import asyncio
        >>> from treefold import CodeFunction, Runtime
        >>> async def sleep(ctx) -> None:
        ...     await asyncio.sleep(60)
        >>> with Runtime() as runtime:
        ...     runtime.invoke(CodeFunction(callable=sleep), timeout=0.01).result()
        Traceback (most recent call last):
            ...
        treefold.errors.CallTimeoutError: sleep (run 1): it took longer than 0.01 s
    """


class DependencyError(CallError):
    """The dependencies of a run could not be made, so it did not begin; the cause says why.

    Example:
        >>> from treefold import CodeFunction, Runtime
        >>> def connect():
        ...     raise ConnectionError("refused")
        >>> with Runtime(deps=connect) as runtime:
        ...     runtime.invoke(CodeFunction(callable=lambda ctx: ctx.deps, name="look")).result()
        Traceback (most recent call last):
            ...
        treefold.errors.DependencyError: the dependencies of look (run 1) could not be made: ...
    """


class TurnTimeoutError(CallTimeoutError):
    """The turn took longer than its ``timeout``.

    Example:
        >>> import asyncio
        >>> from treefold import Turn, registries, tool
        >>> with registries():
        ...     @tool
        ...     async def sleep() -> None:
        ...         await asyncio.sleep(60)
        >>> asyncio.run(Turn(sleep, timeout=0.01).returning())
        Traceback (most recent call last):
            ...
        treefold.errors.TurnTimeoutError: the turn of 'sleep' took longer than 0.01 s; ...
    """


class CancellationException(CallError):  # noqa: N818 - the name is part of the documented API
    """The call was cancelled.

    Attributes:
        reason: the reason given when it was cancelled.

    Example:
        >>> str(CancellationException("fetch", "1.2", "no longer needed"))
        'fetch (call 1.2) was cancelled: no longer needed'
    """

    def __init__(self, function: str, path: str, reason: str) -> None:
        super().__init__(f"{function} ({address(path)}) was cancelled: {reason}")
        self.function = function
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return (CancellationException, (self.function, self.path, self.reason))


class QuestionExpiredError(CallError, TimeoutError):
    """A question had no answer in time, and no default.

    Example:
        >>> from treefold import CodeFunction, Runtime
        >>> from treefold.errors import QuestionExpiredError
        >>> async def deploy(ctx) -> str:
        ...     return await ctx.ask("Deploy?", ["yes", "no"], expires=0.01)
        >>> with Runtime() as runtime:
        ...     try:
        ...         runtime.invoke(CodeFunction(callable=deploy)).result()
        ...     except QuestionExpiredError as error:
        ...         print(error)
        nobody answered 'Deploy?' in time; give a default=, or a later expires=
    """


class InDoubtError(CallError):
    """It is not known whether a call was done: its process ended, and a person chose 'fail'.

    Example:
        >>> from treefold import InDoubtError
        >>> raise InDoubtError("pay had begun when its process ended")
        Traceback (most recent call last):
        ...
        treefold.errors.InDoubtError: pay had begun when its process ended
    """


class TooLargeError(CallError, ValueError):
    """An argument, text or result of a call is larger than the store of the journal accepts.

    Example:
        >>> from treefold import TooLargeError
        >>> raise TooLargeError("the result takes 2,000,000,000 bytes")
        Traceback (most recent call last):
        ...
        treefold.errors.TooLargeError: the result takes 2,000,000,000 bytes
    """


class RecordedError(CallError):
    """Stands for an exception of an earlier process that cannot be restored.

    Attributes:
        type: the name of the exception's class.
        message: its message.

    Example:
        >>> from treefold import RecordedError
        >>> print(RecordedError("HTTPError", "404 Not Found"))
        HTTPError: 404 Not Found
    """

    def __init__(self, type: str, message: str) -> None:
        super().__init__(type, message)
        self.type = type
        self.message = message

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class StoreError(TreefoldError):
    """A store could not be read or written; nothing was written partially.

    Attributes:
        path: the file of the store.

    Example:
        >>> from treefold import SessionStore, StoreError
        >>> try:
        ...     SessionStore("/nowhere/chats.db").list()
        ... except StoreError as error:
        ...     print(error.path)
        /nowhere/chats.db
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: {self.args[1]}"


class SessionConflictError(StoreError):
    """Another client has continued the session, so this client no longer knows its end.

    Attributes:
        session: the name of the session.

    Example:
        >>> from treefold import SessionConflictError
        >>> print(SessionConflictError("chats.db", "trip"))
        chats.db: somebody else went on with the session 'trip'; open it again, or fork it ...
    """

    def __init__(self, path: str, session: str) -> None:
        super().__init__(
            path,
            f"somebody else went on with the session {session!r}; open it again, or fork it "
            "to go on beside it",
        )
        self.session = session

    def __reduce__(self) -> tuple[Any, ...]:
        return (SessionConflictError, (self.path, self.session))


class StoreBusyError(StoreError):
    """Another program has locked the file; the same call may succeed shortly afterwards.

    Example:
        >>> from treefold import StoreBusyError
        >>> print(StoreBusyError("run.db", "another program has had it locked for too long"))
        run.db: another program has had it locked for too long
    """


class StoreDamagedError(StoreError):
    """What a store has kept is not what was written there: restore a copy.

    Example:
        >>> from treefold.errors import StoreDamagedError
        >>> print(StoreDamagedError("run.db", "node:3 cannot be read: an entry is missing"))
        run.db: node:3 cannot be read: an entry is missing
    """


class StoreOwnedError(StoreError):
    """Another runtime owns the store; only one may, so that nothing runs twice.

    Other processes may read it, and answer questions, with ``attach``.

    Example:
        >>> from treefold import Runtime, StoreOwnedError
        >>> from treefold.stores import MemoryStore
        >>> store = MemoryStore()
        >>> with Runtime(store=store):
        ...     try:
        ...         Runtime(store=store)
        ...     except StoreOwnedError as error:
        ...         print(error)
        memory: it is owned by another runtime...
    """


class FencedError(StoreError):
    """Another runtime has written to the store that this one owns, so this one must stop.

    Example:
        >>> from treefold import FencedError
        >>> print(FencedError("run.db", "node:3 already has an entry 7"))
        run.db: node:3 already has an entry 7
    """


class EngineError(TreefoldError):
    """A work engine cannot be reached or used; what is owed is in the store, so nothing is lost.

    Attributes:
        engine: the name of the engine, and where it is.

    Example:
        >>> from treefold.errors import EngineError
        >>> print(EngineError("Temporal at localhost:7233", "it does not answer"))
        Temporal at localhost:7233: it does not answer
    """

    def __init__(self, engine: str, message: str) -> None:
        super().__init__(engine, message)
        self.engine = engine

    def __str__(self) -> str:
        return f"{self.engine}: {self.args[1]}"


class TracedError(TreefoldError):
    """An error that knows the call it is about; printing it shows an agent traceback.

    Attributes:
        message: what happened, without the traceback.
        agent: the name of the function, which is an agent unless code raised the error.
        node_id: the id of its node.
        path: the path of that node in its tree.
        frames: the calls that led there, the top-level one first.
        remedy: how to go on, if that is known.

    Example:
        >>> from treefold import Frame
        >>> from treefold.errors import TracedError
        >>> error = TracedError("it failed")
        >>> error.locate([Frame(function="find_bug", kind="agent", node_id=1, path="1")])
        >>> error.path
        '1'
    """

    agent: str = ""
    node_id: int | None = None
    path: str = ""
    frames: tuple[Frame, ...] = ()
    remedy: str = ""

    @property
    def message(self) -> str:
        return str(self.args[0]) if self.args else ""

    def locate(self, frames: Sequence[Frame]) -> None:
        """Set the calls that led here, unless that was done before, closer to the origin."""
        if frames and self.node_id is None:
            self.frames = tuple(frames)
            last = self.frames[-1]
            self.agent, self.node_id, self.path = last.function, last.node_id, last.path

    def __str__(self) -> str:
        text = f"{self.message}; {self.remedy}" if self.remedy else self.message
        return "\n".join([text, agent_traceback(self.frames)][: 1 + bool(self.frames)])

    def __reduce__(self) -> tuple[Any, ...]:
        return (restored, (type(self), self.args, vars(self) | {"inner": None}))


def restored(kind: type[TracedError], args: tuple[Any, ...], fields: Mapping[str, Any]) -> Any:
    """Return an error of *kind* with the pickled *args* and *fields*."""
    found = kind.__new__(kind)
    found.args = args
    vars(found).update(fields)
    return found


class RecursionDepthError(CallError, RecursionError):
    """A function that may call itself exceeded its ``max_depth``.

    Example:
        >>> from treefold import CodeFunction, Runtime
        >>> async def down(ctx) -> int:
        ...     return await ctx.invoke(deeper)
        >>> deeper = CodeFunction(callable=down, uses_recursion=True, max_depth=3)
        >>> with Runtime() as runtime:
        ...     runtime.invoke(deeper).result()
        Traceback (most recent call last):
            ...
        treefold.errors.RecursionDepthError: ...
    """


class ModelRefusedError(CallError):
    """The model, or a filter of its provider, refused to answer; asking again seldom helps.

    Attributes:
        model: the name of the model.
        reason: the provider's own word for it.
        text: what the model had said by then; it is not in the history.

    Example:
        >>> from treefold import ModelRefusedError
        >>> str(ModelRefusedError("gemini-2.5-pro", "SAFETY"))
        'gemini-2.5-pro would not answer this (SAFETY); change what was asked, or ask another model'
    """

    def __init__(self, model: str, reason: str, text: str = "") -> None:
        super().__init__(
            f"{model} would not answer this ({reason}); change what was asked, or ask another model"
        )
        self.model = model
        self.reason = reason
        self.text = text

    def __reduce__(self) -> tuple[Any, ...]:
        return (ModelRefusedError, (self.model, self.reason, self.text))


class ModelProviderException(TracedError):  # noqa: N818 - the name is part of the documented API
    """A model's provider failed, after retries where those help; the agent is not at fault.

    If the provider's SDK has an exception for the failure, this is an instance of its class, too:
    ``except openai.RateLimitError`` catches it, and ``status_code``, ``response``, ``request`` and
    ``body`` are those of the SDK.

    Attributes:
        provider: the name of the class that talks to the provider.
        model: the name of the model.
        status: the HTTP status, if there was one.
        attempts: how often the request was sent.
        is_too_long: whether the request did not fit into the context window of the model.
        context_window: the window in tokens that the provider stated then, if it did.
        inner: the exception of the provider's SDK, or of the connection, if there is one.
        agent, node_id, path, frames: the call that made the request, if it was an agent's.

    Example:
        >>> from treefold import ModelProviderException
        >>> str(ModelProviderException("OpenAIModel", "qwen3", "the server is down", attempts=5))
        'qwen3 (OpenAIModel) failed after 5 attempts: the server is down'
    """

    # Also of one that was recorded.
    is_too_long = False
    context_window: int | None = None

    def __init__(
        self,
        provider: str,
        model: str,
        message: str,
        *,
        status: int | None = None,
        attempts: int = 1,
        inner: BaseException | None = None,
        is_too_long: bool = False,
        context_window: int | None = None,
    ) -> None:
        tried = f" after {attempts} attempts" if attempts > 1 else ""
        # super() would be the SDK's exception in a combined class, and that needs a response.
        Exception.__init__(self, f"{model} ({provider}) failed{tried}: {message}")
        self.provider = provider
        self.model = model
        self.status = status
        self.attempts = attempts
        self.is_too_long = is_too_long
        self.context_window = context_window
        self.inner = inner
