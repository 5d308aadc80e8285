"""The request for a call: a function, its arguments, and the options of the call."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from treefold.core.budget import Budget
from treefold.core.decisions import Rules
from treefold.core.function import Function, Node


@dataclass(slots=True)
class CallRequest:
    """A function, its arguments, and the options of the call."""

    function: Function
    args: Mapping[str, Any]
    timeout: float | None = None
    tied_with: Node | None = None
    checked: bool = False  # the arguments are passed on without validation
    sink: Callable[[Any], Awaitable[None]] | None = None  # receives the values that the call sends
    model: Any = None  # for this call only
    budget: Budget | None = None
    tool_use_id: str | None = None  # the model's own id of the call
    # Awaited before the call runs; returns the arguments to run it with, or raises.
    gate: Callable[[Any], Awaitable[Mapping[str, Any]]] | None = None
    rules: Rules | None = None  # for models in the call and below it, in addition to those above
    past: Any = None  # the conversation that an agent continues
    key: str | None = None  # given by the caller
    continues: int | None = None  # the recorded call that it repeats
    call_key: str = ""  # identifies the call among those of its parent, if there is a journal


class Concluded(Exception):  # noqa: N818 - not an error: it carries the value of the call
    """Raised by a gate when the call need not run because its value is known."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.value = value
