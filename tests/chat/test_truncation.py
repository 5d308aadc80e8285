"""How histories are cut: what is kept, and how much of it."""

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from treefold import compact_messages, estimate_tokens, truncate_messages

Message = dict[str, Any]

SYSTEM = {"role": "system", "content": "Be brief."}


@pytest.fixture(autouse=True)
def count_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have tokens estimated the same way everywhere."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def calls(*ids: str) -> Message:
    made = [
        {"id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}}
        for id in ids
    ]
    return {"role": "assistant", "content": "", "tool_calls": made}


def result(id: str) -> Message:
    return {"role": "tool", "tool_call_id": id, "name": "look", "content": f"result of {id}"}


def documented(messages: list[Message], keep: int, *, preserve_system: bool) -> list[Message]:
    """What the document's own code gives."""
    if len(messages) <= keep:
        return messages
    first = messages[:1] if preserve_system and messages[0]["role"] == "system" else []
    return [*first, *messages[len(messages) - keep :]]


def torn(messages: list[Message]) -> list[Message]:
    """The results whose call does not stand before them."""
    made: set[str] = set()
    lost: list[Message] = []
    for message in messages:
        made.update(call["id"] for call in message.get("tool_calls", ()))
        if message["role"] == "tool" and message["tool_call_id"] not in made:
            lost.append(message)
    return lost


# Estimating


def test_four_characters_of_all_values_are_a_token():
    messages = [user("x" * 36), assistant("y" * 31)]

    assert estimate_tokens(messages) == (4 + 36 + 9 + 31) // 4
    assert estimate_tokens(messages, model="qwen3") == 20
    assert estimate_tokens([]) == 0


def test_what_is_no_message_is_refused_with_a_remedy():
    for function in (estimate_tokens, truncate_messages, lambda m: compact_messages(m, 10)):
        with pytest.raises(ValueError, match="as in client.history"):
            function(["Hello"])  # pyright: ignore


# Truncating


def test_the_last_messages_and_the_system_message_are_kept():
    history = [SYSTEM, *(user(str(n)) for n in range(20))]

    assert truncate_messages(history) == [SYSTEM, *history[-10:]]
    assert truncate_messages(history, keep=2) == [SYSTEM, *history[-2:]]
    assert truncate_messages(history, keep=2, preserve_system=False) == history[-2:]
    assert truncate_messages(history, 2, False) == history[-2:]  # noqa: FBT003 - as documented


def test_nothing_is_kept_with_keep_0_but_the_system_message():
    history = [SYSTEM, user("a"), assistant("b")]

    assert truncate_messages(history, keep=0) == [SYSTEM]
    assert truncate_messages(history, keep=0, preserve_system=False) == []
    assert truncate_messages(history[1:], keep=0) == []


@pytest.mark.parametrize("keep", [3, 4, 100])
def test_a_history_that_is_short_enough_is_copied(keep: int):
    history = [SYSTEM, user("a"), assistant("b")]

    found = truncate_messages(history, keep)

    assert found == history
    assert found is not history


@pytest.mark.parametrize("keep", range(8))
def test_exactly_the_last_messages_are_kept_wherever_that_cuts(keep: int):
    history = [
        *[user("a"), assistant("b"), user("c")],
        *[calls("1", "2"), result("1"), result("2"), assistant("d")],
    ]
    assert truncate_messages(history, keep) == history[7 - keep :]


@pytest.mark.parametrize("keep", [-1, 1.5, "3", None, True])
def test_a_number_that_makes_no_sense_is_a_value_error(keep: Any):
    with pytest.raises(ValueError, match="keep="):
        truncate_messages([user("a")], keep)


# Compacting


def test_whole_exchanges_are_kept_from_the_end():
    first = [user("a" * 400), calls("1"), result("1"), assistant("b")]
    second = [user("c"), calls("2"), result("2"), assistant("d")]
    third = [user("e"), assistant("f")]
    history = [SYSTEM, *first, *second, *third]

    enough = estimate_tokens(history)
    for_two = estimate_tokens([SYSTEM, *second, *third])

    assert compact_messages(history, enough) == history
    assert compact_messages(history, enough - 1) == [SYSTEM, *second, *third]
    assert compact_messages(history, for_two) == [SYSTEM, *second, *third]
    assert compact_messages(history, for_two - 1) == [SYSTEM, *third]


def test_the_last_exchange_is_kept_even_if_it_is_too_large():
    history = [SYSTEM, user("a"), assistant("b"), user("c" * 4_000), calls("1"), result("1")]

    assert compact_messages(history, 10) == [SYSTEM, *history[3:]]
    assert compact_messages(history, 0) == [SYSTEM, *history[3:]]


def test_what_the_system_said_in_between_is_kept_too():
    note = {"role": "system", "content": "From now on: French."}
    history = [SYSTEM, user("a" * 400), note, assistant("b"), user("c")]

    assert compact_messages(history, 40) == [SYSTEM, note, user("c")]


def test_a_history_without_a_user_is_one_exchange():
    history = [assistant("a" * 400), assistant("b")]

    assert compact_messages(history, 1) == history
    assert compact_messages([], 1) == []


def test_a_prompt_before_the_result_does_not_tear_the_call_from_it():
    history = [user("a" * 400), calls("1"), user("b"), result("1"), assistant("c"), user("d")]

    assert compact_messages(history, 1) == [user("d")]
    assert compact_messages(history[:-1], 1) == history[:-1]


@pytest.mark.parametrize("tokens", [-1, "10", None, True])
def test_a_number_of_tokens_that_makes_no_sense_is_a_value_error(tokens: Any):
    with pytest.raises(ValueError, match="max_tokens="):
        compact_messages([user("a")], tokens)


# Whatever the history


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Histories as a conversation leaves them; ids are as unique as some servers make them."""
    messages: list[Message] = [SYSTEM] if draw(st.booleans()) else []
    size = st.integers(0, 200)
    for n in range(draw(st.integers(0, 6))):
        messages.append(user(f"{n}" * draw(size)))
        for step in range(draw(st.integers(0, 3))):
            unique = draw(st.booleans())
            ids = [f"{n}.{step}.{i}" if unique else str(i) for i in range(draw(st.integers(1, 3)))]
            messages += [calls(*ids), *map(result, ids)]
        if draw(st.booleans()):
            messages.append(assistant("." * draw(size)))
    return messages


def is_part_in_order(part: list[Message], whole: list[Message]) -> bool:
    rest = iter(whole)
    return all(any(message is one for one in rest) for message in part)


anyhow = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@anyhow
@given(history=histories(), keep=st.integers(0, 30), preserve_system=st.booleans())
def test_truncating_keeps_what_the_document_says(
    *, history: list[Message], keep: int, preserve_system: bool
):
    before = copy.deepcopy(history)

    found = truncate_messages(history, keep, preserve_system)

    assert found == documented(history, keep, preserve_system=preserve_system)
    assert history == before
    assert found is not history


@anyhow
@given(histories(), st.integers(0, 400))
def test_compacting_keeps_as_many_whole_exchanges_as_fit(history: list[Message], tokens: int):
    before = copy.deepcopy(history)
    users = [i for i, message in enumerate(history) if message["role"] == "user"]

    found = compact_messages(history, tokens)

    assert history == before
    assert found is not history
    assert is_part_in_order(found, history)
    assert torn(found) == []
    assert found[:1] == history[:1] or SYSTEM not in history
    ways = [
        [m for i, m in enumerate(history) if i >= start or m["role"] == "system"]
        for start in ([0, *users] if users else [0])
    ]
    fitting = [way for way in ways if estimate_tokens(way) <= tokens]
    assert found == (fitting[0] if fitting else ways[-1])
