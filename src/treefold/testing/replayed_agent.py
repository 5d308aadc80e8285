"""A call of an agent in a replay."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from treefold.core.agent_events import ResponseCompleted
from treefold.core.model import Model
from treefold.core.transcript import TranscriptPart
from treefold.runtime.agent_node import AgentNode
from treefold.testing.recorded_model import RecordedModel
from treefold.testing.recording import RecordedCall, RecordedRequest


class ReplayedAgent(AgentNode):
    """A call of an agent whose model says what was recorded."""

    __slots__ = ("_call", "_recorded", "heard")

    _call: RecordedCall
    _recorded: RecordedModel
    heard: int  # of how many requests it knows what came of them

    def play(
        self,
        call: RecordedCall,
        sent: Callable[[str, Sequence[str], Sequence[TranscriptPart]], Awaitable[None]],
        answered: Callable[[], Awaitable[ResponseCompleted]],
    ) -> None:
        """Be what *call* was."""
        self._call = call
        self.heard = 0
        self._recorded = RecordedModel(call.record.model or "a model", sent, answered)

    @property
    def left_to_ask(self) -> RecordedRequest | None:
        """The request that was recorded after those whose outcome it has heard."""
        requests = self._call.requests
        return requests[self.heard] if self.heard < len(requests) else None

    def find_model(self, model_ref: Any) -> Model:
        return self._recorded

    def in_place_of(self, model: Model) -> Model:
        return self._recorded

    @property
    def edited_prompt(self) -> str | None:
        edit = self._call.record.edit
        return None if edit is None else edit.prompt
