"""Makes room in the context window of an agent: a summary takes the place of older exchanges.

The summary is written by calls of ``Summarize`` below the agent, piece by piece, so that no request
for it is too long. They prepare the next request (``CallRequest.prepares``): a resumed agent finds
those that have ended, and none is paid twice. When the last of them has ended, the epoch that
begins with the summary is recorded.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from treefold.core.agent_events import ResponseCompleted
from treefold.core.call_request import CallRequest
from treefold.core.compaction import Compaction
from treefold.core.conversation import AgentConversation, Inputs
from treefold.core.epoch import Epoch
from treefold.core.errors import ModelProviderException
from treefold.core.exchange import Finish
from treefold.core.fact import replace
from treefold.core.function import Function, RunContext
from treefold.core.model import Model
from treefold.core.plain import to_json
from treefold.core.transcript import ModelText, ToolResult, ToolUse, TranscriptPart, UserText
from treefold.core.truncation import truncate_middle

_SMALLER: Final = "a smaller window than was known"
SHORTEST_PIECE: Final = 1_000  # characters
COMPACTION: Final = "compaction"  # why such an epoch begins

_BYTES_PER_TOKEN: Final = 4  # about
_RESULTS: Final = 0.1  # of the window, for the results of one response
_WORTH: Final = 0.1  # of the window, that a summary takes the place of at least
_SURE: Final = 0.9  # of what was too long
_PIECE: Final = 0.4  # of the window, for what one request summarizes
_SUMMARY: Final = 0.1  # of the window, at most
_LONGEST_SUMMARY: Final = 8_192  # tokens
_SUMMED_UP: Final = (
    "[The conversation so far was too long, and is summed up here. It goes on after that.]\n\n"
)
_NEW_LINE: Final = re.compile(r"\r\n?|[\n\v\f\x1c-\x1e\x85\u2028\u2029]")
_TOLD: Final = "User, later: {text}"
_LEFT_OUT: Final = "[Earlier messages were left out, and could not be summed up.]"


class Compactor:
    """Compacts the conversation of one call.

    Args:
        summarize: the function that sums up a piece of it.
        model: returns that of the agent, which writes the summary unless *compaction* names one.
    """

    def __init__(
        self,
        ctx: RunContext,
        conversation: AgentConversation,
        compaction: Compaction,
        summarize: Function,
        model: Callable[[], Model],
    ) -> None:
        self._ctx = ctx
        self._conversation = conversation
        self._compaction = compaction
        self._summarize = summarize
        self._model = model

    async def make_room(self, inputs: Inputs) -> bool:
        """Compact the conversation if a request with *inputs* would fill too much of the window.

        Returns:
            Whether another window is known then: the results in *inputs* may not fit.
        """
        conversation, window = self._conversation, self._conversation.window
        if conversation.is_replayed:
            # The recording says whether, and in which window.
            for epoch in conversation.replayed_epochs:
                if epoch.why == COMPACTION:
                    await self._compact(epoch.since, epoch.window or 0)
                elif epoch.why == _SMALLER:
                    conversation.begin(epoch)
            return conversation.window != window
        if window and conversation.size(inputs) > self._compaction.at * window:
            since = self._cut(inputs, window)
            older = (one for one in self._sent if one.step < since)
            # What stays in any case may fill the window: then each request would be summed up.
            if sum(map(conversation.size_of, older)) > _WORTH * window:
                await self._compact(since, window)
        return False

    async def after_overflow(self, failure: ModelProviderException, inputs: Inputs) -> bool:
        """Make room after a request with *inputs* was too long; return whether there is more.

        What the provider has said of its window is known from then on.
        """
        conversation = self._conversation
        window = failure.context_window or round(_SURE * conversation.size(inputs))
        is_news = window != conversation.window
        conversation.learn_window(window)
        if await self.compact(inputs, window):
            return True
        if is_news:
            bare = conversation.responses
            conversation.begin(replace(conversation.epoch, why=_SMALLER, bare=bare, window=window))
        return is_news

    async def compact(self, inputs: Inputs, window: int) -> bool:
        """Begin an epoch in which *inputs* have room; False if nothing can be left out."""
        since = self._cut(inputs, window)
        if since <= self._conversation.epoch.since:
            return False
        await self._compact(since, window)
        return True

    def _cut(self, inputs: Inputs, window: int) -> int:
        """Return the number of the first response that is kept; the next one if none is."""
        conversation, compaction = self._conversation, self._compaction
        said = conversation.said
        # Results that are longer are cut.
        new = min(size_of(inputs), round(_RESULTS * window))
        since = conversation.responses + 1
        head = size_of([UserText(text) for text in self._head(said, since)])
        fixed = conversation.fixed_size + head + new + round(_SUMMARY * window)
        room = min(compaction.keep * window, (compaction.at * window - fixed) / 2)
        for response in reversed(self._sent):
            room -= conversation.size_of(response)
            if room < 0:
                break
            since = response.step
        # A response that was paused is not parted from what continues it.
        paused = {
            after.step
            for before, after in pairwise(said)
            if before.exchange.finish is Finish.PAUSED
        }
        while since in paused:
            since += 1
        return since

    async def _compact(self, since: int, window: int) -> None:
        conversation = self._conversation
        said = [one for one in conversation.said if one.step < since]
        epoch = conversation.epoch
        earlier = epoch.head[-1].removeprefix(_SUMMED_UP) if epoch.head else ""
        longest = max(SHORTEST_PIECE, round(_PIECE * window * _BYTES_PER_TOKEN))
        texts = _rendered([one for one in said if one.step >= epoch.since], longest // 2)
        summary = await self._sum_up(since, earlier, texts, longest, window)
        # Without one the agent can go on, too: what it has to do is in the head in any case.
        summary = _SUMMED_UP + summary if summary.strip() else _LEFT_OUT
        conversation.begin(
            Epoch(
                why=COMPACTION,
                since=since,
                head=(*self._head(said, since), summary),
                bare=conversation.responses,
                window=window,
            )
        )

    async def _sum_up(
        self, since: int, earlier: str, texts: Iterator[str], longest: int, window: int
    ) -> str:
        pieces, number = list(_pieces(texts, longest)), 0
        summary = earlier
        tokens = min(_LONGEST_SUMMARY, max(1, round(_SUMMARY * window)))
        while pieces:
            piece, number = pieces.pop(0), number + 1
            args = {
                "text": piece,
                "earlier": summary,
                "focus": self._compaction.focus,
                "tokens": tokens,
            }
            # There may be two compactions before one response.
            found = await self._call(args, f"summary-{since}-{number}")
            if found is None:
                # It is too long: its tokens are shorter than those of other texts.
                half = len(piece) // 2
                pieces[:0] = [piece[:half], piece[half:]]
            else:
                summary = found
        return summary

    async def _call(self, args: dict[str, Any], name: str) -> str | None:
        model = self._compaction.model or self._model()
        return await self._ctx.start(CallRequest(self._summarize, args, model=model, prepares=name))

    @property
    def _sent(self) -> Sequence[ResponseCompleted]:
        """The responses that requests repeat."""
        conversation = self._conversation
        return [one for one in conversation.said if one.step >= conversation.epoch.since]

    def _head(self, said: Sequence[ResponseCompleted], since: int) -> Sequence[str]:
        """Return what stays word for word of what was *said* before the response *since*."""
        return [*_first_texts(said), *self._pinned(said), *self._told(since)]

    def _told(self, since: int) -> Iterator[str]:
        """Yield what people said while the agent ran: no wish of theirs is summed up."""
        for one in self._conversation.messages:
            if one.step is not None and one.step < since:
                yield _TOLD.format(text=one.text)

    def _pinned(self, said: Sequence[ResponseCompleted]) -> Iterator[str]:
        """Yield the parts that stay word for word, as texts."""
        pin, names = self._compaction.pin, dict[str, str]()
        for part in _parts(said):
            if isinstance(part, ToolUse):
                names[part.id] = part.name
            name = names.get(part.tool_use_id, "") if isinstance(part, ToolResult) else ""
            if pin(part) if callable(pin) else name in pin:
                yield _shown(part, names)


def size_of(inputs: Inputs) -> int:
    """Return about how many tokens *inputs* have."""
    texts = (one.text if isinstance(one, UserText) else one.content for one in inputs)
    return sum(map(_bytes, texts)) // _BYTES_PER_TOKEN + 1


def _bytes(text: str) -> int:
    return len(text.encode(errors="replace"))


def _parts(said: Sequence[ResponseCompleted]) -> Iterator[TranscriptPart]:
    for response in said:
        yield from response.parts


def _first_texts(said: Sequence[ResponseCompleted]) -> list[str]:
    """Return what the conversation began with."""
    return [part.text for part in said[0].parts if isinstance(part, UserText)]


def _rendered(said: Sequence[ResponseCompleted], longest: int) -> Iterator[str]:
    """Yield what was said, without the thinking, each part of it in *longest* bytes.

    The lines of a part are indented, but for its first: no result can pretend that a user said it.
    """
    names = dict[str, str]()
    for part in _parts(said):
        if isinstance(part, ToolUse):
            names[part.id] = part.name
        if text := _shown(part, names):
            text = _NEW_LINE.sub("\n  ", text)
            yield truncate_middle(text, longest * len(text) // _bytes(text))


def _shown(part: TranscriptPart, names: dict[str, str]) -> str:
    match part:
        case UserText():
            return f"User: {part.text}"
        case ModelText():
            return f"You: {part.text}"
        case ToolUse():
            return f"You called {part.name} with {part.written or to_json(dict(part.args), 'them')}"
        case ToolResult():
            return f"Result of {names.get(part.tool_use_id, 'a call')}: {part.content}"
        case _:
            return ""


def _pieces(texts: Iterator[str], longest: int) -> Iterator[str]:
    """Yield *texts* in pieces of at most *longest* bytes; none of them is longer."""
    piece: list[str] = []
    size = 0
    for text in texts:
        if piece and size + _bytes(text) > longest:
            yield "\n\n".join(piece)
            piece, size = [], 0
        piece.append(text)
        size += _bytes(text) + 2
    if piece:
        yield "\n\n".join(piece)
