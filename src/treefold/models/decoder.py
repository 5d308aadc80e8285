"""What every provider's decoder looks like: bytes in, events out, and at the end a response.

Decoders are pure: no sockets, no clocks. Whoever feeds them decides what a fault means.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

from treefold.core.exchange import Finish
from treefold.core.model_events import ModelEvent, Noticed
from treefold.core.usage import TokenUsage
from treefold.models.sse import BrokenStreamError, JsonEvents

UNUSABLE: Final = "__not_json__"  # under this key goes what a model wrote instead of arguments
_MOST_TOKENS: Final = 2**53  # more is nonsense, and sums of it could not be written down
UNNAMED: Final = "unnamed"  # so is called what a model called without a name


class StreamFailedError(Exception):
    """The provider reported an error in the middle of a stream."""

    def __init__(self, kind: str, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status


class RefusedError(Exception):
    """The provider reported that there will be no answer to this."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.text = text


@dataclass(frozen=True, slots=True)
class Response:
    """A complete response: its message, if there is anything to keep, as JSON text."""

    message: str | None
    finish: Finish
    reason: str  # the provider's own word


class Decoder(ABC):
    """Reads one response."""

    forgives_junk: ClassVar[bool] = False  # whether data that is not JSON is passed over

    def __init__(self) -> None:
        self.is_done = False  # all that can come has come, so that nobody need wait for the end
        self._events = JsonEvents()
        self._failure: BrokenStreamError | StreamFailedError | None = None

    @property
    @abstractmethod
    def usage(self) -> TokenUsage:
        """What the provider said so far that it took."""

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Take in *data* and return what happened; a failure is kept for ``response``."""
        found: list[ModelEvent] = []
        try:
            for chunk in self._events.feed(data):
                if not self.is_done:
                    self._take(chunk, found)
            self._check_junk()
        except (BrokenStreamError, StreamFailedError) as failure:
            self._failure = failure
            self.is_done = True
        return found

    def end(self) -> list[ModelEvent]:
        """Return what was held back, there being no more data."""
        found: list[ModelEvent] = []
        try:
            if not self.is_done:
                for chunk in self._events.end():
                    self._take(chunk, found)
                self._check_junk()
        except (BrokenStreamError, StreamFailedError) as failure:
            self._failure = failure
        self._flush(found)
        if self._events.junk:
            times = self._events.junk
            found.append(Noticed(f"{times} events were not JSON, and were passed over"))
        return found

    def response(self) -> Response:
        """Return the response.

        Raises:
            BrokenStreamError: it is not complete, or not in the protocol.
            StreamFailedError: the provider reported an error.
            RefusedError: there will be none.
        """
        if self._failure is not None:
            raise self._failure
        return self._response()

    def _check_junk(self) -> None:
        if self._events.junk and not self.forgives_junk:
            raise BrokenStreamError(f"not an event: {self._events.first_junk!r}")

    @abstractmethod
    def _take(self, chunk: dict[str, Any], found: list[ModelEvent]) -> None:
        """Take in one JSON object of the stream."""

    def _flush(self, found: list[ModelEvent]) -> None:  # noqa: B027 - most hold nothing back
        """Give out what was held back."""

    @abstractmethod
    def _response(self) -> Response:
        """Return the response if nothing failed."""


def status_of(code: Any) -> int | None:
    """Return *code*, a number or its digits, if it is an HTTP status."""
    match code:
        case int() if 100 <= code < 600:
            return code
        case str() if len(code) == 3 and code.isdecimal():
            return int(code)
        case _:
            return None


def count(usage: dict[str, Any], *path: str) -> int:
    """Return the number at *path* in a provider's usage; 0 if there is none."""
    found: Any = usage
    for key in path:
        found = cast("dict[str, Any]", found).get(key) if isinstance(found, dict) else None
    return found if isinstance(found, int) and 0 <= found <= _MOST_TOKENS else 0
