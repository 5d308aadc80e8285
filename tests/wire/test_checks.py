"""The checks: a request that a provider takes is taken, and one that it refuses is named."""

import json
from dataclasses import replace
from typing import Any

import pytest

from wire import Request, anthropic_wire, gemini_wire
from wire.anthropic_wire import Redacted, Text, Thinking, ToolUse
from wire.checks import Fault, Issued, Terms, check, dialect_of
from wire.checks.anthropic_messages import BINDING_BETA
from wire.checks.fault import tokens_in


def request(path: str, body: Any, **headers: str) -> Request:
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request("POST", path, told, json.dumps(body).encode())


def told(fault: Fault | None) -> tuple[str, str]:
    assert fault is not None, "The request is taken."
    return fault.kind, fault.message


def error_of(asked: Request, terms: Terms) -> Any:
    """Return the error in the body with which the provider refuses *asked*."""
    fault, dialect = check(asked, terms), dialect_of(asked)
    assert fault is not None
    assert dialect is not None
    refusal = dialect.refusal(fault)
    assert refusal.status == 400
    return json.loads(refusal.body)["error"]


OBJECT = {"type": "object", "properties": {}}
USER = {"role": "user", "content": "hi"}
FUNCTION = {"name": "add", "arguments": "{}"}
CALL = {"id": "c1", "type": "function", "function": FUNCTION}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "c2"}]}
DONE_1 = {"role": "tool", "tool_call_id": "c1", "content": ""}
DONE_2 = {"role": "tool", "tool_call_id": "c2", "content": "2"}
TOLD = {"role": "assistant", "content": "done"}
SYSTEM = {"role": "system", "content": "be brief"}


def calling(*calls: Any) -> dict[str, Any]:
    return {**CALLS, "tool_calls": list(calls)}


def openai_body(*messages: Any, **more: Any) -> Request:
    return request("/v1/chat/completions", {"model": "m", "messages": list(messages), **more})


def tool(name: str = "add", **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": OBJECT, **more}}


def test_openai_takes_a_history_in_which_every_call_is_answered():
    tools = [tool(), tool("sub")]
    asked = openai_body(SYSTEM, USER, CALLS, DONE_2, DONE_1, TOLD, USER, tools=tools)
    assert check(asked) is None
    assert check(openai_body(SYSTEM, USER, CALLS, DONE_2, DONE_1, USER)) is None


@pytest.mark.parametrize(
    ("messages", "kind", "words"),
    [
        ([], "shape", "Invalid 'messages': empty array"),
        ([{"role": "user", "content": ""}], "empty", "'content'"),
        ([{"role": "user", "content": [{"type": "text", "text": ""}]}], "empty", "empty string"),
        ([{"role": "user", "content": [{"text": "x"}]}], "shape", "content[0].type"),
        ([{"role": "robot", "content": "hi"}], "roles", "Invalid value: 'robot'"),
        ([USER, calling(), USER], "shape", "Invalid 'messages[1].tool_calls': empty array"),
        ([USER, {"role": "assistant", "content": None}], "empty", "got null"),
        ([USER, {**CALLS, "tool_calls": [CALL]}], "pairs", "response messages: c1"),
        ([USER, CALLS, DONE_1], "pairs", "did not have response messages: c2"),
        ([USER, CALLS, DONE_1, USER, DONE_2], "pairs", "did not have response messages: c2"),
        ([USER, CALLS, DONE_1, DONE_1, DONE_2], "pairs", "'c1' is none"),
        ([USER, DONE_1], "pairs", "must be a response to a preceeding message"),
        ([USER, CALLS, DONE_1, {**DONE_2, "content": None}], "empty", "got null"),
        ([USER, calling(CALL, CALL), DONE_1], "ids", "Duplicate value for 'tool_call_id' of 'c1'"),
        ([USER, calling({**CALL, "id": ""}), DONE_1], "ids", "tool_calls[0].id"),
        ([USER, calling({**CALL, "id": "x" * 65})], "ids", "maximum length 64, but got"),
        ([USER, calling({**CALL, "type": None}), DONE_1], "shape", "tool_calls[0].type"),
        ([USER, calling({**CALL, "function": {"name": "a b", "arguments": ""}})], "ids", "pattern"),
        ([USER, calling({**CALL, "function": {"name": "a"}})], "shape", "expected a string"),
        ([USER, USER], "roles", "messages[1] is the second user in a row"),
        ([USER, SYSTEM, USER], "roles", "messages[2] is the second user in a row"),
        ([USER, TOLD, TOLD], "roles", "messages[2] is the second assistant in a row"),
        ([USER, TOLD, CALLS, DONE_1, DONE_2], "roles", "the second assistant in a row"),
        ([SYSTEM, TOLD, USER], "roles", "first message is the assistant's"),
    ],
)
def test_openai_refuses_messages(messages: list[Any], kind: str, words: str):
    found, message = told(check(openai_body(*messages)))
    assert (found, words in message) == (kind, True), message


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"model": None}, "shape", "model"),
        ({"messages": None}, "shape", "Missing required parameter: 'messages'"),
        ({"tools": []}, "tools", "Invalid 'tools': empty array"),
        ({"tools": [{"type": "robot"}]}, "tools", "Invalid value: 'robot'"),
        ({"tools": [tool("a.b")]}, "tools", "pattern"),
        ({"tools": [tool("x" * 65)]}, "tools", "maximum length 64"),
        ({"tools": [tool(), tool()]}, "tools", "unique"),
        ({"tools": [tool(parameters={"type": "array"})]}, "tools", "schema for function 'add'"),
        ({"tools": [tool(parameters=None)]}, "tools", "schema for function 'add'"),
        ({"tool_choice": "auto"}, "options", "'tool_choice' is only allowed"),
        ({"parallel_tool_calls": True}, "options", "'parallel_tool_calls' is only allowed"),
        ({"stream_options": {}}, "options", "'stream_options' parameter is only allowed"),
    ],
)
def test_openai_refuses_options(options: dict[str, Any], kind: str, words: str):
    found, message = told(check(openai_body(USER, **options)))
    assert (found, words in message) == (kind, True), message


