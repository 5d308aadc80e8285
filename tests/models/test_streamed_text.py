"""However a stream is cut, no character is lost or doubled."""

import json
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings, strategies as st

from treefold.core.model import ModelSettings
from treefold.core.model_events import Noticed, TextDelta, TextWasThinking, ThinkingDelta
from treefold.models.anthropic.dialect import AnthropicDialect
from treefold.models.gemini.dialect import GeminiDialect
from treefold.models.json_text import SurrogateJoiner
from treefold.models.openai.decoder import OpenAIDecoder
from treefold.models.openai.lenient_json import repair_json
from treefold.models.openai.streamed_text import DeltaText, ThinkTagParser
from treefold.models.profiles import Profile
from treefold.models.sse import MAX_EVENT_BYTES, BrokenStreamError, JsonEventParser

TEXT = st.text(alphabet=st.characters(codec="utf-8"), max_size=200)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Return *data* cut at *places*."""
    ends = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(ends)]


def line(delta: dict[str, object], finish: str | None = None, *, ascii: bool = False) -> bytes:
    chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return f"data: {json.dumps(chunk, ensure_ascii=ascii)}\n\n".encode()


def decoded(portions: list[bytes]) -> tuple[str, str]:
    decoder = OpenAIDecoder(Profile())
    text, thinking = "", ""
    events = [event for portion in portions for event in decoder.feed(portion)]
    for event in [*events, *decoder.end()]:
        match event:
            case TextDelta():
                text += event.text
            case ThinkingDelta():
                thinking += event.text
            case TextWasThinking():
                text, thinking = "", text
            case Noticed():
                pass
            case _:
                raise AssertionError(event)
    decoder.response()
    return text, thinking


@settings(max_examples=300)
@given(
    pieces=st.lists(TEXT, max_size=12), places=st.lists(st.integers(0, 3000)), ascii=st.booleans()
)
def test_text_survives_any_cut_of_the_stream(
    pieces: list[str],
    places: list[int],
    ascii: bool,  # noqa: FBT001 - hypothesis gives it by name
):
    whole = "".join(pieces)
    lines = [line({"content": piece}, ascii=ascii) for piece in pieces]
    data = b"".join([*lines, line({}, "stop"), b"data: [DONE]\n\n"])
    assume("think>" not in whole)
    said = [piece for piece in pieces if piece]
    assume(not any(later.startswith(said[0]) for later in said[1:]))  # or it looks cumulative
    assert decoded(cut(data, places)) == (whole, "")


@given(
    thought=TEXT.map(str.strip),
    said=TEXT.map(str.strip),
    sizes=st.lists(st.integers(1, 20), min_size=1),
    blank=st.sampled_from(["", "\n", "\n\n"]),
)
def test_thinking_survives_any_cut_of_the_text(
    thought: str, said: str, sizes: list[int], blank: str
):
    whole = f"<think>{blank}{thought}{blank}</think>{blank}{said}"
    pieces: list[str] = []
    at = 0
    while at < len(whole):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(whole[at : at + size])
        at += size
    lines = [line({"content": piece}) for piece in pieces]
    text, thinking = decoded([b"".join([*lines, line({}, "stop")])])
    if "think>" not in thought + said:
        assert (text, thinking) == (said, thought)


@given(texts=st.lists(TEXT, max_size=8))
def test_halves_of_characters_are_joined(texts: list[str]):
    units = "".join(texts).encode("utf-16-le", "surrogatepass")
    halves = [
        units[i : i + 2].decode("utf-16-le", "surrogatepass") for i in range(0, len(units), 2)
    ]
    characters = SurrogateJoiner()
    joined = "".join(map(characters.feed, halves)) + characters.end()
    assert joined == "".join(texts)


def test_half_a_character_alone_is_replaced():
    characters = SurrogateJoiner()
    assert characters.feed("x\ud83d") + characters.end() == "x�"


@pytest.mark.parametrize(
    "pieces",
    [["1", "1", "0"], ["ha"] * 20, ["-" * n for n in range(1, 80)], ["ab", "abab", "abababab"] * 3],
)
def test_repetition_is_not_mistaken_for_cumulative_text(pieces: list[str]):
    new = DeltaText()
    assert "".join(map(new.feed, pieces)) + new.end() == "".join(pieces)


@pytest.mark.parametrize(
    ("pieces", "given_out"),
    [
        (["The", "The capital", "The capital is Paris."], ["The", " capital", " is Paris."]),
        (["The", "The capital"], ["The", " capital"]),
        (["Hmm", "Hmm, yes", "Hmm, yes"], ["Hmm", ", yes", ""]),
        (["T", "Th", "The", "The capital", "The capital is"], ["T", "", "", "he capital", " is"]),
        (["Paris", "Paris", "Paris is"], ["Paris", "", " is"]),
        (["Paris", "Paris is it. ", "Paris is it."], ["Paris", " is it. ", ""]),
        (
            ["Paris", "Paris is", "Paris is it", "Rome", "Rome is"],
            ["Paris", " is", " it", "Rome", " is"],
        ),
    ],
)
def test_a_piece_that_extends_all_before_it_shows_cumulative_text(
    pieces: list[str], given_out: list[str]
):
    new = DeltaText()
    assert [*map(new.feed, pieces), new.end()] == [*given_out, ""]


def test_one_extension_by_chance_does_not_swallow_what_follows():
    new = DeltaText()
    assert "".join(map(new.feed, ["no, ", "no, never", " and", " and", "no", "no"])) == (
        "no, never and andnono"
    )


def test_a_profile_settles_it():
    pieces = ["a", "ab", "abc"]
    assert "".join(map(DeltaText(cumulative=True).feed, pieces)) == "abc"
    assert "".join(map(DeltaText(cumulative=False).feed, pieces)) == "aababc"


def test_text_about_tags_stays_text():
    thoughts = ThinkTagParser("<think>", "</think>")
    text = "Write <think> and </think> around it, then </think> again."
    assert "".join(piece for kind, piece in thoughts.feed(text) if kind == "text") == text


def test_a_line_that_never_ends_is_given_up():
    events = JsonEventParser()
    for _ in range(MAX_EVENT_BYTES // 2**20):
        events.feed(b"x" * 2**20)
    with pytest.raises(BrokenStreamError, match="an event of more than"):
        events.feed(b"x")


@given(data=st.binary(max_size=400), places=st.lists(st.integers(0, 400)))
def test_no_bytes_break_the_decoder(data: bytes, places: list[int]):
    whole, pieces = OpenAIDecoder(Profile()), OpenAIDecoder(Profile())
    expected = [*whole.feed(data), *whole.end()]
    found = [event for portion in cut(data, places) for event in pieces.feed(portion)]
    assert [*found, *pieces.end()] == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    chunk=st.dictionaries(st.sampled_from(["choices", "usage", "error", "object"]), JSON),
    delta=JSON,
)
def test_no_json_breaks_the_decoder(chunk: dict[str, object], delta: object):
    decoder = OpenAIDecoder(Profile(), ["look"])
    fields = {"content": delta, "tool_calls": [{"function": delta, "index": delta, "id": delta}]}
    values = [chunk, {"choices": [{"delta": delta}]}, {"choices": [{"delta": fields}]}]
    values += [{"choices": [{"delta": {"tool_calls": delta, "reasoning": delta}}]}]
    for value in values:
        decoder.feed(f"data: {json.dumps(value)}\n\n".encode())
    decoder.end()
    decoder.feed(b"data: [DONE]\n\n")
    assert decoder.usage.total >= 0


BLOCKS = st.sampled_from(["text", "thinking", "tool_use", "redacted_thinking", "other"])


@given(value=JSON, kind=BLOCKS, field=st.sampled_from(["text", "input", "name", "signature"]))
def test_no_json_breaks_the_decoder_of_claude(value: object, kind: str, field: str):
    dialect = AnthropicDialect("m", Profile(), "", (), ModelSettings())
    decoder = dialect.decoder()
    block = {"type": kind, field: value}
    cited, ended = {"type": "citations_delta", "citation": value}, {"stop_reason": "end_turn"}
    events = [
        {"type": "message_start", "message": {"usage": value}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": {"type": value}},
        {"type": "content_block_delta", "index": 0, "delta": cited},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": value}},
        {"type": value},
    ]
    for event in events:
        decoder.feed(f"data: {json.dumps(event)}\n\n".encode())
    decoder.end()
    with suppress(BrokenStreamError):  # a call without a name cannot be answered
        message = decoder.response().message
        assert message is None or dialect.read(message, 0, ()) is not None


@given(value=JSON, field=st.sampled_from(["text", "functionCall", "thoughtSignature", "thought"]))
def test_no_json_breaks_the_decoder_of_gemini(value: object, field: str):
    dialect = GeminiDialect("m", Profile(), "", (), ModelSettings())
    decoder = dialect.decoder()
    chunks = [
        {"candidates": value},
        {"candidates": [{"content": value}]},
        {"candidates": [{"content": {"parts": value}}]},
        {"candidates": [{"content": {"parts": [{field: value}, {field: value, "x": 1}]}}]},
        {"usageMetadata": value, "promptFeedback": value},
        {"candidates": [{"finishReason": "STOP"}]},
    ]
    for chunk in chunks:
        decoder.feed(f"data: {json.dumps(chunk)}\n\n".encode())
    decoder.end()
    with suppress(BrokenStreamError):  # a call without a name cannot be answered
        message = decoder.response().message
        assert message is None or dialect.read(message, 0, ()) is not None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": "b', {"a": "b"}),
        ('{"a": [1, 2', {"a": [1, 2]}),
        ('{"a": {"b": true', {"a": {"b": True}}),
        ('{"a": 1,}', {"a": 1}),
        ('{"a": 1, "b', None),  # what was going to be said about b is not dropped
        ('{"path": "/", "dry_run": tru', {"path": "/", "dry_run": True}),
        ('{"a": "x, }", "b": 1,}', {"a": "x, }", "b": 1}),
        ('{"a": 1, "b":', {"a": 1, "b": None}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('{"a": "x\\', {"a": "x"}),
        ('{"a": "line\nbreak"}', {"a": "line\nbreak"}),
        ("nonsense", None),
        ("[1, 2", None),
        ("", None),
    ],
)
def test_cut_off_json_is_mended_where_one_reading_is_likely(text: str, value: object):
    assert repair_json(text) == value


@given(value=st.dictionaries(st.text(max_size=5), JSON, max_size=4), cut_at=st.integers(0, 200))
def test_mending_never_raises_and_leaves_whole_json_alone(value: dict[str, object], cut_at: int):
    text = json.dumps(value)
    assert repair_json(text) == value
    found = repair_json(text[:cut_at])
    assert found is None or isinstance(found, dict)
