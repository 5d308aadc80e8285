"""What is sent to a model, derived from what was said.

What was said is the journal: every exchange, byte for byte, for ever. A request repeats a window of
it. Nothing is numbered or identified by its place in a window.
"""

from collections.abc import Sequence

from treefold.core.agent_events import ResponseCompleted
from treefold.core.epoch import FIRST, Epoch
from treefold.core.exchange import Exchange
from treefold.core.fact import Fact
from treefold.core.transcript import ToolResult, ToolUse, TranscriptPart


class Window(Fact, frozen=True):
    """What the next request of a conversation repeats: the head of its epoch, then exchanges.

    These hold in every epoch:

    - Requests only grow by appending, whichever process makes them: prompt caches depend on it, and
      providers that bind thinking to all that precedes it refuse a changed prefix. So a window is
      changed only by opening the conversation with another epoch, which is in that event.
    - Exchanges are sent whole or not at all. Of those that were there when the epoch began, the
      thinking is left out.
    - A call and its result are never parted. The results of the calls of one exchange are in the
      next, so the head ends with the calls whose results the first exchange holds.

    Attributes:
        exchanges: what is sent, in the words of the provider that each was made with.
        asked: the calls of the last response, which wait for their results.
        parts: what each exchange added to the transcript; empty if that has to be read from them.
        epoch: where it begins.
        before: the calls that the head ends with.
        bare: how many of the exchanges are sent without their thinking.
    """

    exchanges: Sequence[Exchange] = ()
    asked: Sequence[ToolUse] = ()
    parts: Sequence[Sequence[TranscriptPart]] = ()
    epoch: Epoch = FIRST
    before: Sequence[ToolUse] = ()
    bare: int = 0

    @classmethod
    def of(cls, said: Sequence[ResponseCompleted], epoch: Epoch = FIRST) -> "Window":
        """Return the window of an *epoch* in a conversation in which so much was *said*."""
        start = sum(response.step < epoch.since for response in said)
        sent = said[start:]
        parts = [response.parts for response in sent]
        before = _calls(said[start - 1].parts) if start else []
        if parts and not any(isinstance(part, ToolResult) for part in parts[0]):
            before = []  # they were given up
        return cls(
            [response.exchange for response in sent],
            _calls(said[-1].parts) if said else [],
            parts,
            epoch,
            before,
            sum(response.step <= epoch.bare for response in sent),
        )


def _calls(parts: Sequence[TranscriptPart]) -> list[ToolUse]:
    return [part for part in parts if isinstance(part, ToolUse)]