USE_1 = {"type": "tool_use", "id": "t1", "name": "add", "input": {}}
USE_2 = {**USE_1, "id": "t2"}
RESULT_1 = {"type": "tool_result", "tool_use_id": "t1", "content": ""}
RESULT_2 = {"type": "tool_result", "tool_use_id": "t2", "content": "2"}
SAID = {"type": "text", "text": "well"}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}
REDACTED = {"type": "redacted_thinking", "data": "c2VjcmV0"}
ENABLED = {"type": "enabled", "budget_tokens": 1024}
ADAPTIVE = {"type": "adaptive"}
ANTHROPIC_TOOL = {"name": "add", "input_schema": OBJECT}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


USES = assistant(SAID, USE_1, USE_2)


def anthropic_body(*messages: Any, beta: str = "", **more: Any) -> Request:
    body = {"model": "m", "max_tokens": 2000, "messages": list(messages), **more}
    return request("/v1/messages?beta=true", body, anthropic_beta=beta)


def test_anthropic_takes_a_history_in_which_every_use_has_its_result():
    own = {"type": "bash_20250124", "name": "bash"}
    more: dict[str, Any] = {
        "system": "be brief",
        "tools": [ANTHROPIC_TOOL, own],
        "tool_choice": {"type": "auto"},
    }
    asked = anthropic_body(USER, USES, user(RESULT_2, RESULT_1, SAID), **more)
    assert check(asked) is None
    assert check(anthropic_body(USER, assistant(SAID))) is None
    counted = {"model": "m", "messages": [USER]}
    assert check(request("/v1/messages/count_tokens", counted)) is None


