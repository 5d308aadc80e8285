"""A conversation that is open, and how large its next request will be."""

from collections.abc import Sequence
from typing import Final

from treefold.core.function import Function
from treefold.core.lazy_dataclass import lazy_dataclass
from treefold.core.model import Model, ModelSettings, Session
from treefold.core.transcript import ToolResult, UserText
from treefold.core.usage import TokenUsage
from treefold.runtime.limits.answer_sizes import AnswerSizes

_BYTES_PER_TOKEN: Final = 4  # about


@lazy_dataclass(frozen=True)
class Opened:
    """A session, and what it was opened with."""

    session: Session
    model: Model
    system: str
    functions: Sequence[Function]
    settings: ModelSettings

    def expected_input(self, inputs: Sequence[UserText | ToolResult]) -> TokenUsage:
        """Estimate what is sent next: the whole conversation once more, with *inputs*."""
        exchanges = self.session.exchanges
        new = sum(_size(p.text if isinstance(p, UserText) else p.content) for p in inputs)
        if not exchanges:
            new += _size(self.system)
        usage = TokenUsage(input=new // _BYTES_PER_TOKEN + 1)
        return usage + exchanges[-1].usage if exchanges else usage

    def expected_rest(self, sizes: AnswerSizes) -> int:
        """Return how many tokens more may be used: by the answer, and by what is not estimated."""
        settings, rest = self.settings, 0
        if not self.session.exchanges:
            for one in self.functions:
                rest += len(one.description) + len(str(one.input_schema))
        answer = settings.max_tokens or sizes.expect(self.model.name, settings.thinking or 0)
        return rest // _BYTES_PER_TOKEN + answer


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))
