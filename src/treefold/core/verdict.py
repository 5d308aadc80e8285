"""``Verdict``: the gate of a call that is denied, or that a person has to approve."""

from collections.abc import Mapping
from copy import deepcopy
from inspect import isawaitable
from typing import Any

from treefold.core.agent_errors import DeniedError
from treefold.core.errors import InvalidArgumentsError
from treefold.core.frames import short_arguments
from treefold.core.function import Function, RunContext
from treefold.core.lazy_dataclass import lazy_dataclass
from treefold.core.question import ALLOW, DENY, QuestionKind


@lazy_dataclass(frozen=True)
class Verdict:
    """A gate that denies the call, or asks a person to approve it."""

    name: str
    refusal: str | None
    question: str = ""

    async def __call__(self, ctx: RunContext) -> Mapping[str, Any]:
        """Return the arguments to make the call with.

        Raises:
            DeniedError: the call was denied.
        """
        if self.refusal is not None:
            raise DeniedError(self.name, self.refusal)
        answer = await ctx.ask_person(QuestionKind.Approval, self.question, (ALLOW, DENY))
        if answer.text == DENY:
            raise DeniedError(self.name, answer.reason or "a person said no")
        return ctx.node.inputs if answer.args is None else answer.args


async def approval_question(function: Function, args: Mapping[str, Any]) -> str | None:
    """Return what a person is asked before a model's call of *function*; None: nothing.

    The option ``ask`` of the function decides. If it is code that fails, a person is asked: the
    arguments are what a model wrote, and odd ones must not get a call through. Invalid ones need
    nobody: the call fails before its function runs.
    """
    asks: object = function.ask
    if callable(asks):
        try:
            asks = asks(deepcopy(dict(args)))
            asks = await asks if isawaitable(asks) else asks
        except Exception as error:  # noqa: BLE001 - foreign code; the text says what happened
            if not _are_valid(args, function):
                return None
            asks = f"ask= of {function.name} raised {type(error).__name__}: {error}"
    if not asks:
        return None
    if isinstance(asks, str):
        return asks
    return f"may {function.name}({short_arguments(args)}) be called?"


def _are_valid(args: Mapping[str, Any], function: Function) -> bool:
    try:
        function.parameters.validate(args)
    except InvalidArgumentsError:
        return False
    return True