@pytest.mark.parametrize(
    ("messages", "kind", "words"),
    [
        ([], "shape", "at least one message is required"),
        ([assistant(SAID), USER], "roles", "first message must use"),
        ([USER, {"role": "robot", "content": "hi"}], "roles", 'Unexpected role "robot"'),
        ([{"role": "user", "content": ""}], "empty", "non-empty content"),
        ([user({"type": "text", "text": ""})], "empty", "must be non-empty"),
        ([user({"type": "text", "text": " \n"})], "empty", "non-whitespace"),
        ([USER, assistant({**SAID, "text": "So "})], "empty", "trailing whitespace"),
        ([user({"text": "x"})], "shape", "content.0.type: Field required"),
        ([user(USE_1)], "roles", "only be in `assistant` messages"),
        ([USER, USES, user(RESULT_1, RESULT_2), assistant(RESULT_1)], "roles", "only be in `user`"),
        ([USER, assistant({**THINKING, "signature": ""})], "thinking", "signature: Field required"),
        ([USER, assistant({**REDACTED, "data": ""})], "thinking", "data: Field required"),
        ([USER, USES], "pairs", "messages.1: `tool_use` ids were found without"),
        ([USER, USES, USER, user(RESULT_1, RESULT_2)], "pairs", "immediately after: t1, t2."),
        ([USER, USES, user(RESULT_1)], "pairs", "immediately after: t2."),
        ([USER, USES, user(RESULT_1, RESULT_1, RESULT_2)], "pairs", "multiple `tool_result`"),
        ([USER, USES, user(RESULT_1, SAID, RESULT_2)], "pairs", "immediately after"),
        ([user(RESULT_1)], "pairs", "unexpected `tool_use_id` found in `tool_result` blocks: t1"),
        ([USER, assistant(USE_1, USE_1), user(RESULT_1)], "ids", "ids must be unique"),
        ([USER, assistant(USE_1), user(RESULT_1)] * 2, "ids", "messages.4.content.0: `tool_use`"),
        ([USER, assistant({**USE_1, "id": "a.b"}), USER], "ids", "^[a-zA-Z0-9_-]+$"),
        ([USER, assistant({**USE_1, "name": "a.b"}), USER], "ids", "{1,128}$"),
        ([USER, assistant({**USE_1, "input": []}), USER], "shape", "a valid dictionary"),
    ],
)
def test_anthropic_refuses_messages(messages: list[Any], kind: str, words: str):
    found, message = told(check(anthropic_body(*messages)))
    assert (found, words in message) == (kind, True), message


MARKED = {**SAID, "cache_control": {"type": "ephemeral"}}


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"model": ""}, "shape", "model: Field required"),
        ({"max_tokens": None}, "shape", "max_tokens: Field required"),
        ({"max_tokens": 0}, "shape", "greater than or equal to 1"),
        ({"messages": None}, "shape", "messages: Field required"),
        ({"system": [{"type": "text", "text": ""}]}, "empty", "system: text content blocks"),
        ({"tools": [{**ANTHROPIC_TOOL, "name": "a.b"}]}, "tools", "tools.0.custom.name"),
        ({"tools": [ANTHROPIC_TOOL] * 2}, "tools", "Tool names must be unique"),
        ({"tools": [{"name": "add"}]}, "tools", "input_schema: Field required"),
        ({"tools": [{"name": "add", "input_schema": {}}]}, "tools", "Input should be 'object'"),
        ({"tool_choice": {"type": "auto"}}, "options", "while providing `tools`"),
        ({"system": [MARKED] * 5}, "options", "A maximum of 4 blocks with cache_control"),
        ({"thinking": {**ENABLED, "budget_tokens": 9}}, "options", "or equal to 1024"),
        ({"thinking": {**ENABLED, "budget_tokens": 3000}}, "options", "must be greater than"),
        ({"thinking": ADAPTIVE, "temperature": 0.5}, "options", "`temperature` may only be set"),
        ({"thinking": ADAPTIVE, "top_p": 0.5}, "options", "`top_p` must be"),
        (
            {"thinking": ADAPTIVE, "tools": [ANTHROPIC_TOOL], "tool_choice": {"type": "any"}},
            "options",
            "forces tool use",
        ),
        ({"thinking": {**ADAPTIVE, "block_binding": {}}}, "options", "Extra inputs"),
    ],
)
def test_anthropic_refuses_options(options: dict[str, Any], kind: str, words: str):
    found, message = told(check(anthropic_body(USER, **options)))
    assert (found, words in message) == (kind, True), message


def test_anthropic_wants_the_thinking_before_the_last_calls():
    without = (USER, assistant(USE_1), user(RESULT_1))
    kind, message = told(check(anthropic_body(*without, thinking=ENABLED)))
    assert kind == "thinking"
    assert message.startswith("messages.1.content.0.type: Expected `thinking` or")
    assert check(anthropic_body(*without, thinking=ADAPTIVE)) is None
    assert check(anthropic_body(*without, assistant(SAID), USER, thinking=ENABLED)) is None


def test_anthropic_wants_thinking_once_in_a_turn(issued: Issued):
    second = (assistant(USE_2), user(RESULT_2))
    assert check(anthropic_body(*CONTINUED, *second, **FIRST), issued=issued) is None
    asked_again = (*CONTINUED, assistant(SAID), USER, *second)
    kind, message = told(check(anthropic_body(*asked_again, **FIRST), issued=issued))
    assert (kind, message[:10]) == ("thinking", "messages.5")


