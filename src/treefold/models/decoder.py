"""The base of the providers' decoders: bytes in, events out, and at the end a response.

Decoders are pure: no sockets, no clocks. The caller decides what a failure means.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

from treefold.core.exchange import Finish
from treefold.core.model_events import ModelEvent, Noticed
from treefold.core.usage import TokenUsage
from treefold.models.json_text import ValueCounter, count_chars
from treefold.models.profiles import VALUE_CHARS, Profile
from treefold.models.sse import BrokenStreamError, JsonEventParser

# The key under which the history keeps arguments that are not a JSON object.
INVALID_ARGS_KEY: Final = "__not_json__"
# The name that the history gives to a call without one.
UNNAMED: Final = "unnamed"
# The kind of a failure of our own: the model asked for more calls than its profile allows.
TOO_MANY_CALLS: Final = "too_many_calls"
# Likewise: it has written more than its profile allows.
TOO_LONG_TEXT: Final = "too_long_text"
_MAX_NAME: Final = 256  # characters that are kept of an id, or of the name of a model
# So many characters of data that is only sent back count as one of text: signatures may be as long
# as the thinking, results of searches on the server's side are longer, and some servers repeat the
# fields around each piece of a text.
_DATA_CHARS: Final = 4
# A larger count is nonsense, and sums of such counts could not be saved.
_MAX_TOKENS: Final = 2**53


class StreamFailedError(Exception):
    """The provider reported an error in the middle of a stream."""

    def __init__(self, kind: str, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status


class RefusedError(Exception):
    """The provider, or the model, refused to answer."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.text = text


@dataclass(frozen=True, slots=True)
class Response:
    """A complete response.

    Attributes:
        message: the message as JSON text; None if there is nothing to keep.
        finish: why the model stopped.
        reason: the same as the provider puts it.
    """

    message: str | None
    finish: Finish
    reason: str


class Decoder(ABC):
    """Decodes the stream of one response.

    Args:
        profile: how long the response may be, and how many calls it may have.

    Attributes:
        is_done: whether the response is complete, so that the end of the stream need not be
            awaited.
        response_id: as the provider identifies the response; empty if it does not.
        response_model: the model that wrote it, as the provider names it.
    """

    # Whether events that are not JSON are skipped; otherwise the first one ends the response.
    skips_invalid_events: ClassVar[bool] = False

    def __init__(self, profile: Profile) -> None:
        self.is_done = False
        self.response_id = ""
        self.response_model = ""
        self._max_calls = profile.max_response_calls
        self._max_chars = profile.max_response_chars
        # What is kept so far: each decoder counts that where it keeps it.
        self._chars = 0
        self._counters: dict[int, ValueCounter] = {}
        self._parser = JsonEventParser(self._max_chars)
        self._failure: BrokenStreamError | StreamFailedError | None = None

    @property
    @abstractmethod
    def usage(self) -> TokenUsage:
        """The tokens that the provider has reported so far."""

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Decode *data* and return its events; a failure is kept for ``response``."""
        events: list[ModelEvent] = []
        try:
            for chunk in self._parser.feed(data):
                if not self.is_done:
                    self._handle(chunk, events)
            if self._parser.invalid:
                self._check_invalid()
            self._check_chars()
        except (BrokenStreamError, StreamFailedError) as failure:
            self._failure = failure
            self.is_done = True
        return events

    def end(self) -> list[ModelEvent]:
        """Return the events that were held back; there is no more data."""
        events: list[ModelEvent] = []
        try:
            if not self.is_done:
                for chunk in self._parser.end():
                    self._handle(chunk, events)
                if self._parser.invalid:
                    self._check_invalid()
        except (BrokenStreamError, StreamFailedError) as failure:
            self._failure = failure
        try:
            self._flush(events)
            self._check_chars()
        except StreamFailedError as failure:
            self._failure = failure
        if self._parser.invalid:
            events.append(Noticed(f"{self._parser.invalid} events were not JSON and were skipped"))
        return events

    def response(self) -> Response:
        """Return the response.

        Raises:
            BrokenStreamError: it is incomplete, or violates the protocol.
            StreamFailedError: the provider reported an error.
            RefusedError: the provider, or the model, refused to answer.
        """
        if self._failure is not None:
            raise self._failure
        return self._response()

    def _identify(self, id: Any, model: Any) -> None:
        """Keep the id of the response and the name of its model, from where they come first."""
        if not self.response_id and isinstance(id, str):
            self.response_id = id[:_MAX_NAME]
        if not self.response_model and isinstance(model, str):
            self.response_model = model[:_MAX_NAME]

    def _check_calls(self, count: int) -> None:
        """Raise if the response has more than *max_calls* calls, as soon as there is one more."""
        if self._max_calls is not None and count > self._max_calls:
            message = f"the response has more than {self._max_calls:,} calls"
            raise StreamFailedError(TOO_MANY_CALLS, message)

    def _count_json(self, number: int, text: str) -> None:
        """Count a piece of JSON that is kept as *text*, such as the arguments of a call.

        Args:
            number: of the JSON that this is a piece of.
        """
        counter = self._counters.get(number)
        if counter is None:
            counter = self._counters[number] = ValueCounter()
        self._chars += len(text) + VALUE_CHARS * counter.feed(text)

    def _count_data(self, value: Any) -> None:
        """Count data that is kept, and only sent back."""
        if self._max_chars is not None:
            most = _DATA_CHARS * self._max_chars
            self._chars += count_chars(value, most) // _DATA_CHARS + 1

    def _check_chars(self) -> None:
        """Raise if what is kept of the response is longer than *max_response_chars*."""
        if self._max_chars is not None and self._chars > self._max_chars:
            message = (
                f"the response has more than {self._max_chars:,} characters, of which each value"
                f" in the arguments of a call counts as {VALUE_CHARS}"
            )
            raise StreamFailedError(TOO_LONG_TEXT, message)

    def _check_invalid(self) -> None:
        if not self.skips_invalid_events:
            raise BrokenStreamError(f"not an event: {self._parser.first_invalid!r}")

    @abstractmethod
    def _handle(self, chunk: dict[str, Any], events: list[ModelEvent]) -> None:
        """Decode one JSON object of the stream and append its events to *events*."""

    def _flush(self, events: list[ModelEvent]) -> None:  # noqa: B027 - most hold nothing back
        """Append the events that were held back to *events*."""

    @abstractmethod
    def _response(self) -> Response:
        """Return the response, or raise as ``response`` does; the stream did not fail."""


def http_status(code: Any) -> int | None:
    """Return *code*, an integer or its digits, if it is an HTTP status; otherwise None."""
    match code:
        case int() if 100 <= code < 600:
            return code
        case str() if len(code) == 3 and code.isdecimal():
            return int(code)
        case _:
            return None


def token_counts(usage: dict[str, Any], *paths: str) -> list[int]:
    """Return the count at each of *paths*, such as "details.cached", in a provider's usage.

    A count that is missing, or no number of tokens, is 0.
    """
    counts: list[int] = []
    for path in paths:
        value: Any = usage
        for key in path.split("."):
            value = cast("dict[str, Any]", value).get(key) if isinstance(value, dict) else None
        counts.append(value if isinstance(value, int) and 0 <= value <= _MAX_TOKENS else 0)
    return counts
