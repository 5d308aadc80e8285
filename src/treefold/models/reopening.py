"""Open a conversation that has begun, with the model that it began with or any other."""

from collections.abc import AsyncGenerator, Sequence
from itertools import zip_longest

from treefold.core.errors import OtherProtocolError
from treefold.core.exchange import PLAIN, Exchange
from treefold.core.fact import replace
from treefold.core.function import Function
from treefold.core.model import Model, ModelSettings, Session
from treefold.core.model_events import ModelEvent
from treefold.core.transcript import ToolResult, ToolUse, TranscriptPart, UserText
from treefold.core.usage import TokenUsage
from treefold.core.window import Window
from treefold.models.translation import result_text, to_plain


def reopen(
    model: Model,
    system: str,
    functions: Sequence[Function],
    settings: ModelSettings,
    window: Window,
) -> Session:
    """Return a session of *model* that continues *window*, whichever providers it was made with.

    Exchanges of the model's own protocol are sent byte for byte, the others are translated: the
    same each time that the conversation is opened. The calls that wait have the ids that they were
    asked for with.

    Raises:
        InvalidValueError: an exchange is damaged, or has an unknown dialect.
    """
    try:
        session = model.open(system, functions, settings, exchanges=window.exchanges)
    except OtherProtocolError as error:
        exchanges = _translated(window, error.dialect)
        session = model.open(system, functions, settings, exchanges=exchanges)
    known = {call.id for call in session.pending}
    if all(call.id in known for call in window.asked):
        return session
    return TakenOverSession(session, window.asked)


def _translated(window: Window, dialect: str) -> list[Exchange]:
    """Return the exchanges of *window*, as plain ones where they are not in *dialect*."""
    said = window.parts
    if not said:
        from treefold.models.reading import read_exchanges  # noqa: PLC0415 - loads all dialects

        said = read_exchanges(window.exchanges)
    return [
        exchange if exchange.dialect in {dialect, PLAIN} else to_plain(exchange, parts)
        for exchange, parts in zip(window.exchanges, said, strict=True)
    ]


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