# What a model thought after one question: the blocks, and the history in which they may stand.
THOUGHT = (Thinking(["h", "m"], "s"), Redacted("c2VjcmV0"), ToolUse("t1", "add"))
FIRST: dict[str, Any] = {"system": "be brief", "tools": [ANTHROPIC_TOOL], "thinking": ENABLED}
CONTINUED = (USER, assistant(THINKING, REDACTED, USE_1), user(RESULT_1))


@pytest.fixture
def issued() -> Issued:
    """What a provider remembers that has thought after `USER` with the options of `FIRST`."""
    found, asked = Issued(), anthropic_body(USER, **FIRST)
    dialect = dialect_of(asked)
    assert dialect is not None
    dialect.note(asked, anthropic_wire.message(*THOUGHT, stop_reason="tool_use").body, found)
    return found


def test_thinking_may_stand_where_it_was_issued(issued: Issued):
    assert check(anthropic_body(*CONTINUED, **FIRST), issued=issued) is None
    longer = (*CONTINUED, assistant(SAID), USER)
    assert check(anthropic_body(*longer, **FIRST), issued=issued) is None
    # Cache marks, and a text for the same text as a block, are no other prefix.
    marked: dict[str, Any] = {**FIRST, "system": [{**MARKED, "text": "be brief"}]}
    as_blocks = (user({"type": "text", "text": "hi"}), *CONTINUED[1:])
    assert check(anthropic_body(*as_blocks, **marked), issued=issued) is None


CHANGED: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (CONTINUED, {**FIRST, "system": "be very brief"}),
    (CONTINUED, {**FIRST, "system": ""}),
    (CONTINUED, {**FIRST, "tools": [ANTHROPIC_TOOL, {**ANTHROPIC_TOOL, "name": "b"}]}),
    (({"role": "user", "content": "hello"}, *CONTINUED[1:]), FIRST),
    ((USER, assistant(SAID), USER, *CONTINUED[1:]), FIRST),
]


@pytest.mark.parametrize(("messages", "options"), CHANGED)
def test_thinking_may_not_stand_after_another_prefix(
    messages: tuple[Any, ...], options: dict[str, Any], issued: Issued
):
    asked = anthropic_body(*messages, **options)
    at = next(n for n, one in enumerate(messages) if one["content"][0] is THINKING)
    kind, message = told(check(asked, issued=issued))
    assert kind == "binding"
    assert message == (
        f"messages.{at}.content.0: Invalid `signature` in `thinking` block. The block is bound to a"
        " different conversation. Remove the block, or set"
        ' `thinking.block_binding.prefix_mismatch_behavior` to "drop_block". That setting requires'
        f" the `{BINDING_BETA}` value in the `anthropic-beta` header."
    )
    assert check(asked, Terms(binds_thinking=False), issued) is None


@pytest.mark.parametrize(("messages", "options"), CHANGED)
def test_thinking_that_does_not_fit_can_be_dropped(
    messages: tuple[Any, ...], options: dict[str, Any], issued: Issued
):
    binding = {"prefix_mismatch_behavior": "drop_block"}
    drops = {**options, "thinking": {**ENABLED, "block_binding": binding}}
    asked = anthropic_body(*messages, **drops, beta=f"other,{BINDING_BETA}")
    dialect = dialect_of(asked)
    assert dialect is not None
    assert check(asked, issued=issued) is None
    dropped = dialect.dropped(asked, issued, Terms())
    assert [spot[-9:] for spot in dropped] == ["content.0", "content.1"]
    # Without the beta, the option is unknown.
    assert told(check(replace(asked, headers={}), issued=issued))[0] == "options"


@pytest.mark.parametrize(
    "block",
    [
        {**THINKING, "thinking": "hmm"},
        {**THINKING, "signature": "t"},
        {**REDACTED, "data": "ZWxzZQ=="},
    ],
)
def test_thinking_that_was_altered_is_refused_by_every_model(block: Any, issued: Issued):
    asked = anthropic_body(USER, assistant(block, USE_1), user(RESULT_1), **FIRST)
    kind, message = told(check(asked, Terms(binds_thinking=False), issued))
    assert kind == "thinking"
    assert message.startswith("messages.1.content.0: Invalid `")
    # A model that does not think ignores what was thought.
    without: dict[str, Any] = {**FIRST, "thinking": {"type": "disabled"}}
    assert check(anthropic_body(*asked.json["messages"], **without), issued=issued) is None


