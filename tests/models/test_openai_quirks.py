"""What OpenAI-compatible servers send, and what a session makes of it over HTTP."""

import json
from typing import Any

import pytest

from treefold import registries, tool
from treefold.core.errors import ModelProviderException
from treefold.core.exchange import Finish
from treefold.core.model import ModelSettings, Session
from treefold.core.model_events import (
    AttemptFailed,
    ModelEvent,
    PartCompleted,
    ResponseEnded,
    TextDelta,
    ThinkingDelta,
    ToolUseDelta,
)
from treefold.core.transcript import (
    ModelText,
    ThinkingPart,
    ToolResult,
    ToolUse,
    TranscriptPart,
    UserText,
)
from treefold.models import Profile, Retry
from wire import ModelServer, Reply, in_pieces, openai_wire, stream
from wire.openai_wire import chunk, completion
from wire.protocols import PROTOCOLS, answer

OPENAI, _, _ = PROTOCOLS

with registries():

    @tool
    async def search(q: str = "") -> str:
        """Search for something."""
        return q


class Heard:
    """What came of one reply, and of sending results for all of its calls."""

    def __init__(self, events: list[ModelEvent], session: Session, server: ModelServer) -> None:
        self.events = events
        self.transcript: list[TranscriptPart] = list(session.transcript)
        self.requests = server.requests
        self.session = session

    @property
    def parts(self) -> list[TranscriptPart]:
        return [event.part for event in self.events if isinstance(event, PartCompleted)]

    @property
    def calls(self) -> list[ToolUse]:
        return [part for part in self.parts if isinstance(part, ToolUse)]

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, ModelText))

    @property
    def streamed(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def thought(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, ThinkingPart))

    @property
    def finish(self) -> Finish:
        end = self.events[-1]
        assert isinstance(end, ResponseEnded)
        return end.exchange.finish


LENIENT = ModelSettings(allow_lenient_tool_json=True)


async def hear(reply: Reply, settings: ModelSettings | None = None, **options: Any) -> Heard:
    """Let a model answer with *reply*, give results, and have the server check what is sent."""
    async with OPENAI.server(reply, openai_wire.text("ok")) as server:
        session = OPENAI.model(server, **options).open("", [search], settings)
        events = await answer(session, UserText("Go."))
        heard = Heard(events, session, server)
        results = [ToolResult(call.id, "done") for call in heard.calls]
        await answer(session, *results or [UserText("Go on.")])
    assert session.transcript[-1] == ModelText("ok")
    return heard


def calls(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": list(entries)}


def entry(index: int | None = 0, id: str | None = None, **function: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"function": function} if function else {}
    if index is not None:
        made["index"] = index
    if id is not None:
        made["id"] = id
    return made


AS_TEXT = '{"name": "search", "arguments": {"q": "rain"}}'


@pytest.mark.parametrize(
    "text",
    [
        AS_TEXT,
        f"```json\n{AS_TEXT}\n```",
        f"{{{AS_TEXT}}}",
        f"<tool_call>\n{AS_TEXT}\n</tool_call>",
        f"<think>Ask.</think>\n{AS_TEXT}",
    ],
)
async def test_a_response_that_is_nothing_but_a_call_is_that_call(text: str):
    heard = await hear(openai_wire.text(*[text[at : at + 4] for at in range(0, len(text), 4)]))
    assert [(call.name, call.args) for call in heard.calls] == [("search", {"q": "rain"})]
    assert heard.finish is Finish.TOOL_USE
    assert heard.text == heard.streamed == ""
    assert heard.thought == ("Ask." if "think" in text else "")
    _, said, result = heard.requests[1].json["messages"]
    assert said["tool_calls"][0]["id"] == result["tool_call_id"]
    assert "name" not in (said["content"] or "")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f"I would call {AS_TEXT}", {}),
        (f"{AS_TEXT} would do.", {}),
        (AS_TEXT.replace("search", "delete"), {}),
        (AS_TEXT, {"profile": Profile(calls_in_text=False)}),
        (AS_TEXT, {"settings": ModelSettings(call_functions=False)}),
    ],
)
async def test_text_that_is_not_only_a_call_of_an_offered_function_is_text(
    text: str, options: dict[str, Any]
):
    heard = await hear(openai_wire.text(*text), **options)
    assert heard.text == heard.streamed == text
    assert heard.finish is Finish.ANSWERED


