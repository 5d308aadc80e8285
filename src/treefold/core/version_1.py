"""What journals of body version 1 say in words, as the fields that events have now.

Only these functions read such words; nothing else in the package depends on the wording of a
message. Journals of that version were written until the end of 2026.
"""

import re
from dataclasses import replace
from typing import Final

from treefold.core.agent_events import (
    ConversationOpened,
    NoticeGiven,
    RequestSent,
    ResponseCompleted,
)
from treefold.core.events import (
    CallEnded,
    CallRequested,
    CallStarted,
    Event,
    Failure,
    QuestionAsked,
    Stop,
    StopCause,
)
from treefold.core.question import QuestionKey, QuestionKind, key_of
from treefold.core.states import NodeState
from treefold.core.transcript import ToolUse, TranscriptPart

_CANCELLED: Final = re.compile(r".*? \(node ([\d.]+)\) was cancelled: (.*)", re.DOTALL)
_TIMED_OUT: Final = re.compile(r"(.*) \(node ([\d.]+)\): (it took longer than .* s)")
_NOT_MADE_AGAIN: Final = "these calls of an earlier process were not asked for again: "
_NODE: Final = re.compile(r"\(node [\d.]*?(\d+)\)(?:, |$)")
_NOT_JSON: Final = "the arguments are not a JSON object: "
_PAUSES: Final = {
    QuestionKey.Hold: "; resume lets its next request or call go on",
    QuestionKey.Crashes: "; resume tries it once more, cancel ends it",
    QuestionKey.Request: "; resume makes the request again",
    QuestionKey.ToolCall: "; resume calls it again, report tells the model",
    QuestionKey.Journal: ": see to that, then they continue by themselves",
}


def key_of_question(kind: QuestionKind, text: str) -> str:
    """Return the key of a question that was written without one."""
    if kind is QuestionKind.InDoubt:
        return QuestionKey.InDoubt
    if kind is QuestionKind.Paused:
        for key, ending in _PAUSES.items():
            if text.endswith(ending):
                return key
    return key_of(text)


class Upgrade:
    """Fills in what events of one tree did not say in fields, in the order of the events."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[str, str]] = {}  # function, and path below the tree's number
        self._started: dict[int, float] = {}

    def __call__(self, event: Event) -> Event:
        """Return *event* with all fields of today."""
        match event:
            case CallRequested():
                above = "" if event.parent is None else self._calls[event.parent][1]
                path = "" if event.parent is None else f"{above}.{event.index}"
                self._calls[event.node] = event.function, path
                return event
            case CallStarted():
                self._started[event.node] = event.at
                return event
            case CallEnded():
                # A result that was given with a fork has no time between its start and its end.
                given = self._started.get(event.node) == event.at
                return replace(event, stop=self._stop_of(event), given=given)
            case QuestionAsked():
                question = event.question
                key = key_of_question(question.kind, question.text)
                return replace(event, question=replace(question, key=key))
            case NoticeGiven() if event.text.startswith(_NOT_MADE_AGAIN):
                return replace(event, calls=tuple(map(int, _NODE.findall(event.text))))
            case RequestSent():
                return replace(event, inputs=_parts(event.inputs))
            case ResponseCompleted():
                return replace(event, parts=_parts(event.parts))
            case ConversationOpened():
                return replace(event, transcript=_parts(event.transcript))
            case _:
                return event

    def _stop_of(self, ended: CallEnded) -> Stop | None:
        failure = ended.exception
        if failure is None:
            return None
        if ended.state is NodeState.Canceled:
            return _cancellation(failure)
        found = _TIMED_OUT.fullmatch(failure.message)
        if found is None or failure.type != "CallTimeoutError":
            return None
        name, path, reason = found.groups()
        # A caller that did not catch the error of its call has the same text, with that call in it.
        if self._calls.get(ended.node) not in {None, (name, path[len(path.partition(".")[0]) :])}:
            return None
        return Stop(StopCause.Timeout, reason, path)


def _cancellation(failure: Failure) -> Stop:
    found = _CANCELLED.fullmatch(failure.message)
    path, reason = found.groups() if found is not None else ("", failure.message)
    cause = StopCause.Cancelled
    if reason == "its caller stopped waiting for it":
        cause = StopCause.Abandoned
    elif reason.endswith(" did not ask for it again"):
        cause = StopCause.Unclaimed
    return Stop(cause, reason, path)


def _parts(parts: tuple[TranscriptPart, ...]) -> tuple[TranscriptPart, ...]:
    return tuple(
        replace(part, written=part.fault.removeprefix(_NOT_JSON))
        if isinstance(part, ToolUse) and part.fault and part.fault.startswith(_NOT_JSON)
        else part
        for part in parts
    )
