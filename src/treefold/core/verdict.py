"""``Verdict``: the gate of a call that is denied, or that a person has to approve."""

from collections.abc import Mapping
from copy import deepcopy
from inspect import isawaitable
from typing import Any

from treefold.core.agent_errors import DeniedError
from treefold.core.errors import InvalidArgumentsError
from treefold.core.fact import Fact
from treefold.core.frames import short_arguments
from treefold.core.function import Function, RunContext
from treefold.core.question import ALLOW, DENY, QuestionKind


class Verdict(Fact, frozen=True):
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

    The option ``ask`` of the function decides. If it is code, it gets the arguments as the function
    will get them, and a person is asked if it fails. With invalid arguments no person is asked:
    the call fails before its function runs.
    """
    asks: object = function.ask
    if callable(asks):
        try:
            valid = function.parameters.validate(deepcopy(dict(args)))
        except InvalidArgumentsError:
            return None
        try:
            asks = asks({**_defaults(function), **valid})
            asks = await asks if isawaitable(asks) else asks
        except Exception as error:  # noqa: BLE001 - foreign code; the text says what happened
            asks = f"ask= of {function.name} raised {type(error).__name__}: {error}"
    if not asks:
        return None
    if isinstance(asks, str):
        return asks
    return f"may {function.name}({short_arguments(args)}) be called?"


def _defaults(function: Function) -> dict[str, Any]:
    items = function.parameters.items
    return {one.name: deepcopy(one.default) for one in items if not one.required}
