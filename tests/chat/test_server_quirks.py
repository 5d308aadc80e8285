"""Every way in which servers bend their streams, through a client, and a turn after each.

The turn after it is what shows that the conversation can still be sent.
"""

from typing import Any

import pytest

from chat_helpers import (
    OPENAI,
    Assistant,
    Result,
    Said,
    User,
    asked,
    entries,
    heard,
    joined,
    options,
    search,
    serving,
    text_of,
    told,
)
from treefold import Client, TextBlock, ThinkingBlock, TokenUsage, ToolUseBlock
from wire import Reply, in_pieces, openai_wire, stream
from wire.openai_wire import chunk, completion


def entry(index: int | None = 0, id: str | None = None, **function: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"function": function} if function else {}
    return made | {k: v for k, v in {"index": index, "id": id}.items() if v is not None}


async def hear(reply: Reply, **changes: Any) -> tuple[list[Any], list[Said]]:
    """Return the blocks of *reply*, and what the request after it says."""
    async with (
        serving(reply, OPENAI.text("ok")) as server,
        Client(options(server, tools=[search], **changes)) as client,
    ):
        found = await asked(client, "Go.")
        calls = [block for block in found if isinstance(block, ToolUseBlock)]
        for call in calls:
            await client.add_tool_result(call.id, "done", call.name)
        await client.query("" if calls else "Go on.")
        assert await heard(client) == [TextBlock("ok")]
    return found, told(server.requests[1])


async def calls_of(reply: Reply, **changes: Any) -> list[tuple[str, str, Any]]:
    """Return the calls of *reply*, once the request after it has shown the same ones."""
    found, sent = await hear(reply, **changes)
    calls = [(c.id, c.name, c.input) for c in found if isinstance(c, ToolUseBlock)]
    assert all(id for id, _, _ in calls)
    assert len({id for id, _, _ in calls}) == len(calls)
    assert sent == [
        User("Go."),
        Assistant(text_of(found), tuple(calls)),
        *[Result(id, "done") for id, _, _ in calls],
    ]
    return calls


async def text_in(reply: Reply) -> str:
    """Return the text of *reply*, once the request after it has shown the same one."""
    found, sent = await hear(reply)
    assert sent == [User("Go."), Assistant(text_of(found)), User("Go on.")]
    return text_of(found)


# --- calls


async def test_ids_may_be_missing():
    made = await calls_of(
        completion(
            entries(entry(0, name="search", arguments='{"q":"1"}')),
            entries(entry(1, name="search", arguments='{"q":"2"}')),
        )
    )
    assert [args for _, _, args in made] == [{"q": "1"}, {"q": "2"}]


async def test_ids_may_come_late():
    made = await calls_of(
        completion(
            entries(entry(0, name="search", arguments='{"q":')),
            entries(entry(0, arguments='"1"}')),
            entries(entry(0, "late")),
            finish="tool_calls",
        )
    )
    assert made == [("late", "search", {"q": "1"})]


async def test_id_name_and_arguments_may_come_in_any_order():
    made = await calls_of(
        completion(
            entries(entry(0, arguments='{"q": ')),
            entries(entry(0, name="search")),
            entries(entry(0, arguments='"x"}')),
            entries(entry(0, "late")),
        )
    )
    assert made == [("late", "search", {"q": "x"})]


@pytest.mark.parametrize("ids", [("a", "b", "c"), (None, None, None)])
async def test_every_call_may_be_on_index_0(ids: tuple[str | None, ...]):
    deltas = [
        entries(entry(0, id, name="search", arguments=f'{{"q":"{n}"}}')) for n, id in enumerate(ids)
    ]
    made = await calls_of(completion(*deltas, finish="tool_calls"))
    assert [args for _, _, args in made] == [{"q": "0"}, {"q": "1"}, {"q": "2"}]


async def test_every_call_may_be_on_index_0_in_fragments():
    made = await calls_of(
        completion(
            entries(entry(0, "a", name="search", arguments="")),
            entries(entry(0, arguments='{"q":')),
            entries(entry(0, arguments='"1"}')),
            entries(entry(0, "b", name="search", arguments="")),
            entries(entry(0, arguments='{"q":"2"}')),
        )
    )
    assert made == [("a", "search", {"q": "1"}), ("b", "search", {"q": "2"})]


