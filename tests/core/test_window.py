"""What is sent is derived from what was said."""

import itertools
from typing import Final

import pytest

from treefold import ModelText, TokenUsage, ToolResult, ToolUse, UserText
from treefold.core.agent_events import ResponseCompleted
from treefold.core.epoch import Epoch
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


def test_all_is_sent_in_the_first_epoch():
    window = Window.of(CONVERSATION)
    assert window.exchanges == [response.exchange for response in CONVERSATION]
    assert window.parts == [response.parts for response in CONVERSATION]
    assert (window.asked, window.before, window.bare) == ([CALL], [], 0)
    assert Window.of([]) == Window([], [], [], before=[])


@pytest.mark.parametrize("since", range(1, 8))
def test_a_window_begins_with_the_exchange_of_its_epoch(since: int):
    window = Window.of(CONVERSATION, Epoch(since=since, head=("So far ...",), bare=6))
    assert window.exchanges == [one.exchange for one in CONVERSATION[since - 1 :]]
    assert window.asked == [CALL]
    assert window.bare == len(window.exchanges)


@pytest.mark.parametrize(("since", "calls"), [(2, 0), (3, 1), (4, 1), (5, 0), (6, 0), (7, 1)])
def test_a_head_ends_with_the_calls_whose_results_follow(since: int, calls: int):
    window = Window.of(CONVERSATION, Epoch(since=since, head=("So far ...",)))
    assert window.before == [CALL] * calls


def test_a_window_only_grows_by_appending():
    for since in range(1, 8):
        epoch = Epoch(since=since, head=("So far ...",), bare=since - 1)
        windows = [Window.of(CONVERSATION[:end], epoch) for end in range(since, 7)]
        for earlier, later in itertools.pairwise(windows):
            assert later.exchanges[:-1] == earlier.exchanges
            assert later.bare == earlier.bare == 0