async def test_a_call_in_two_chunks_is_one_call():
    heard = await hear(
        completion(
            calls(entry(id="call_abc", name="search", arguments='{"q": "par')),
            calls(entry(arguments='is"}')),
            finish="tool_calls",
        )
    )
    assert heard.calls == [ToolUse("call_abc", "search", {"q": "paris"})]
    assert heard.finish is Finish.TOOL_USE
    assert len([e for e in heard.events if isinstance(e, PartCompleted)]) == 1


async def test_id_name_and_arguments_may_come_in_chunks_of_their_own_and_in_any_order():
    heard = await hear(
        completion(
            calls(entry(arguments='{"q": ')),
            calls(entry(name="search")),
            calls(entry(arguments='"x"}')),
            calls(entry(id="late")),
            finish="tool_calls",
        )
    )
    [call] = heard.calls
    assert (call.id, call.name, dict(call.args)) == ("late", "search", {"q": "x"})
    deltas = [event for event in heard.events if isinstance(event, ToolUseDelta)]
    assert json.loads("".join(event.arguments for event in deltas)) == {"q": "x"}


async def test_calls_without_ids_get_ids_that_differ_and_are_sent_back():
    heard = await hear(
        completion(
            calls(entry(0, name="search", arguments='{"q":"1"}')),
            calls(entry(1, name="search", arguments='{"q":"2"}')),
        )
    )
    first, second = heard.calls
    assert first.id
    assert first.id != second.id
    told = heard.requests[1].json["messages"]
    assert [m["tool_call_id"] for m in told if m["role"] == "tool"] == [first.id, second.id]


async def test_made_up_ids_differ_between_responses():
    reply = completion(calls(entry(0, name="search", arguments='{"q":"1"}')))
    async with OPENAI.server(reply, reply, OPENAI.text("ok")) as server:
        session = OPENAI.model(server).open("", [search])
        await answer(session, UserText("Go."))
        for _ in range(2):
            last = session.transcript[-1]
            assert isinstance(last, ToolUse)
            await answer(session, ToolResult(last.id, "x"))
    ids = [part.id for part in session.transcript if isinstance(part, ToolUse)]
    assert len(set(ids)) == 2


@pytest.mark.parametrize("ids", [("a", "b", "c"), (None, None, None)])
async def test_calls_that_all_are_on_index_0_stay_apart(ids: tuple[str | None, ...]):
    given = [f'{{"q":"{n}"}}' for n in range(3)]
    deltas = [
        calls(entry(0, id, name="search", arguments=args))
        for id, args in zip(ids, given, strict=True)
    ]
    heard = await hear(completion(*deltas, finish="tool_calls"))
    assert [dict(call.args) for call in heard.calls] == [{"q": "0"}, {"q": "1"}, {"q": "2"}]
    assert len({call.id for call in heard.calls}) == 3


async def test_calls_on_index_0_with_ids_may_come_in_fragments():
    heard = await hear(
        completion(
            calls(entry(0, "a", name="search", arguments="")),
            calls(entry(0, arguments='{"q":')),
            calls(entry(0, arguments='"1"}')),
            calls(entry(0, "b", name="search", arguments="")),
            calls(entry(0, arguments='{"q":"2"}')),
        )
    )
    assert heard.calls == [ToolUse("a", "search", {"q": "1"}), ToolUse("b", "search", {"q": "2"})]


async def test_fragments_of_two_calls_may_alternate():
    heard = await hear(
        completion(
            calls(entry(0, "a", name="search"), entry(1, "b", name="search")),
            calls(entry(1, arguments='{"q":')),
            calls(entry(0, arguments='{"q":')),
            calls(entry(0, arguments='"1"}'), entry(1, arguments='"2"}')),
        )
    )
    assert heard.calls == [ToolUse("a", "search", {"q": "1"}), ToolUse("b", "search", {"q": "2"})]


async def test_text_a_call_and_the_end_in_one_chunk_are_all_kept():
    delta = {"content": "Looking. ", **calls(entry(0, "a", name="search", arguments='{"q":"1"}'))}
    one = {"index": 0, "delta": delta, "finish_reason": "tool_calls"}
    heard = await hear(stream(chunk([one]), openai_wire.DONE))
    assert heard.text == heard.streamed == "Looking. "
    assert heard.calls == [ToolUse("a", "search", {"q": "1"})]
    assert heard.finish is Finish.TOOL_USE


