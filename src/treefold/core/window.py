"""What is sent to a model, derived from what was said.

What was said is the journal: every exchange, byte for byte, for ever. A request repeats a window of
it. Nothing is numbered or identified by its place in a window.
"""

from collections.abc import Sequence

from treefold.core.agent_events import ResponseCompleted
from treefold.core.exchange import Exchange
from treefold.core.fact import Fact
from treefold.core.transcript import ToolResult, ToolUse, TranscriptPart, UserText


class Window(Fact, frozen=True):
    """The exchanges that the next request of a conversation repeats.

    A conversation that is opened begins an epoch. These hold in every epoch:

    - Requests only grow by appending, whichever process makes them: prompt caches depend on it, and
      providers that bind thinking to all that precedes it refuse a changed prefix. So a window is
      changed only by opening the conversation again, and where it begins is in that event.
    - Exchanges are sent whole or not at all.
    - A call and its result are never parted. The results of the calls of one exchange are in the
      next, so a window begins with an exchange that was asked for by a text alone.

    Attributes:
        exchanges: what is sent, in the words of the provider that each was made with.
        asked: the calls of the last response, which wait for their results.
        parts: what each exchange added to the transcript; empty if that has to be read from them.
        since: the number of the first response that is sent.
    """

    exchanges: Sequence[Exchange] = ()
    asked: Sequence[ToolUse] = ()
    parts: Sequence[Sequence[TranscriptPart]] = ()
    since: int = 1

    @classmethod
    def of(cls, said: Sequence[ResponseCompleted], since: int = 1) -> "Window":
        """Return the window that begins with response *since*, or before it where it has to.

        With the responses that follow, its own ``since`` gives the same window and what they add.
        """
        start = 0
        for place, response in enumerate(said):
            if response.step > since:
                break
            if _can_begin(response):
                start = place
        sent = said[start:]
        parts = [response.parts for response in sent]
        asked = [part for part in (parts[-1] if parts else ()) if isinstance(part, ToolUse)]
        exchanges = [response.exchange for response in sent]
        return cls(exchanges, asked, parts, sent[0].step if sent else 1)


def _can_begin(response: ResponseCompleted) -> bool:
    """Whether the request was a text alone: no results, and no continuation of a paused one."""
    parts = response.parts
    has_text = any(isinstance(part, UserText) for part in parts)
    return has_text and not any(isinstance(part, ToolResult) for part in parts)
