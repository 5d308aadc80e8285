"""The rules: a history a provider takes is taken, and what it refuses is named."""

import json
from typing import Any

import pytest

from wire import Request, anthropic_wire, gemini_wire, openai_wire


def request(path: str, body: dict[str, Any]) -> Request:
    return Request("POST", path, {}, json.dumps(body).encode())


USER = {"role": "user", "content": "hi"}
FUNCTION = {"name": "add", "arguments": "{}"}
CALL = {"id": "c1", "type": "function", "function": FUNCTION}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "c2"}]}
DONE_1 = {"role": "tool", "tool_call_id": "c1", "content": ""}
DONE_2 = {"role": "tool", "tool_call_id": "c2", "content": "2"}
TOLD = {"role": "assistant", "content": "done"}
SYSTEM = {"role": "system", "content": "be brief"}


def openai_body(*messages: Any, **more: Any) -> Request:
    return request("/v1/chat/completions", {"model": "m", "messages": list(messages), **more})


def test_openai_takes_a_history_in_which_every_call_is_answered():
    openai_wire.check_request(openai_body(SYSTEM, USER, CALLS, DONE_2, DONE_1, TOLD, USER))
    openai_wire.check_request(openai_body(SYSTEM, USER, CALLS, DONE_2, DONE_1, USER))


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([], "no messages"),
        ([{"role": "user", "content": ""}], "no content"),
        ([{"role": "user", "content": [{"type": "text", "text": ""}]}], "empty text"),
        ([{"role": "robot", "content": "hi"}], "role 'robot'"),
        ([USER, {"role": "assistant", "content": "", "tool_calls": []}], "empty list"),
        ([USER, {"role": "assistant", "content": None}], "no content"),
        ([USER, CALLS, DONE_1], "without an answer to ['c2']"),
        ([USER, CALLS, DONE_1, USER, DONE_2], "before an answer to ['c2']"),
        ([USER, CALLS, DONE_1, DONE_1, DONE_2], "answers 'c1', which nobody waits for"),
        ([USER, DONE_1], "answers 'c1', which nobody waits for"),
        ([USER, USER], "messages[1] is the second user in a row"),
        ([USER, SYSTEM, USER], "messages[2] is the second user in a row"),
        ([USER, TOLD, TOLD], "messages[2] is the second assistant in a row"),
        ([USER, TOLD, CALLS, DONE_1, DONE_2], "messages[2] is the second assistant in a row"),
        ([SYSTEM, TOLD, USER], "first message is the assistant's"),
    ],
)
def test_openai_refuses(messages: list[Any], told: str):
    with pytest.raises(AssertionError) as caught:
        openai_wire.check_request(openai_body(*messages))
    assert told in str(caught.value)


def test_openai_refuses_options_without_what_they_are_for():
    with pytest.raises(AssertionError, match="tool_choice is only allowed"):
        openai_wire.check_request(openai_body(USER, tool_choice="auto"))
    with pytest.raises(AssertionError, match="stream_options is only allowed"):
        openai_wire.check_request(openai_body(USER, stream_options={"include_usage": True}))


THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}
USE_1 = {"type": "tool_use", "id": "t1", "name": "add", "input": {}}
USE_2 = {**USE_1, "id": "t2"}
RESULT_1 = {"type": "tool_result", "tool_use_id": "t1", "content": ""}
RESULT_2 = {"type": "tool_result", "tool_use_id": "t2", "content": "2"}
SAID = {"type": "text", "text": "well"}
USES = {"role": "assistant", "content": [THINKING, SAID, USE_1, USE_2]}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def anthropic_body(*messages: Any, **more: Any) -> Request:
    body = {"model": "m", "max_tokens": 2000, "messages": list(messages), **more}
    return request("/v1/messages", body)


