"""Finds the JSON text of an agent's typed result in a response, while it arrives."""

from collections.abc import Mapping

from treefold.core.arriving import OutputDelta
from treefold.core.model_events import AttemptFailed, ModelEvent, TextDelta, ToolUseDelta


class PartialOutput:
    """Finds the fragments of the typed result in the events of one response.

    They are the arguments of the call that returns the result, or the text if the model answers
    with JSON instead.

    Args:
        paths: where the result is in the arguments of each function that returns it, by name.
    """

    def __init__(self, paths: Mapping[str, tuple[str, ...]]) -> None:
        self._paths = paths
        self._call: int | None = None  # the index of the call that returns the result
        self._is_text: bool | None = None  # whether the text is JSON; None if nothing was said

    def find(self, event: ModelEvent) -> OutputDelta | None:
        """Return the fragment of the result that *event* has, if any."""
        match event:
            case ToolUseDelta() if (path := self._paths.get(event.name)) is not None:
                is_first, self._call = self._call != event.index, event.index
                return OutputDelta(event.arguments, path, is_first)
            case TextDelta() if self._is_text is not False and self._call is None:
                return self._in_text(event.text)
            case AttemptFailed():
                self._call = self._is_text = None
                return None
            case _:
                return None

    def _in_text(self, text: str) -> OutputDelta | None:
        if self._is_text is None and (begun := text.lstrip()):
            self._is_text = begun[0] in "{["
            return OutputDelta(begun, is_first=True) if self._is_text else None
        return OutputDelta(text) if self._is_text else None
