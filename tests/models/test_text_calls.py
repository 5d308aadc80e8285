"""Calls that come as text are found where a response is nothing else, and nowhere else."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given, strategies as st

from treefold.core.model import ModelSettings
from treefold.core.model_events import ModelEvent, Noticed, TextDelta, ThinkingDelta, ToolUseDelta
from treefold.models.openai.decoder import OpenAIDecoder
from treefold.models.openai.model import OpenAIModel
from treefold.models.openai.text_calls import MAX_HELD, TextCalls
from treefold.models.profiles import Profile

MUCH = MAX_HELD // 8
NAMES = ("search", "look_up")
CALL = '{"name": "search", "arguments": {"q": "a {\\"b\\"} c"}}'
OTHER = '{"name": "look_up", "parameters": {"n": {"deep": [1, {}]}}}'
DOUBLED = '{{"name": "search", "arguments": {{"q": {{"x": "}}"}}}}}}'
SEARCH = ("search", {"q": 'a {"b"} c'})
LOOK_UP = ("look_up", {"n": {"deep": [1, {}]}})


def found(pieces: list[str]) -> tuple[str, list[tuple[str, object]]]:
    """Return the text that is given out, and the calls."""
    calls = TextCalls(NAMES)
    text = "".join(map(calls.feed, pieces))
    if calls.are_complete:
        return text, [(name, json.loads(arguments)) for name, arguments in calls.calls]
    return text + calls.release(), []


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CALL, [SEARCH]),
        (f"\n\n{CALL}\n", [SEARCH]),
        (OTHER, [LOOK_UP]),
        (f"```json\n{CALL}\n```", [SEARCH]),
        (f"```\n{CALL}\n```\n", [SEARCH]),
        (f"<tool_call>\n{CALL}\n</tool_call>", [SEARCH]),
        (f"<tool_call>{CALL}", [SEARCH]),
        (f"<tool_call>{CALL}</tool_call>\n<tool_call>{OTHER}</tool_call>", [SEARCH, LOOK_UP]),
        (f"[{CALL}, {OTHER}]", [SEARCH, LOOK_UP]),
        (f"```json\n[{CALL},\n{OTHER}]\n```", [SEARCH, LOOK_UP]),
        (f"{CALL}\n{OTHER}", [SEARCH, LOOK_UP]),
        (f"{CALL}; {CALL}", [SEARCH, SEARCH]),
        (f"{{{CALL}}}", [SEARCH]),
        (DOUBLED, [("search", {"q": {"x": "}}"}})]),
        ('{"arguments": {"q": 1}, "name": "search"}', [("search", {"q": 1})]),
        ('{"name": "search", "arguments": "{\\"q\\": 1}"}', [("search", {"q": 1})]),
        ('{"name": "search", "arguments": null}', [("search", {})]),
        ('{"type": "function", "function": {"name": "search", "arguments": {}}}', [("search", {})]),
        ('{"function": "search", "parameters": {}}', [("search", {})]),
        ('{"id": "x", "type": "function"}', []),
        (f"{CALL} That is it.", []),
        (f"I call {CALL}", []),
        (f"{CALL}\n```python\nprint()\n```", []),
        ('{"name": "delete", "arguments": {}}', []),
        (f'[{CALL}, {{"name": "delete", "arguments": {{}}}}]', []),
        ('{"name": "search"}', []),
        ('{"name": "search", "arguments": {}, "why": "because"}', []),
        ('{"name": "search", "arguments": [1]}', []),
        ('{"name": "search", "arguments": {"q": NaN}}', []),
        ('{"city": "Paris"}', []),
        ('{"names": ["search"]}', []),
        ("{'name': 'search', 'arguments': {}}", []),
        (CALL[:-1], []),
        (f"{CALL}}}", []),
        ("[1, 2]", []),
        ("[]", []),
        ("{}", []),
        ("```json\n", []),
        ("<tool_call>", []),
        ("<tool", []),
        (" \n", []),
        ("", []),
    ],
)  # fmt: skip
def test_text_is_calls_only_if_it_is_nothing_else(
    text: str, expected: list[tuple[str, object]], size: int
):
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    calls = TextCalls(NAMES)
    given_out = "".join(map(calls.feed, pieces))
    made = [(name, json.loads(arguments)) for name, arguments in calls.calls]
    # Arguments that are JSON in a string are read when the call is complete.
    made = [(name, json.loads(args) if isinstance(args, str) else args) for name, args in made]
    if calls.are_complete:
        assert made == expected
        assert given_out == ""
    else:
        assert expected == []
        assert given_out + calls.release() == text


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("Hello", ""),
        ("1", ""),
        ("`code`", "`"),
        ("``` \nprint", "``` \n"),
        ("```python", "```"),
        ("[link](x)", "["),
        ("<b>bold", "<"),
        ("<table>", "<t"),
        ('{"city": "Paris"}', '{"'),
        ('{"name": "Paris"}', '{"name": "'),
        ('{"name": "sea shell"}', '{"name": "sea'),
        (f"{CALL} and", f"{CALL} "),
    ],
)
def test_text_flows_as_soon_as_it_cannot_be_calls(text: str, held: str):
    calls = TextCalls(NAMES)
    for at, character in enumerate(text):
        given_out = calls.feed(character)
        if at < len(held):
            assert given_out == ""
        else:
            assert given_out == (text[: len(held) + 1] if at == len(held) else character)


@given(pieces=st.lists(st.text(alphabet='{}[]"\\`<>/,; \nabname:search_tool_call', max_size=30)))
def test_no_text_is_lost_or_doubled(pieces: list[str]):
    text, calls = found(pieces)
    assert calls or text == "".join(pieces)


def test_what_is_held_back_is_bounded():
    calls = TextCalls(NAMES)
    begun = '{"name": "search", "arguments": {"q": "'
    assert calls.feed(begun) == ""
    assert calls.feed("x" * (MAX_HELD - len(begun))) == ""
    assert len(calls.feed("x")) == MAX_HELD + 1
    assert calls.feed("y") == "y"


@pytest.mark.parametrize(
    "text",
    [
        "[" * MUCH,
        " " * MUCH,
        "{" * MUCH,
        '{"name": "search", "arguments": ' + "{" * MUCH,
        '{"name": "search", "arguments": "' + '\\"' * MUCH,
        '{{"name": "search", "arguments": ' + '"' * MUCH + "}}",
        '{"name": "search", "arguments": {}}' * (MUCH // 35) + ".",
    ],
    ids=lambda text: text[-8:],
)
def test_hostile_text_is_scanned_once(text: str):
    # A quadratic scan takes longer than a test may.
    assert found([text])[1] == []
    assert found([text[at : at + 64] for at in range(0, len(text), 64)])[1] == []


# --- in a stream


def decoded(*deltas: Mapping[str, object], finish: str | None = "stop") -> list[ModelEvent]:
    decoder = OpenAIDecoder(Profile(), NAMES, in_text=True)
    events: list[ModelEvent] = []
    for delta in deltas:
        chunk = {"choices": [{"index": 0, "delta": delta}]}
        events += decoder.feed(f"data: {json.dumps(chunk)}\n\n".encode())
    if finish is not None:
        chunk = {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
        events += decoder.feed(f"data: {json.dumps(chunk)}\n\n".encode())
    return [*events, *decoder.end()]


def said(*deltas: Mapping[str, object], finish: str | None = "stop") -> list[object]:
    return [
        event.text if isinstance(event, TextDelta) else type(event)
        for event in decoded(*deltas, finish=finish)
    ]


def test_calls_in_text_are_never_handed_out_as_text():
    pieces = [{"content": CALL[at : at + 5]} for at in range(0, len(CALL), 5)]
    assert said(*pieces) == [ToolUseDelta, Noticed]


def test_thinking_before_calls_in_text_is_thinking():
    thought = {"content": f"<think>Hm.</think>\n\n{CALL}"}
    assert said(thought) == [ThinkingDelta, ToolUseDelta, Noticed]
    assert said({"reasoning_content": "Hm."}, {"content": CALL}) == [
        ThinkingDelta, ToolUseDelta, Noticed,
    ]  # fmt: skip


def test_text_beside_calls_of_the_protocol_is_text():
    call = {"tool_calls": [{"index": 0, "function": {"name": "search", "arguments": "{}"}}]}
    assert said({"content": CALL}, call) == [CALL, ToolUseDelta]


def test_calls_of_a_response_that_was_cut_off_or_refused_are_text():
    assert said({"content": CALL}, finish=None) == [CALL]
    assert said({"content": CALL}, finish="content_filter") == [CALL]
    assert said({"content": CALL[:-2]}, finish="length") == [CALL[:-2]]


@pytest.mark.parametrize(
    ("base_url", "expected"),
    [
        (None, False),
        ("ollama", True),
        ("http://192.168.0.7:8000/v1", True),
        ("https://llm.example.com/v1", True),
        ("https://api.openai.com/v1", False),
        ("https://me.openai.azure.com/openai/v1", False),
        ("https://openrouter.ai/api/v1", False),
        ("https://notopenrouter.ai/v1", True),
    ],
)
def test_a_server_gets_schemas_and_may_call_in_text_unless_it_is_a_known_provider(
    base_url: str | None,
    expected: bool,  # noqa: FBT001 - given by name
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    model = OpenAIModel("m", base_url=base_url)
    assert model.profile.calls_in_text is None
    decided = model.dialect("", (), ModelSettings()).profile
    assert decided.calls_in_text is decided.results_by_schema is expected
    profile = Profile(calls_in_text=False, results_by_schema=False)
    never = OpenAIModel("m", base_url=base_url, profile=profile).dialect("", (), ModelSettings())
    assert never.profile == profile
