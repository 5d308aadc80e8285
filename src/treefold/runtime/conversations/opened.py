"""A conversation that is open, and how large its next request may be."""

from collections.abc import Iterable, Sequence
from typing import Final

from treefold.core.exchange import Exchange
from treefold.core.fact import Fact
from treefold.core.function import Function
from treefold.core.model import Caching, Model, ModelSettings, Session
from treefold.core.transcript import ToolResult, UserText
from treefold.core.usage import NO_USAGE, TokenUsage

_BYTES_PER_TOKEN: Final = 4  # about; no tokenizer makes more than one token of a byte
_DOUBTFUL: Final = 4  # a count is, if as many times as much was sent
_FRAME: Final = 512  # tokens that a provider may add to what is sent, at most
_LARGEST_WINDOW: Final = 1_048_576  # of a model of which nothing is known


class Measured:
    """The size of what was said, of which each exchange is measured once, and only if need be.

    It is measured as it was said, not as it is sent: so it is the same in a replay.
    """

    __slots__ = ("_bytes", "_new")

    def __init__(self, exchanges: Iterable[Exchange] = (), texts: Iterable[str] = ()) -> None:
        self._new = list(exchanges)
        self._bytes = sum(map(_size, texts))

    def add(self, exchange: Exchange) -> None:
        """Note one more exchange."""
        self._new.append(exchange)

    @property
    def bytes(self) -> int:
        """The size of everything."""
        for one in self._new:
            self._bytes += sum(map(_size, one.sent)) + sum(map(_size, one.received))
        self._new.clear()
        return self._bytes


class Opened(Fact, frozen=True):
    """A session, and what it was opened with."""

    session: Session
    model: Model
    system: str
    functions: Sequence[Function]
    settings: ModelSettings
    measured: Measured

    def expected_input(self, inputs: Sequence[UserText | ToolResult]) -> TokenUsage:
        """Estimate what is sent next: the whole conversation once more, with *inputs*."""
        usage = TokenUsage(input=self._new_bytes(inputs) // _BYTES_PER_TOKEN + 1)
        return usage + self._counted

    def most(self, inputs: Sequence[UserText | ToolResult]) -> TokenUsage:
        """Return the most that a request with *inputs* takes: whatever is sent, and the answer.

        Nothing is expected to be read from a cache: what is there may be forgotten any time.
        """
        model, counted = self.model, self._counted.total
        sent = self._new_bytes(inputs) + _FRAME + counted
        if not counted:
            for one in self.functions:
                sent += _size(one.name) + _size(one.description) + _size(str(one.input_schema))
        window = model.context_window or _LARGEST_WINDOW
        answer = model.longest_answer(self.settings)
        sent, answer = min(sent, window), window if answer is None else answer
        match self.settings.caching:
            case Caching.MINUTES:
                return TokenUsage(cache_write=sent, output=answer)
            case Caching.HOUR:
                return TokenUsage(cache_write_1h=sent, output=answer)
            case _:
                return TokenUsage(input=sent, output=answer)

    def size(self, inputs: Sequence[UserText | ToolResult]) -> int:
        """Estimate the size of the next request in tokens, if it has these *inputs*."""
        new = sum(_size(p.text if isinstance(p, UserText) else p.content) for p in inputs)
        new = new // _BYTES_PER_TOKEN + 1
        messages = self.measured.bytes // _BYTES_PER_TOKEN
        known, measured = self._counted.total, messages + self.fixed_size
        # Thinking is measured, and not always counted. Some servers count nothing, or wrongly.
        return new + (measured if known * _DOUBTFUL < measured else known)

    @property
    def functions_size(self) -> int:
        """The size of what the model is told about functions, in tokens."""
        texts = [f"{one.name}{one.description}{one.input_schema}" for one in self.functions]
        return sum(map(_size, texts)) // _BYTES_PER_TOKEN

    @property
    def fixed_size(self) -> int:
        """The size of what precedes all messages, in tokens."""
        return _size(self.system) // _BYTES_PER_TOKEN + self.functions_size

    @property
    def _counted(self) -> TokenUsage:
        """What the provider has counted of the conversation; zero if it has to be measured.

        A provider has not counted a history that a program wrote, nor a response that was cut off.
        """
        exchanges = self.session.exchanges
        return exchanges[-1].usage if exchanges else NO_USAGE

    def _new_bytes(self, inputs: Sequence[UserText | ToolResult]) -> int:
        """Return the size of what is sent and the provider has not counted."""
        new = sum(_size(p.text if isinstance(p, UserText) else p.content) for p in inputs)
        if self._counted.total:
            return new
        return new + _size(self.system) + self.measured.bytes


def size_of(exchange: Exchange) -> int:
    """Return about how many tokens an exchange has."""
    return sum(map(_size, (*exchange.sent, *exchange.received))) // _BYTES_PER_TOKEN + 1


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))