async def test_indexes_may_be_missing():
    made = await calls_of(
        completion(
            entries(entry(None, "a", name="search", arguments='{"q":"1"}')),
            entries(entry(None, "b", name="search", arguments='{"q":"2"}')),
        )
    )
    assert made == [("a", "search", {"q": "1"}), ("b", "search", {"q": "2"})]


async def test_text_and_a_call_may_come_in_one_chunk():
    both = {"content": "Looking.", **entries(entry(0, "a", name="search", arguments='{"q":"1"}'))}
    found, sent = await hear(completion(both, finish="tool_calls"))
    assert found == [TextBlock("Looking."), ToolUseBlock("a", "search", {"q": "1"})]
    assert sent[1] == Assistant("Looking.", (("a", "search", {"q": "1"}),))


async def test_text_a_call_and_the_end_may_come_in_one_chunk():
    delta = {"content": "Looking.", **entries(entry(0, "a", name="search", arguments='{"q":"1"}'))}
    one = {"index": 0, "delta": delta, "finish_reason": "tool_calls"}
    found, _ = await hear(stream(chunk([one]), openai_wire.DONE))
    assert found == [TextBlock("Looking."), ToolUseBlock("a", "search", {"q": "1"})]


@pytest.mark.parametrize("pieces", [("se", "arch"), ("s", "e", "a", "rch"), ("search", "search")])
async def test_a_name_may_come_in_fragments_or_again(pieces: tuple[str, ...]):
    first, *others = pieces
    made = await calls_of(
        completion(
            entries(entry(0, "a", name=first, arguments="")),
            *[entries(entry(0, name=piece)) for piece in others],
            entries(entry(0, arguments='{"q":"1"}')),
        )
    )
    assert made == [("a", "search", {"q": "1"})]


@pytest.mark.parametrize(
    ("given", "args"),
    [({"q": "1"}, {"q": "1"}), ({}, {}), ("", {}), (None, {}), ("{}", {}), ("  ", {})],
)
async def test_arguments_may_be_an_object_or_empty(given: Any, args: dict[str, Any]):
    made = await calls_of(completion(entries(entry(0, "a", name="search", arguments=given))))
    assert made == [("a", "search", args)]


async def test_arguments_may_be_left_out():
    made = await calls_of(completion(entries(entry(0, "a", name="search"))))
    assert made == [("a", "search", {})]


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "function_call", "length", None])
async def test_calls_count_whatever_the_finish_reason(finish: str | None):
    delta = entries(entry(0, "a", name="search", arguments='{"q":"1"}'))
    assert await calls_of(completion(delta, finish=finish)) == [("a", "search", {"q": "1"})]


async def test_a_finish_for_calls_without_any_call_is_an_answer():
    assert await text_in(openai_wire.text("Hello", finish="tool_calls")) == "Hello"


async def test_the_old_way_to_call_a_function_still_counts():
    delta = {"function_call": {"name": "search", "arguments": '{"q":"1"}'}}
    [made] = await calls_of(completion(delta, finish="function_call"))
    assert made[1:] == ("search", {"q": "1"})


async def test_truncated_arguments_are_repaired_on_request():
    reply = completion(entries(entry(0, "a", name="search", arguments='{"q":"1')), finish="length")
    made = await calls_of(reply, allow_lenient_tool_json=True)
    assert made == [("a", "search", {"q": "1"})]


# --- text


TALE = (
    "Once upon a time there was a fox who lived near the river, and every morning it went down "
    "to the water to look for fish; but one day, when the river was frozen, it met a bear."
)


async def test_cumulative_text_is_said_once():
    words = TALE.split(" ")
    so_far = [" ".join(words[: at + 1]) for at in range(len(words))]
    assert await text_in(openai_wire.text(*so_far)) == TALE


