"""Everything that can go wrong, as one tree; the first branch says whose fault it was.

TreefoldError
├── UsageError                    the program is wrong: change the code (RuntimeError)
│   ├── DefinitionError           a function cannot be made from this (TypeError)
│   ├── DuplicateNameError        the name is taken (ValueError)
│   ├── CallGraphError            functions call what they may not (ValueError)
│   ├── UnregisteredError         no such name or id (KeyError)
│   │   ├── UnregisteredToolError
│   │   ├── UnregisteredAgentError
│   │   ├── UnregisteredHookError
│   │   ├── UnknownNodeError
│   │   ├── UnknownQuestionError
│   │   └── UnknownSessionError
│   ├── InvalidValueError         this cannot be used here (ValueError)
│   │   └── OtherProtocolError    a saved conversation is in another provider's words
│   ├── WrongRunMethodError       returning() on a stream, or yielding() on a single value
│   ├── SafeExecutionError        not while it is running
│   ├── CompletionCheckReturnError
│   ├── SerializationError        this has no JSON form (TypeError)
│   ├── NoParentSessionError      a top-level call has no parent bag
│   ├── BlockingCallError         this would block the loop it waits for
│   ├── ClosedError               the runtime, or the caller, has ended
│   ├── WeightsUnavailableError   a local model cannot be fetched (in treefold.models.local)
│   └── IllegalTransitionError
├── CallError                     one call went wrong: its caller decides
│   ├── InvalidArgumentsError     the arguments do not fit (ValueError)
│   ├── CallTimeoutError          it took too long (TimeoutError)
│   │   └── TurnTimeoutError
│   ├── McpToolError              a tool of an MCP server failed (in treefold.mcp)
│   ├── McpConnectionError        an MCP server is gone, or was never there (in treefold.mcp)
│   ├── FileError                 a file is not as the call needs (in treefold.toolbox, ValueError)
│   ├── CancellationException     somebody cancelled it
│   ├── RecursionDepthError       a function called itself too often (RecursionError)
│   ├── InDoubtError              nobody knows whether it was done, and a person said so
│   ├── TooLargeError             a value of it does not fit into the journal (ValueError)
│   ├── RecordedError             what it raised in an earlier process, if that cannot be made again
│   ├── AgentException            an agent decided to give up (in core.agent_errors, with the rest)
│   ├── DeniedError               a rule or a person forbade it
│   ├── BlockedError              a rule or a person forbade it, in a chat (RuntimeError)
│   ├── BudgetExceeded            what may be spent is spent
│   ├── UnknownPriceError         a budget in dollars cannot be kept
│   ├── StepLimitError            an agent made too many requests
│   ├── NoAnswerError             a model said nothing that counts as an answer
│   ├── EnsembleError             too few candidates, or nobody to choose among them
│   └── ModelRefusedError         the model would not answer this
├── StoreError                    a file of ours cannot be read or written: see to the disk
│   ├── SessionConflictError      somebody else went on with the session
│   ├── StoreBusyError            another program has locked the file
│   ├── StoreOwnedError           another runtime owns it
│   └── FencedError               another runtime has written to it
└── TracedError                   with an agent traceback; AgentException is one, too
    └── ModelProviderException    a model's provider failed: nothing the agent did

An exception that a function raises itself is passed on as it is.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from treefold.core.frames import Frame, agent_traceback


class TreefoldError(Exception):
    """Base of every error that treefold raises; the whole tree is in ``treefold.core.errors``.

    Example:
        >>> from treefold import TreefoldError, Turn
        >>> try:
        ...     Turn("nothing")
        ... except TreefoldError as error:
        ...     print(error)
        no tool is called 'nothing'; import the module that decorates it with @tool first
    """


class UsageError(TreefoldError, RuntimeError):
    """The program is wrong; the message says what to change."""


class DefinitionError(UsageError, TypeError):
    """A function, hook or schema cannot be made from what was given."""


class DuplicateNameError(UsageError, ValueError):
    """The name is taken by something else."""


class CallGraphError(UsageError, ValueError):
    """Functions call each other in a way that is not allowed; every fault is listed.

    Attributes:
        faults: one sentence each, with the path of calls that leads to it.

    Example:
        >>> from treefold import AgentFunction, Runtime
        >>> Runtime([AgentFunction("greet", "Greet.", user_prompt_template="Greet {nam}!")])
        Traceback (most recent call last):
            ...
        treefold.core.errors.CallGraphError: greet: its prompt has {nam}, which is none of its ...
    """

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        head = "these functions cannot be run:\n- " if len(self.faults) != 1 else ""
        super().__init__(head + "\n- ".join(self.faults))

    def __reduce__(self) -> tuple[Any, ...]:
        return (CallGraphError, (self.faults,))


class UnregisteredError(UsageError, KeyError):
    """Nothing is registered under that name."""

    def __str__(self) -> str:
        # KeyError would show the repr of the message, quotes and all.
        return str(self.args[0]) if self.args else ""


class UnregisteredToolError(UnregisteredError):
    """No tool is registered under that name.

    Example:
        >>> from treefold import ToolRegistry
        >>> ToolRegistry.get("nothing")
        Traceback (most recent call last):
            ...
        treefold.core.errors.UnregisteredToolError: no tool is called 'nothing'; import ...
    """


class UnregisteredAgentError(UnregisteredError):
    """No agent is registered under that name.

    Example:
        >>> from treefold import AgentRegistry
        >>> AgentRegistry.get("nobody")
        Traceback (most recent call last):
            ...
        treefold.core.errors.UnregisteredAgentError: no agent is called 'nobody'; make it first: ...
    """


class UnregisteredHookError(UnregisteredError):
    """No hook is registered under that name.

    Example:
        >>> from treefold import HookRegistry
        >>> HookRegistry.get("nothing")
        Traceback (most recent call last):
            ...
        treefold.core.errors.UnregisteredHookError: no hook is called 'nothing'; decorate a ...
    """


class InvalidValueError(UsageError, ValueError):
    """What was given cannot be used here."""


class OtherProtocolError(InvalidValueError):
    """A saved conversation is in the words of another provider than the model's."""


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
        treefold.core.errors.WrongRunMethodError: 'greet' returns a single value: use 'await ...
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
        treefold.core.errors.SafeExecutionError: <Turn of again> is running already; wait until ...
    """


class CompletionCheckReturnError(UsageError):
    """A completion check gave something other than True or False.

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
        treefold.core.errors.CompletionCheckReturnError: completion check 'done' returned 'yes'; ...
    """


class SerializationError(UsageError, TypeError):
    """Something has no JSON form."""


class UnknownNodeError(UnregisteredError):
    """The runtime knows no call with that id."""


class UnknownQuestionError(UnregisteredError):
    """There is no such question, or it has been answered."""


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
        treefold.core.errors.NoParentSessionError: look was called at top level and has ...
    """


