"""``Divergence``: the first difference between a replay and its recording, with a diff."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any, Final

from treefold.core.address import address
from treefold.core.events import Failure
from treefold.core.jsonable import as_json
from treefold.core.transcript import ToolResult, TranscriptPart, UserText
from treefold.core.truncation import truncated_repr

_LONGEST: Final = 100_000  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Where a replay diverged from its recording.

    Attributes:
        path: the path of the call in its tree, as recorded.
        function: the function that was called.
        what: what differs, in words.
        expected: the recorded text; empty if nothing was recorded.
        actual: the text of the replay; empty if there is none any more.

    Example:
        >>> from treefold.testing import Divergence
        >>> divergence = Divergence(
        ...     path="1.2", function="add", what="a call that was not made before",
        ...     expected="", actual="add",
        ... )
        >>> print(divergence)
        a call that was not made before: add (call 1.2)
        --- recorded: add (call 1.2)
        +++ now: add (call 1.2)
        @@ -0,0 +1 @@
        +add
    """

    path: str
    function: str
    what: str
    expected: str
    actual: str

    @property
    def diff(self) -> str:
        """The difference as a unified diff."""
        name = f"{self.function} ({address(self.path)})"
        lines = unified_diff(
            self.expected.splitlines(),
            self.actual.splitlines(),
            f"recorded: {name}",
            f"now: {name}",
            lineterm="",
        )
        return "\n".join(lines)

    def __str__(self) -> str:
        return f"{self.what}: {self.function} ({address(self.path)})\n{self.diff}"


def value_text(value: Any) -> str:
    """Return *value* as people read it: text unchanged, other values as JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(as_json(value), indent=2, ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError):
        return truncated_repr(value, _LONGEST)


def call_text(function: str, args: Mapping[str, Any]) -> str:
    """Return a call as text: its function, and each argument on lines of its own."""
    lines = [f"{name}={value_text(value)}" for name, value in sorted(args.items())]
    return "\n".join([function, *lines])


def inputs_text(inputs: Iterable[TranscriptPart]) -> str:
    """Return the inputs of a request as text."""
    return "\n".join(_part_text(part) for part in inputs)


def _part_text(part: TranscriptPart) -> str:
    match part:
        case UserText():
            return part.text
        case ToolResult():
            kind = "an error" if part.is_error else "a result"
            return f"[{kind} of call {part.tool_use_id}]\n{part.content}"
        case _:
            return repr(part)


def outcome_text(value: Any, failure: Failure | None) -> str:
    """Return the result or exception of a call as text."""
    return value_text(value) if failure is None else f"raised {failure}"


def distinct_texts(expected: str, actual: str, values: tuple[Any, Any]) -> tuple[str, str]:
    """Return both texts, or the reprs of the *values* if the texts are the same."""
    if expected != actual:
        return expected, actual
    return truncated_repr(values[0], _LONGEST), truncated_repr(values[1], _LONGEST)
