"""What is sent is derived from what was said."""

import itertools
from typing import Final

import pytest

from treefold import ModelText, TokenUsage, ToolResult, ToolUse, UserText
from treefold.core.agent_events import ResponseCompleted
from treefold.core.transcript import TranscriptPart
from treefold.core.window import Window
from treefold.models import Exchange, Finish

CALL: Final = ToolUse("1", "look")
RESULT: Final = ToolResult("1", "a cup")


def said(*exchanges: tuple[TranscriptPart, ...]) -> list[ResponseCompleted]:
    found: list[ResponseCompleted] = []
    for step, parts in enumerate(exchanges, 1):
        exchange = Exchange(
            dialect="plain",
            sent=(f"sent {step}",),
            received=(f"received {step}",),
            finish=Finish.ANSWERED,
            usage=TokenUsage(),
        )
        found.append(ResponseCompleted(1, 0.0, exchange, parts, TokenUsage(), None, step=step))
    return found


CONVERSATION: Final = said(
    (UserText("Hi."), ModelText("Hello.")),
    (UserText("Look."), CALL),
    (RESULT, CALL),
    (RESULT, UserText("And?"), ModelText("A cup.")),
    (ModelText("Still a cup."),),  # a response that was paused goes on
    (UserText("Again."), CALL),
)


def test_all_is_sent_unless_a_conversation_is_opened_otherwise():
    window = Window.of(CONVERSATION)
    assert window.exchanges == [response.exchange for response in CONVERSATION]
    assert window.parts == [response.parts for response in CONVERSATION]
    assert (window.asked, window.since) == ([CALL], 1)
    assert Window.of([]) == Window([], [], [])


@pytest.mark.parametrize(
    ("since", "begins"), [(1, 1), (2, 2), (3, 2), (4, 2), (5, 2), (6, 6), (7, 6)]
)
def test_a_window_begins_where_no_call_is_parted_from_its_result(since: int, begins: int):
    window = Window.of(CONVERSATION, since)
    assert window.since == begins
    assert window.exchanges == [one.exchange for one in CONVERSATION[begins - 1 :]]


def test_a_window_only_grows_by_appending():
    for since in range(1, 8):
        known = Window.of(CONVERSATION[:since], since).since
        windows = [Window.of(CONVERSATION[:end], known) for end in range(since, 7)]
        for earlier, later in itertools.pairwise(windows):
            assert later.exchanges[:-1] == earlier.exchanges