class BlockingCallError(UsageError):
    """The call would block the very loop that has to bring the answer."""


class ClosedError(UsageError):
    """The runtime, or the call that wants to make another, has ended."""


class IllegalTransitionError(UsageError):
    """A node cannot go from the one state to the other."""


class CallError(TreefoldError):
    """One call went wrong; its caller may recover."""


class InvalidArgumentsError(CallError, ValueError):
    """The arguments do not fit; the message names each one, so that a model can try again."""


class CallTimeoutError(CallError, TimeoutError):
    """The call took longer than it was given."""


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
        treefold.core.errors.TurnTimeoutError: the turn of 'sleep' took longer than 0.01 s; ...
    """


class CancellationException(CallError):  # noqa: N818 - the name is part of the documented API
    """Somebody cancelled the call.

    Attributes:
        reason: what was said when it was cancelled.

    Example:
        >>> str(CancellationException("fetch", "1.2", "no longer needed"))
        'fetch (node 1.2) was cancelled: no longer needed'
    """

    def __init__(self, function: str, path: str, reason: str) -> None:
        super().__init__(f"{function} (node {path}) was cancelled: {reason}")
        self.function = function
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return (CancellationException, (self.function, self.path, self.reason))


class InDoubtError(CallError):
    """Nobody knows whether a call was done: its process ended meanwhile, and a person said 'fail'.

    Example:
        >>> from treefold import InDoubtError
        >>> raise InDoubtError("pay had begun when its process ended")
        Traceback (most recent call last):
        ...
        treefold.core.errors.InDoubtError: pay had begun when its process ended
    """


class TooLargeError(CallError, ValueError):
    """What a call was given, said or returned is larger than the store of the journal accepts.

    Example:
        >>> from treefold import TooLargeError
        >>> raise TooLargeError("the result takes 2,000,000,000 bytes")
        Traceback (most recent call last):
        ...
        treefold.core.errors.TooLargeError: the result takes 2,000,000,000 bytes
    """


class RecordedError(CallError):
    """What a call raised in an earlier process, if the exception itself cannot be made again.

    Attributes:
        type: the name of the exception's class.
        message: what it said.

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
    """What is saved could not be read or written; nothing was saved by half.

    Attributes:
        path: the file.

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
    """Somebody else went on with the session, so this client does not know its end any more.

    Attributes:
        session: its name.

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
    """Another program has locked the file; the same call may succeed a moment later.

    Example:
        >>> from treefold import StoreBusyError
        >>> print(StoreBusyError("run.db", "another program has had it locked for too long"))
        run.db: another program has had it locked for too long
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
        >>> print(FencedError("run.db", "node 3 already has an entry 7"))
        run.db: node 3 already has an entry 7
    """