def test_thinking_may_be_left_out_before_other_thinking(issued: Issued):
    second = anthropic_body(*CONTINUED, **FIRST)
    dialect = dialect_of(second)
    assert dialect is not None
    reply = anthropic_wire.message(Thinking(["So."], "u"), Text(["Done."]))
    dialect.note(second, reply.body, issued)
    later = assistant({"type": "thinking", "thinking": "So.", "signature": "u"}, SAID)
    without = (USER, assistant(USE_1), user(RESULT_1), later, USER)
    assert check(anthropic_body(*without, **FIRST), issued=issued) is None


ASKED = {"role": "user", "parts": [{"text": "hi"}]}
CALLED = {"role": "model", "parts": [gemini_wire.call("add", {}, "c1"), gemini_wire.call("b", {})]}
DECLARED = {"name": "add", "parametersJsonSchema": OBJECT}


def answered(*names: str, **more: Any) -> dict[str, Any]:
    parts = [{"functionResponse": {"name": n, "response": {"r": 1}, **more}} for n in names]
    return {"role": "user", "parts": parts}


def model(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def gemini_body(*contents: Any, name: str = "gemini-2.5-pro", **more: Any) -> Request:
    path = f"/v1beta/models/{name}:streamGenerateContent?alt=sse"
    return request(path, {"contents": list(contents), **more})


def declared(*functions: Any) -> dict[str, Any]:
    return {"tools": [{"functionDeclarations": list(functions)}]}


def test_gemini_takes_a_history_in_which_every_call_has_its_response():
    history = (ASKED, CALLED, answered("b", "add"), model({"text": "Done."}), ASKED)
    assert check(gemini_body(*history, **declared(DECLARED))) is None
    assert check(gemini_body(ASKED, CALLED, answered("add"), answered("b"), ASKED)) is None


@pytest.mark.parametrize(
    ("contents", "kind", "words"),
    [
        ([], "shape", "contents is not specified"),
        ([model({"text": "hi"})], "roles", "first content"),
        ([{"role": "tool", "parts": [{"text": "hi"}]}], "roles", "valid role: user, model"),
        ([{"role": "user", "parts": []}], "empty", "parts must not be empty"),
        ([{"role": "user", "parts": [{"text": ""}]}], "empty", "text: must not be empty"),
        ([{"role": "user", "parts": [{"thoughtSignature": "s"}]}], "shape", "required oneof"),
        ([ASKED, CALLED], "pairs", "The calls are ['add', 'b'], the responses []"),
        ([ASKED, CALLED, ASKED], "pairs", "The calls are ['add', 'b'], the responses []"),
        ([ASKED, CALLED, answered("add")], "pairs", "the responses ['add']"),
        ([ASKED, CALLED, answered("add", "c")], "pairs", "the responses ['add', 'c']"),
        ([ASKED, CALLED, answered("add", "b", id="c9")], "pairs", "no function call of that id"),
        ([ASKED, answered("add")], "pairs", "immediately after a function call turn"),
        ([ASKED, model(*[gemini_wire.call("a", {}, "c")] * 2), ASKED], "ids", "the same id"),
        ([ASKED, model(gemini_wire.call("a b", {})), ASKED], "ids", "functionCall.name"),
        ([ASKED, CALLED, answered("add", "b", response=[])], "shape", "must be an object"),
        ([{**CALLED, "role": "user"}], "roles", "are of the model role"),
    ],
)
def test_gemini_refuses_contents(contents: list[Any], kind: str, words: str):
    found, message = told(check(gemini_body(*contents)))
    assert (found, words in message) == (kind, True), message


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        (declared({**DECLARED, "name": "1"}), "tools", "Invalid function name"),
        (declared(DECLARED, DECLARED), "tools", "Duplicate function declaration found: add"),
        (declared({**DECLARED, "parametersJsonSchema": []}), "tools", "type OBJECT"),
        ({"systemInstruction": {"parts": []}}, "empty", "system_instruction.parts"),
    ],
)
def test_gemini_refuses_options(options: dict[str, Any], kind: str, words: str):
    found, message = told(check(gemini_body(ASKED, **options)))
    assert (found, words in message) == (kind, True), message


