"""What somebody wants to have called."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from treefold.core.budget import Budget
from treefold.core.decisions import Rules
from treefold.core.function import Function, Node


@dataclass(slots=True)
class CallRequest:
    """A function, the arguments for it, and how to call it."""

    function: Function
    args: Mapping[str, Any]
    timeout: float | None = None
    tied_with: Node | None = None
    checked: bool = False  # the arguments are to be passed on as they are
    sink: Callable[[Any], Awaitable[None]] | None = None  # takes the values that the call sends
    model: Any = None  # for this call only
    budget: Budget | None = None
    tool_use_id: str | None = None  # the model's own name for the call
    gate: Callable[[Any], Awaitable[Mapping[str, Any]]] | None = None  # may it run, and with what?
    rules: Rules | None = None  # for the models in the call and below it, beside those above
    past: Any = None  # the conversation that an agent goes on with
    key: str | None = None  # what its caller calls it by
    call_key: str = ""  # what tells it from the other calls of its parent, if that is written down


class Concluded(Exception):  # noqa: N818 - no fault: whoever was asked knows the value already
    """Raised by a gate if the call is not to be made because its value is known."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.value = value