class TracedError(TreefoldError):
    """An error that knows which agent it is about; printing it gives an agent traceback.

    Attributes:
        message: what happened, without the traceback.
        agent: the name of the function, which is an agent unless code raised it.
        node_id: its node.
        path: the place of that node in its tree.
        frames: the calls that led there, the top-level one first.
    """

    agent: str = ""
    node_id: int | None = None
    path: str = ""
    frames: tuple[Frame, ...] = ()

    @property
    def message(self) -> str:
        return str(self.args[0]) if self.args else ""

    def locate(self, frames: Sequence[Frame]) -> None:
        """Say which calls led here; the first who says it knows best."""
        if frames and self.node_id is None:
            self.frames = tuple(frames)
            last = self.frames[-1]
            self.agent, self.node_id, self.path = last.function, last.node_id, last.path

    def __str__(self) -> str:
        return "\n".join([self.message, agent_traceback(self.frames)][: 1 + bool(self.frames)])

    def __reduce__(self) -> tuple[Any, ...]:
        return (restored, (type(self), self.args, vars(self) | {"inner": None}))


def restored(kind: type[TracedError], args: tuple[Any, ...], fields: Mapping[str, Any]) -> Any:
    """Return an error of *kind* from what was pickled of it."""
    found = kind.__new__(kind)
    found.args = args
    vars(found).update(fields)
    return found


class RecursionDepthError(CallError, RecursionError):
    """A function that may call itself did so more often than its ``max_depth``."""


class ModelRefusedError(CallError):
    """The model, or a filter of its provider, would not answer; asking again seldom helps.

    Attributes:
        reason: the provider's own word for it.
        text: what had been said by then; it is not in the history.

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
    """A model's provider failed, after such retries as help; the agent has nothing to do with it.

    If the provider's SDK has an exception for the failure, this is an instance of its class, too:
    ``except openai.RateLimitError`` catches it, and ``status_code``, ``response``, ``request`` and
    ``body`` are as the SDK has them.

    Attributes:
        provider: the name of the class that talks to the provider.
        model: the name of the model.
        status: the HTTP status, if there was one.
        attempts: how often it was tried.
        inner: the exception of the provider's SDK, or of the connection, if there is one.
        agent, node_id, path, frames: whose request it was, if it was an agent's.

    Example:
        >>> from treefold import ModelProviderException
        >>> str(ModelProviderException("OpenAIModel", "qwen3", "the server is down", attempts=5))
        'qwen3 (OpenAIModel) failed after 5 attempts: the server is down'
    """

    def __init__(
        self,
        provider: str,
        model: str,
        message: str,
        *,
        status: int | None = None,
        attempts: int = 1,
        inner: BaseException | None = None,
    ) -> None:
        tried = f" after {attempts} attempts" if attempts > 1 else ""
        # Not super(): in a combined class that is the SDK's exception, which needs a response.
        Exception.__init__(self, f"{model} ({provider}) failed{tried}: {message}")
        self.provider = provider
        self.model = model
        self.status = status
        self.attempts = attempts
        self.inner = inner