def test_gemini_takes_the_signatures_that_it_has_issued():
    known, asked = Issued(), gemini_body(ASKED)
    dialect = dialect_of(asked)
    assert dialect is not None
    signed = gemini_wire.call("add", {}, signature="c2lnbmVk")
    dialect.note(asked, gemini_wire.reply(gemini_wire.chunk([signed])).body, known)
    for name in ("gemini-2.5-pro", "gemini-3-pro"):
        history = (ASKED, model(signed), answered("add"))
        assert check(gemini_body(*history, name=name), issued=known) is None
        kind, message = told(check(gemini_body(*history, name=name), issued=Issued()))
        assert kind == "thinking"
        assert message.startswith("Corrupted thought signature.")


def test_gemini_wants_signatures_of_the_calls_in_the_current_turn_since_version_3():
    unsigned, unchecked = gemini_wire.call("add", {}), "skip_thought_signature_validator"
    history = (ASKED, model(unsigned), answered("add"))
    kind, message = told(check(gemini_body(*history, name="gemini-3-pro")))
    assert kind == "thinking"
    assert message.startswith("Function call is missing a thought_signature in functionCall parts.")
    assert "`default_api:add` , position 2." in message
    assert check(gemini_body(*history)) is None
    past = (*history, model({"text": "Done."}), ASKED)
    assert check(gemini_body(*past, name="gemini-3-pro")) is None
    foreign = model({**unsigned, "thoughtSignature": unchecked})
    assert check(gemini_body(ASKED, foreign, answered("add"), name="gemini-3-pro")) is None


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (
            openai_body(USER),
            {
                "type": "invalid_request_error",
                "param": "messages",
                "code": "context_length_exceeded",
                "message": "This model's maximum context length is 5 tokens. However, your messages"
                " resulted in 10 tokens. Please reduce the length of the messages.",
            },
        ),
        (
            anthropic_body(USER),
            {
                "type": "invalid_request_error",
                "message": "prompt is too long: 10 tokens > 5 maximum",
            },
        ),
        (
            gemini_body(ASKED),
            {
                "code": 400,
                "status": "INVALID_ARGUMENT",
                "message": "The input token count (13) exceeds the maximum number of tokens allowed"
                " (5).",
            },
        ),
    ],
    ids=["openai", "anthropic", "gemini"],
)
def test_what_is_longer_than_the_window_is_refused(asked: Request, error: Any):
    assert error_of(asked, Terms(window=5)) == error
    assert check(asked, Terms(window=13)) is None


def test_llama_says_in_its_own_way_that_a_request_is_too_long():
    assert error_of(openai_body(USER), Terms(window=5, software="llama.cpp")) == {
        "code": 400,
        "message": "request (10 tokens) exceeds the available context size (5 tokens), try"
        " increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 10,
        "n_ctx": 5,
    }


def test_four_characters_of_json_are_a_token():
    assert (tokens_in("ab"), tokens_in("abcde"), tokens_in("x" * 4000)) == (2, 3, 1001)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (openai_body(), "Invalid 'messages': empty array"),
        (anthropic_body(), "messages: at least one message is required"),
        (gemini_body(), "* GenerateContentRequest.contents: contents is not specified"),
    ],
)
def test_a_refusal_has_the_shape_of_the_provider(asked: Request, message: str):
    error = error_of(asked, Terms())
    assert error["message"].startswith(message)
    assert error.get("type", error.get("status")) in {"invalid_request_error", "INVALID_ARGUMENT"}


def test_faults_that_a_server_allows_are_passed_over():
    two = openai_body(USER, USER, {"role": "assistant", "content": None})
    assert told(check(two))[0] == "empty"
    assert told(check(two, Terms(allows={"empty"})))[0] == "roles"
    assert check(two, Terms(allows={"empty", "roles"})) is None


@pytest.mark.parametrize("body", [[], None, {"model": "m", "messages": [3]}, {"messages": 3}])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/m:generateContent"])
def test_a_body_of_an_unexpected_shape_is_refused(path: str, body: Any):
    assert told(check(request(path, body)))[0] == "shape"


def test_other_requests_are_not_checked():
    assert check(request("/v1/x", {})) is None
    assert check(replace(openai_body(), method="GET")) is None
