"""``ReplayedAgent``: a call of an agent in a replay."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from treefold.core.agent_events import ResponseCompleted
from treefold.core.model import Model
from treefold.core.transcript import TranscriptPart
from treefold.runtime.conversations.agent_node import AgentNode
from treefold.testing.recorded_model import RecordedModel
from treefold.testing.recording import RecordedCall, RecordedRequest


class ReplayedAgent(AgentNode):
    """A call of an agent whose model gives recorded responses."""

    __slots__ = ("_call", "_recorded", "finished_requests")

    _call: RecordedCall
    _recorded: RecordedModel
    finished_requests: int  # the number of requests whose outcome it has received

    def play(
        self,
        call: RecordedCall,
        sent: Callable[[str, Sequence[str], Sequence[TranscriptPart]], Awaitable[None]],
        answered: Callable[[], Awaitable[ResponseCompleted]],
    ) -> None:
        """Replay the recorded *call*; the callbacks are those of RecordedModel."""
        self._call = call
        self.finished_requests = 0
        self._recorded = RecordedModel(call.record.model or "a model", sent, answered)

    @property
    def next_request(self) -> RecordedRequest | None:
        """The first recorded request whose outcome it has not received."""
        requests = self._call.requests
        return requests[self.finished_requests] if self.finished_requests < len(requests) else None

    def find_model(self, model_ref: Any) -> Model:
        return self._recorded

    def in_place_of(self, model: Model) -> Model:
        return self._recorded

    @property
    def edited_prompt(self) -> str | None:
        edit = self._call.record.edit
        return None if edit is None else edit.prompt