@pytest.mark.parametrize(
    "pieces",
    [
        ("1", "1", "0"),
        ("ha", "ha", "ha", "!"),
        ("a", "ab", "abc"),
        ("\n", "\n", "\n\n", "x"),
        ("no", "no, no"),
        ("0", "00", "000", "0000"),
    ],
)
async def test_deltas_that_look_alike_are_all_kept(pieces: tuple[str, ...]):
    assert await text_in(openai_wire.text("n: ", *pieces)) == "n: " + "".join(pieces)


async def test_1_1_0_is_110():
    assert await text_in(openai_wire.text("1", "1", "0")) == "110"


async def test_the_whole_text_may_come_as_a_message_instead_of_deltas():
    choice = {"index": 0, "message": {"role": "assistant", "content": "All."}}
    reply = stream(chunk([{**choice, "finish_reason": "stop"}]), openai_wire.DONE)
    assert await text_in(reply) == "All."


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_comments_and_junk_lines_are_passed_over(size: int):
    lines = [b": PROCESSING", b"data: {broken", b"data:", b"data: null", b"data: 7", b"event: x"]
    steps: list[Any] = []
    for at, step in enumerate(openai_wire.text("one ", "two ", "three").steps):
        steps += [lines[at % len(lines)] + b"\n\n", step, b"\n"]
    assert await text_in(in_pieces(stream(*steps), size)) == "one two three"


async def test_a_character_may_be_split_between_two_pieces():
    reply = in_pieces(openai_wire.text("größer 🎈", " und weiter"), 1)
    assert await text_in(reply) == "größer 🎈 und weiter"


# --- thinking


WHOLE = "<think>Is 1 < 2? Yes.</think>\n\nIt is, and <b>that</b> is all."


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 100])
async def test_think_tags_may_be_split_across_chunks(size: int):
    pieces = [WHOLE[at : at + size] for at in range(0, len(WHOLE), size)]
    found, _ = await hear(openai_wire.text(*pieces))
    assert joined(found) == [
        ThinkingBlock("Is 1 < 2? Yes."),
        TextBlock("It is, and <b>that</b> is all."),
    ]


@pytest.mark.parametrize("size", [1, 4, 100])
async def test_the_opening_tag_may_be_missing(size: int):
    whole = "Is it? Yes.</think>It is."
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    found, _ = await hear(openai_wire.text(*pieces))
    thought = [block for block in found if isinstance(block, ThinkingBlock)]
    assert thought == [ThinkingBlock("Is it? Yes.", was_text=True)]
    before = found[: found.index(thought[0])]
    assert "".join(block.text for block in before) == "Is it? Yes."
    assert text_of(found) == "It is."


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_thinking_may_come_in_a_field_of_its_own(field: str):
    reply = openai_wire.reasoning("Hm, ", "yes.", text=["It ", "is."], field=field)
    found, _ = await hear(reply)
    assert found == [
        ThinkingBlock("Hm, "),
        ThinkingBlock("yes."),
        TextBlock("It "),
        TextBlock("is."),
    ]


async def test_thinking_may_be_followed_by_a_call():
    made = [("a", "search", '{"q":"1"}')]
    found, _ = await hear(openai_wire.reasoning("I should ", "search.", calls=made))
    assert joined(found) == [
        ThinkingBlock("I should search."),
        ToolUseBlock("a", "search", {"q": "1"}),
    ]


async def test_thinking_in_tags_may_be_followed_by_a_call():
    delta = entries(entry(0, "a", name="search", arguments='{"q":"1"}'))
    found, _ = await hear(completion({"content": "<think>Search"}, {"content": ".</think>"}, delta))
    assert joined(found) == [
        ThinkingBlock("Search."),
        ToolUseBlock("a", "search", {"q": "1"}),
    ]


# --- usage


async def test_usage_may_come_in_the_last_chunk_or_not_at_all():
    script = [openai_wire.text("ok"), openai_wire.text("ok", usage=None)]
    async with serving(*script) as server, Client(options(server)) as client:
        await asked(client, "1")
        counted = client.usage
        assert counted == TokenUsage(input=8, cache_read=3, reasoning=2, output=5)
        await asked(client, "2")
        assert client.usage == counted