def test_anthropic_takes_a_history_in_which_every_use_has_its_result():
    thinking = {"type": "enabled", "budget_tokens": 1024}
    messages = (USER, USES, user(RESULT_2, RESULT_1, SAID))
    anthropic_wire.check_request(anthropic_body(*messages, thinking=thinking, system="be brief"))


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([], "no messages"),
        ([{"role": "assistant", "content": "hi"}], "not of the user"),
        ([{"role": "user", "content": ""}], "no content"),
        ([user({"type": "text", "text": ""})], "empty text"),
        ([user({"type": "text", "text": " \n"})], "white space"),
        ([user(USE_1)], "not the assistant's"),
        ([USER, {"role": "assistant", "content": [{**THINKING, "signature": ""}]}], "signature"),
        ([USER, USES], "end without a tool_result for ['t1', 't2']"),
        ([USER, USES, USER, user(RESULT_1, RESULT_2)], "no tool_result for ['t1', 't2']"),
        ([USER, USES, user(RESULT_1)], "no tool_result for ['t2']"),
        ([USER, USES, user(RESULT_1, RESULT_1, RESULT_2)], "for ['t1'], which nobody waits for"),
        ([USER, USES, user(RESULT_1, SAID, RESULT_2)], "before its tool_results"),
        ([user(RESULT_1)], "which nobody waits for"),
    ],
)
def test_anthropic_refuses(messages: list[Any], told: str):
    with pytest.raises(AssertionError) as caught:
        anthropic_wire.check_request(anthropic_body(*messages))
    assert told in str(caught.value)


def test_anthropic_refuses_options_that_contradict_each_other():
    thinking = {"type": "enabled", "budget_tokens": 3000}
    with pytest.raises(AssertionError, match="not more than thinking.budget_tokens"):
        anthropic_wire.check_request(anthropic_body(USER, thinking=thinking))
    with pytest.raises(AssertionError, match="no max_tokens"):
        anthropic_wire.check_request(anthropic_body(USER, max_tokens=None))
    marked = {**SAID, "cache_control": {"type": "ephemeral"}}
    with pytest.raises(AssertionError, match="At most 4 blocks"):
        anthropic_wire.check_request(anthropic_body(user(*[marked] * 4), system=[marked]))


ASKED = {"role": "user", "parts": [{"text": "hi"}]}
CALLED = {"role": "model", "parts": [gemini_wire.call("add", {}, "c1"), gemini_wire.call("b", {})]}


def answered(*names: str, **more: Any) -> dict[str, Any]:
    parts = [{"functionResponse": {"name": n, "response": {"r": 1}, **more}} for n in names]
    return {"role": "user", "parts": parts}


def gemini_body(*contents: Any) -> Request:
    return request("/v1beta/models/m:streamGenerateContent", {"contents": list(contents)})


def test_gemini_takes_a_history_in_which_every_call_has_its_response():
    signed = {"role": "model", "parts": [gemini_wire.text("", "c2ln")]}
    gemini_wire.check_request(gemini_body(ASKED, CALLED, answered("b", "add"), signed, ASKED))
    gemini_wire.check_request(gemini_body(ASKED, CALLED, answered("add"), answered("b"), ASKED))


@pytest.mark.parametrize(
    ("contents", "told"),
    [
        ([], "no contents"),
        ([{"role": "model", "parts": [{"text": "hi"}]}], "not of the user"),
        ([{"role": "tool", "parts": [{"text": "hi"}]}], "role 'tool'"),
        ([{"role": "user", "parts": []}], "no parts"),
        ([{"role": "user", "parts": [{"text": ""}]}], "empty text"),
        ([{"role": "user", "parts": [{"thoughtSignature": "s"}]}], "one thing"),
        ([ASKED, CALLED], "end without a functionResponse for ['add', 'b']"),
        ([ASKED, CALLED, answered("add")], "come the functionResponses ['add']"),
        ([ASKED, CALLED, answered("add", "c")], "come the functionResponses ['add', 'c']"),
        ([ASKED, CALLED, answered("add", "b", id="c9")], "no functionCall of that id"),
        ([ASKED, answered("add")], "come the functionResponses ['add']"),
    ],
)
def test_gemini_refuses(contents: list[Any], told: str):
    with pytest.raises(AssertionError) as caught:
        gemini_wire.check_request(gemini_body(*contents))
    assert told in str(caught.value)
