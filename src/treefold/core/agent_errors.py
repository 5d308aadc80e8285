"""Errors of calls that talk to a model; the whole tree is drawn in ``treefold.errors``."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from treefold.core.errors import CallError, TracedError


class AgentException(CallError, TracedError):  # noqa: N818 - the name is part of the documented API
    """An agent gave up by calling ``raise_exception``; the message is the reason that it gave.

    An agent that called it sees a failed tool call; code sees an ordinary exception.

    Example:
        >>> from treefold import AgentException
        >>> AgentException("the log file is empty").message
        'the log file is empty'
    """


class DeniedError(CallError):
    """A rule, a hook or a person denied the call.

    Example:
        >>> from treefold import DeniedError
        >>> str(DeniedError("bash", "not on a Sunday"))
        'bash was not allowed: not on a Sunday'
    """

    def __init__(self, function: str, reason: str) -> None:
        super().__init__(f"{function} was not allowed: {reason}")
        self.function = function
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return (DeniedError, (self.function, self.reason))


class BlockedError(CallError, RuntimeError):
    """A hook, a rule or a person denied a prompt, or a call that the program wanted to make.

    Attributes:
        what: "Prompt" or "Tool use".
        reason: why it was denied.

    Example:
        >>> from treefold import BlockedError
        >>> str(BlockedError("Prompt", "no deleting"))
        'Prompt blocked: no deleting'
    """

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what} blocked: {reason}")
        self.what = what
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return (BlockedError, (self.what, self.reason))


class StepLimitError(CallError):
    """An agent made ``max_steps`` requests without giving an answer.

    Example:
        >>> from treefold import CodeFunction, Runtime, StepLimitError, ToolUse, agent
        >>> from treefold.testing import ScriptedModel
        >>> look = CodeFunction(name="look", callable=lambda ctx: "nothing")
        >>> @agent(uses=[look], max_steps=3)
        ... def find() -> str:
        ...     return "Look until you find it."
        >>> with Runtime(models=ScriptedModel(lambda request: ToolUse("1", "look"))) as runtime:
        ...     try:
        ...         runtime.invoke(find).result()
        ...     except StepLimitError as error:
        ...         print(error)
        find made 3 requests without giving an answer: give it a smaller task, or a greater ...
    """


class BudgetExceeded(CallError):  # noqa: N818 - the name is part of the documented API
    """The next request would exceed a budget, or the seconds of the budget have passed.

    Attributes:
        limit: the limit that was exceeded, in words.
        node: the call that the budget belongs to, with everything that it did; the top-level call
            if the budget is the runtime's.
        owner: the function and node that the budget belongs to, in words.
        last_call: whether one more request is allowed, without functions.

    Example:
        >>> from treefold import BudgetExceeded
        >>> str(BudgetExceeded("60 s are over", owner="fix_bug (run 1)"))
        'the budget of fix_bug (run 1) is exceeded: 60 s are over; give more, or a smaller task'
    """

    last_call: bool = False
    account: Any = None  # for the runtime: what it did not fit into

    def __init__(
        self,
        limit: str,
        node: Any = None,
        owner: str = "this call",
        *,
        last_call: bool = False,
        remedy: str = "give more, or a smaller task",
    ) -> None:
        super().__init__(f"the budget of {owner} is exceeded: {limit}; {remedy}")
        self.limit = limit
        self.node = node
        self.owner = owner
        self.last_call = last_call
        self._remedy = remedy

    def __reduce__(self) -> tuple[Any, ...]:
        again = partial(BudgetExceeded, last_call=self.last_call, remedy=self._remedy)
        return (again, (self.limit, None, self.owner))


class UnknownPriceError(CallError):
    """A budget in dollars cannot be enforced, because the price of the model is not known.

    Example:
        >>> from treefold import Budget, Runtime, agent
        >>> from treefold.testing import ScriptedModel
        >>> @agent
        ... def greet() -> str:
        ...     return "Greet."
        >>> with Runtime(models=ScriptedModel("Hi."), budget=Budget(usd=1)) as runtime:
        ...     runtime.invoke(greet).result()
        Traceback (most recent call last):
            ...
        treefold.errors.UnknownPriceError: ...
    """


class NoAnswerError(CallError):
    """A model stopped without a usable answer.

    Attributes:
        text: the last text of the model.

    Example:
        >>> from treefold import NoAnswerError
        >>> NoAnswerError("the answer was cut off", "It is 4").text
        'It is 4'
    """

    def __init__(self, message: str, text: str = "") -> None:
        super().__init__(message)
        self.text = text


class EnsembleError(CallError):
    """Too many members of an ensemble failed, or no model could reconcile the candidates.

    Attributes:
        candidates: the answers of the members that succeeded; they have been paid for.
        failures: the exceptions of the other members.

    Example:
        >>> from treefold import EnsembleError
        >>> EnsembleError("no model could choose", ["4", "5"]).candidates
        ('4', '5')
    """

    def __init__(
        self,
        message: str,
        candidates: Sequence[Any] = (),
        failures: Sequence[BaseException] = (),
    ) -> None:
        super().__init__(message)
        self.candidates = tuple(candidates)
        self.failures = tuple(failures)