@pytest.mark.parametrize("pieces", [("se", "arch"), ("s", "e", "a", "rch")])
async def test_a_name_may_come_in_fragments(pieces: tuple[str, ...]):
    first, *others = pieces
    heard = await hear(
        completion(
            calls(entry(0, "a", name=first, arguments="")),
            *[calls(entry(0, name=piece)) for piece in others],
            calls(entry(0, arguments='{"q":"1"}')),
        )
    )
    assert heard.calls == [ToolUse("a", "search", {"q": "1"})]


@pytest.mark.parametrize(
    ("given", "args"),
    [({"q": "1"}, {"q": "1"}), ("", {}), (None, {}), ("{}", {}), ("  ", {}), ({}, {})],
)
async def test_arguments_may_be_an_object_or_nothing(given: Any, args: dict[str, Any]):
    heard = await hear(completion(calls(entry(0, "a", name="search", arguments=given))))
    assert heard.calls == [ToolUse("a", "search", args)]
    sent = heard.requests[1].json["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(sent) == args


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "function_call", "length"])
async def test_calls_count_whatever_the_finish_reason(finish: str):
    made = calls(entry(0, "a", name="search", arguments='{"q":"1"}'))
    heard = await hear(completion(made, finish=finish))
    assert heard.calls == [ToolUse("a", "search", {"q": "1"})]
    assert heard.finish is (Finish.MAX_TOKENS if finish == "length" else Finish.TOOL_USE)


async def test_a_finish_for_calls_without_any_call_is_an_answer():
    heard = await hear(openai_wire.text("Hello", finish="tool_calls"))
    assert (heard.text, heard.finish) == ("Hello", Finish.ANSWERED)


async def test_calls_of_one_response_are_forgotten_in_the_next():
    reply = completion(calls(entry(0, "a", name="search", arguments='{"q":')), finish="length")
    whole = completion(calls(entry(0, "b", name="search", arguments='{"q":"2"}')))
    async with OPENAI.server(reply, whole) as server:
        session = OPENAI.model(server).open("", [search])
        await answer(session, UserText("Go."))
        events = await answer(session, ToolResult("a", "cut off", is_error=True))
    parts = [event.part for event in events if isinstance(event, PartCompleted)]
    assert parts == [ToolUse("b", "search", {"q": "2"})]


async def test_arguments_that_never_are_json_are_told_with_their_text():
    heard = await hear(completion(calls(entry(0, "a", name="search", arguments='{"q": [1,,'))))
    [call] = heard.calls
    assert call.fault
    assert '{"q": [1,,' in call.fault


async def test_a_call_without_a_name_says_that_the_name_is_missing():
    heard = await hear(completion(calls(entry(0, "a", arguments='{"q":"1"}'))))
    [call] = heard.calls
    assert call.fault
    assert "name" in call.fault


async def test_one_broken_call_does_not_spoil_another():
    heard = await hear(
        completion(
            calls(entry(0, "a", name="search", arguments='{"q": oops')),
            calls(entry(1, "b", name="search", arguments='{"q":"2"}')),
        )
    )
    assert [call.fault is None for call in heard.calls] == [False, True]
    assert heard.calls[1] == ToolUse("b", "search", {"q": "2"})


@pytest.mark.parametrize(
    ("cut", "args"),
    [
        ('{"q": "a", "n": [1, 2', {"q": "a", "n": [1, 2]}),
        ('{"q": "a"', {"q": "a"}),
        ('{"q": "a\\', {"q": "a"}),
        ('{"q": {"deep": "a', {"q": {"deep": "a"}}),
    ],
)
async def test_arguments_cut_off_are_mended_only_on_request(cut: str, args: dict[str, Any]):
    reply = completion(calls(entry(0, "a", name="search", arguments=cut)), finish="length")
    strict, lenient = await hear(reply), await hear(reply, LENIENT)
    assert strict.calls[0].fault
    assert (dict(lenient.calls[0].args), lenient.calls[0].fault) == (args, None)


@pytest.mark.parametrize(
    "pieces",
    [
        ("1", "1", "0"),
        ("ha", "ha", "ha", "!"),
        ("a", "ab", "abc"),
        ("\n", "\n", "\n\n"),
        ("no", "no, no"),
        ("0", "00", "000", "0000"),
    ],
)
async def test_deltas_that_look_alike_are_all_kept(pieces: tuple[str, ...]):
    heard = await hear(openai_wire.text("n: ", *pieces))
    assert heard.text == heard.streamed == "n: " + "".join(pieces)


TALE = (
    "Once upon a time there was a fox who lived near the river, and every morning it went down "
    "to the water to look for fish; but one day, when the river was frozen, it met a bear."
)
STORY = TALE.split(" ")


