"""``TurnReader``: passes the responses of a turn to its reader, its history and its session."""

from treefold.chat.blocks import TextBlock, ThinkingBlock, ToolUseDelta
from treefold.chat.turn import ChatTurn
from treefold.core import model_events
from treefold.core.agent_events import ResponseCompleted
from treefold.core.conversation import AgentConversation, Inputs
from treefold.core.errors import ModelProviderException
from treefold.core.model import Model
from treefold.core.model_events import AttemptFailed, ModelEvent, Noticed
from treefold.core.provider_errors import provider_exception
from treefold.core.transcript import ModelText


class TurnReader:
    """The listener of the loop that drives a turn."""

    def __init__(self, turn: ChatTurn, conversation: AgentConversation, model: Model) -> None:
        self._turn = turn
        self._conversation = conversation
        self._model = model
        self._asking: Inputs | None = None  # the inputs of the request under way
        self._texts: list[str] = []  # the text of its response so far
        self._has_fragments = False  # whether fragments of its calls were passed on

    def request_begins(self, inputs: Inputs) -> None:
        """Begin a new response."""
        self._asking, self._texts, self._has_fragments = inputs, [], False

    async def response_completed(self, response: ResponseCompleted) -> None:
        """Add *response* to the history, and save it."""
        self._asking = None
        if not self._texts and (text := text_of(response)):
            # What was streamed as thinking turned out to be the answer.
            self._turn.block_stream.put(TextBlock(text))
        self._complete(response)
        await self._turn.save()

    def keep_text(self) -> None:
        """Keep the text of an interrupted response as its answer."""
        text = "".join(self._texts)
        if self._asking is not None and text.strip():
            self._complete(self._conversation.keep(text, *self._asking))

    def _complete(self, response: ResponseCompleted) -> None:
        self._turn.history.complete(response)
        if self._turn.saver is not None:
            self._turn.saver.append(response.exchange, self._turn.prompt)

    def event_arrived(self, event: ModelEvent) -> None:
        """Pass a part of the response on as a block.

        Raises:
            ModelProviderException: the response broke off after a part of it was read.
        """
        put = self._turn.block_stream.put
        if not self._turn.accepted and not isinstance(event, AttemptFailed | Noticed):
            self._turn.accepted = True
            self._turn.note_opened()
        match event:
            case model_events.TextDelta() if event.text:
                self._texts.append(event.text)
                put(TextBlock(event.text))
            case model_events.ThinkingDelta():
                put(ThinkingBlock(event.text))
            case model_events.TextWasThinking():
                put(ThinkingBlock("".join(self._texts), was_text=True))
                self._texts = []
            case model_events.ToolUseDelta() if self._turn.options.tool_use_deltas:
                self._has_fragments = True
                put(ToolUseDelta(event.index, event.id, event.name, event.arguments))
            case AttemptFailed() if self._texts or self._has_fragments:
                raise self._broke_off(event)
            case _:
                pass

    def _broke_off(self, failed: AttemptFailed) -> ModelProviderException:
        """Return the exception for a response that broke off after a part of it was read.

        It is not retried, because the reader would get the beginning twice.
        """
        return provider_exception(
            type(self._model).__name__,
            self._model.name,
            f"{failed.failure.message} (the answer broke off in the middle, and nothing of it was"
            " kept: query again)",
            attempts=failed.attempt,
            inner=failed.inner,
        )


def text_of(response: ResponseCompleted) -> str:
    """Return the text of *response*."""
    return "".join(part.text for part in response.parts if isinstance(part, ModelText))
