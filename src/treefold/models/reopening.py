"""Open a conversation that has begun, with the model that it began with or any other."""

import json
from collections.abc import AsyncGenerator, Sequence
from hashlib import blake2b
from itertools import zip_longest
from typing import Final

from treefold.core.errors import OtherProtocolError
from treefold.core.exchange import PLAIN, Exchange
from treefold.core.fact import replace
from treefold.core.function import Function
from treefold.core.model import Model, ModelSettings, Session
from treefold.core.model_events import ModelEvent
from treefold.core.transcript import ToolResult, ToolUse, TranscriptPart, UserText
from treefold.core.usage import NO_USAGE, TokenUsage
from treefold.core.window import Window
from treefold.models.translation import head_exchange, result_text, to_plain

_PREFIX_BYTES: Final = 8


def reopen(
    model: Model,
    system: str,
    functions: Sequence[Function],
    settings: ModelSettings,
    window: Window,
) -> Session:
    """Return a session of *model* that continues *window*, whichever providers it was made with.

    Exchanges of the model's own protocol are sent byte for byte, but for those that are sent
    without their thinking. These and the others are translated: the same each time that the
    conversation is opened. The calls that wait have the ids that they were asked for with.

    Raises:
        InvalidValueError: an exchange is damaged, or has an unknown dialect.
    """
    try:
        session = model.open(system, functions, settings, exchanges=_repeated(window))
    except OtherProtocolError as error:
        exchanges = _repeated(window, error.dialect)
        session = model.open(system, functions, settings, exchanges=exchanges)
    known = {call.id for call in session.pending}
    if all(call.id in known for call in window.asked):
        return session
    return TakenOverSession(session, window.asked)


def prefix_of(system: str, functions: Sequence[Function], settings: ModelSettings) -> str:
    """Return a hash of what precedes all messages in the requests of a conversation."""
    told = [[one.name, one.description, one.input_schema] for one in functions]
    text = json.dumps([system, told, settings.response_schema], default=str)
    return blake2b(text.encode(errors="surrogatepass"), digest_size=_PREFIX_BYTES).hexdigest()


def _repeated(window: Window, dialect: str | None = None) -> Sequence[Exchange]:
    """Return what is sent of *window*, as plain exchanges where they are not in *dialect*."""
    if dialect is None and not window.bare and not window.epoch.head:
        return window.exchanges
    said = window.parts
    if not said:
        from treefold.models.reading import read_exchanges  # noqa: PLC0415 - loads all dialects

        said = read_exchanges(window.exchanges)
    head = [head_exchange(window.epoch.head, window.before)] if window.epoch.head else []
    return head + [
        _as_sent(exchange, parts, dialect, is_bare=number < window.bare)
        for number, (exchange, parts) in enumerate(zip(window.exchanges, said, strict=True))
    ]


def _as_sent(
    exchange: Exchange, parts: Sequence[TranscriptPart], dialect: str | None, *, is_bare: bool
) -> Exchange:
    if is_bare:
        # What the provider has counted for it is not what is sent now.
        return replace(to_plain(exchange, parts), usage=NO_USAGE)
    is_foreign = dialect is not None and exchange.dialect not in {dialect, PLAIN}
    return to_plain(exchange, parts) if is_foreign else exchange


class TakenOverSession(Session):
    """A session that begins with calls which have other ids in it, or are text there.

    A protocol may not accept the ids of another, or number calls by their position in the request.
    The results of these calls are converted when they are sent; what was said keeps the ids of the
    calls. After that, this is *session*.
    """

    def __init__(self, session: Session, asked: Sequence[ToolUse]) -> None:
        self._session = session
        self._asked = asked
        self._length = len(session.exchanges)
        self._sent: Sequence[UserText | ToolResult] = ()  # the results, with the ids of *asked*

    @property
    def exchanges(self) -> Sequence[Exchange]:
        return self._session.exchanges

    @property
    def pending(self) -> Sequence[ToolUse]:
        is_waiting = len(self.exchanges) == self._length
        return self._asked if is_waiting else self._session.pending

    @property
    def usage(self) -> TokenUsage:
        return self._session.usage

    @property
    def transcript(self) -> Sequence[TranscriptPart]:
        return [part for number in range(len(self.exchanges)) for part in self.parts(number)]

    def parts(self, number: int) -> Sequence[TranscriptPart]:
        parts = self._session.parts(number)
        if number != self._length:
            return parts
        received = [part for part in parts if not isinstance(part, UserText | ToolResult)]
        return [*self._sent, *received]

    def send(self, *inputs: UserText | ToolResult) -> AsyncGenerator[ModelEvent, None]:
        return self._session.send(*self._converted(inputs))

    def keep(self, text: str, *inputs: UserText | ToolResult) -> Exchange:
        return self._session.keep(text, *self._converted(inputs))

    def _converted(self, inputs: Sequence[UserText | ToolResult]) -> list[UserText | ToolResult]:
        if len(self.exchanges) > self._length:
            return list(inputs)
        # Results by their calls, then texts, as the session writes them. Where an exchange has no
        # ids, results belong to the calls in their order.
        places, last = {call.id: n for n, call in enumerate(self._asked)}, len(self._asked)
        inputs = self._sent = sorted(
            inputs,
            key=lambda part: (
                places.get(part.tool_use_id, last) if isinstance(part, ToolResult) else last
            ),
        )
        renamed = dict(zip_longest([call.id for call in self._asked], self._session.pending))
        names = {call.id: call.name for call in self._asked}
        converted: list[UserText | ToolResult] = []
        for part in inputs:
            if isinstance(part, UserText) or part.tool_use_id not in names:
                converted.append(part)
            elif (call := renamed[part.tool_use_id]) is not None:
                converted.append(replace(part, tool_use_id=call.id))
            else:
                converted.append(UserText(result_text(names[part.tool_use_id], part.content)))
        return converted