async def test_text_that_is_sent_again_with_each_chunk_is_said_once():
    sofar = [" ".join(STORY[: at + 1]) for at in range(len(STORY))]
    heard = await hear(openai_wire.text(*sofar))
    assert heard.text == " ".join(STORY)


async def test_a_profile_says_that_text_is_sent_again_or_that_it_is_not():
    again = await hear(openai_wire.text("a", "ab", "abc"), profile=Profile(cumulative=True))
    assert again.text == again.streamed == "abc"
    sofar = [" ".join(STORY[: at + 1]) for at in range(len(STORY))]
    never = await hear(openai_wire.text(*sofar), profile=Profile(cumulative=False))
    assert never.text == never.streamed == "".join(sofar)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 100])
async def test_thinking_in_tags_is_thinking_however_the_tags_are_split(size: int):
    whole = "<think>Is 1 < 2? Yes.</think>\n\nIt is, and <b>that</b> is all."
    heard = await hear(
        openai_wire.text(*[whole[at : at + size] for at in range(0, len(whole), size)])
    )
    assert heard.thought == "Is 1 < 2? Yes."
    assert heard.text.strip() == "It is, and <b>that</b> is all."
    thoughts = [event.text for event in heard.events if isinstance(event, ThinkingDelta)]
    assert "".join(thoughts).strip() == "Is 1 < 2? Yes."
    assert "think>" not in heard.streamed


async def test_thinking_in_tags_goes_back_as_it_came():
    heard = await hear(openai_wire.text("<think>\nHm.\n</th", "ink>\n\nok then"))
    assert heard.requests[1].json["messages"][1]["content"] == "<think>\nHm.\n</think>\n\nok then"


@pytest.mark.parametrize("size", [1, 4, 100])
async def test_thinking_without_its_opening_tag_is_thinking(size: int):
    whole = "Is it? Yes.</think>It is."
    heard = await hear(
        openai_wire.text(*[whole[at : at + size] for at in range(0, len(whole), size)])
    )
    assert (heard.thought, heard.text) == ("Is it? Yes.", "It is.")


async def test_thinking_and_a_call_without_text_keeps_both():
    made = [("a", "search", '{"q":"1"}')]
    heard = await hear(openai_wire.reasoning("I should ", "search.", calls=made))
    assert heard.parts == [ThinkingPart("I should search."), ToolUse("a", "search", {"q": "1"})]


async def test_usage_in_a_last_chunk_without_choices_is_counted():
    heard = await hear(openai_wire.text("ok"))
    usage = heard.session.exchanges[0].usage
    assert (usage.input, usage.cache_read, usage.reasoning, usage.output) == (8, 3, 2, 5)


async def test_a_server_that_tells_no_usage_counts_for_nothing():
    heard = await hear(openai_wire.text("ok", usage=None))
    assert heard.session.exchanges[0].usage.total == 0


async def test_comments_and_junk_between_the_chunks_are_passed_over():
    reply = openai_wire.text("one ", "two ", "three")
    lines = [b": OPENROUTER PROCESSING", b"data: {broken", b"data:", b"data: null", b"data: 7"]
    junk = [line + b"\n\n" for line in (*lines, b'data: "text"', b"event: x", b"")]
    junk.append(b"garbage\n")
    steps: list[Any] = []
    for at, step in enumerate(reply.steps):
        steps += [junk[at % len(junk)], junk[(at + 1) % len(junk)], step]
    for size in (1, 13, 10_000):
        heard = await hear(in_pieces(stream(*steps), size))
        assert heard.text == heard.streamed == "one two three"
        assert not [event for event in heard.events if isinstance(event, AttemptFailed)]


async def test_a_stream_without_any_end_is_retried_and_not_taken_for_an_answer():
    cut = openai_wire.text("one ", "two", finish=None, usage=None, done=False)
    async with OPENAI.server(cut) as server:
        session = OPENAI.model(server, retry=Retry(())).open()
        with pytest.raises(ModelProviderException):
            await answer(session, UserText("Hi"))
    assert session.transcript == []


async def test_what_only_the_server_understands_about_a_call_goes_back_to_it():
    # Gemini behind its OpenAI-compatible address wants its thought signature back like this.
    kept = {"google": {"thought_signature": "c2lnbmVk"}}
    made = entry(0, "a", name="search", arguments='{"q":"1"}') | {"extra_content": kept}
    heard = await hear(completion(calls(made)))
    sent = heard.requests[1].json["messages"][1]["tool_calls"][0]
    assert sent.get("extra_content") == kept
