"""What OpenAI, and the templates of the models behind compatible servers, ask of a request."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from wire.checks.fault import Fault, Kind, tokens_in
from wire.connection import Request
from wire.replies import Reply, failure

INSTRUCTIONS = {"system", "developer"}
ROLES = {*INSTRUCTIONS, "user", "assistant", "tool"}
NAME = re.compile(r"[a-zA-Z0-9_-]+")
LONGEST_NAME = 64
LONGEST_ID = 64


def faults(request: Request) -> Iterator[Fault]:
    """Yield what is wrong with *request*, worst first."""
    body = request.json
    if not body.get("model"):
        yield Fault("shape", "you must provide a model parameter")
    messages = body.get("messages")
    if messages is None:
        yield Fault("shape", "Missing required parameter: 'messages'.", "messages")
        return
    if not messages:
        yield _empty_array("messages")
        return
    yield from _options(body)
    yield from _messages(messages)
    # The template of a model fails on what is out of order, when all else is right.
    yield from _order(messages)


def _messages(messages: list[dict[str, Any]]) -> Iterator[Fault]:
    waiting: list[str] = []
    for at, message in enumerate(messages):
        spot, role, content = f"messages[{at}]", message.get("role"), message.get("content")
        if role not in ROLES:
            supported = ", ".join(repr(one) for one in sorted(ROLES))
            told = f"Invalid value: '{role}'. Supported values are: {supported}."
            yield Fault("roles", told, f"{spot}.role", "invalid_value")
        if role == "tool":
            yield from _result(spot, message, waiting)
            continue
        if waiting:
            yield _unanswered(spot, waiting)
        waiting = []
        if role == "assistant":
            yield from _called(spot, message)
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
        elif not content:
            told = f"Invalid value for 'content': expected a string, got {content!r}."
            yield Fault("empty", told, f"{spot}.content")
        yield from _parts(spot, content)
    if waiting:
        yield _unanswered(f"messages[{len(messages) - 1}]", waiting)


def _options(body: dict[str, Any]) -> Iterator[Fault]:
    tools = body.get("tools")
    if tools == []:
        yield _empty_array("tools")
    names = list[str]()
    for at, tool in enumerate(tools or ()):
        if tool.get("type") != "function":
            kind = tool.get("type")
            spot = f"tools[{at}].type"
            told = f"Invalid value: '{kind}'. Supported values are: 'function' and 'custom'."
            yield Fault("tools", told, spot, "invalid_value")
            continue
        function = tool["function"]
        names.append(function["name"])
        yield from _name("tools", f"tools[{at}].function.name", function["name"])
        schema = function.get("parameters", {"type": "object"})
        if not isinstance(schema, dict) or schema.get("type") != "object":
            told = (
                f"Invalid schema for function '{function['name']}': schema must be a JSON Schema"
                " of 'type: \"object\"'."
            )
            spot = f"tools[{at}].function.parameters"
            yield Fault("tools", told, spot, "invalid_function_parameters")
    if len(names) != len(set(names)):
        yield Fault("tools", f"Tool names must be unique, got {names}.", "tools")
    for option in ("tool_choice", "parallel_tool_calls"):
        if option in body and not names:
            told = f"Invalid value for '{option}': '{option}' is only allowed when 'tools' are"
            yield Fault("options", f"{told} specified.", option)
    if "stream_options" in body and body.get("stream") is not True:
        told = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        yield Fault("options", told, "stream_options")


def _result(spot: str, message: dict[str, Any], waiting: list[str]) -> Iterator[Fault]:
    key = message.get("tool_call_id")
    if key not in waiting:
        told = (
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding"
            " message with 'tool_calls'."
        )
        yield Fault("pairs", f"{told} {key!r} is none.", f"{spot}.role")
        return
    waiting.remove(key)
    if message.get("content") is None:
        told = "Invalid value for 'content': expected a string, got null."
        yield Fault("empty", told, f"{spot}.content")


def _unanswered(spot: str, waiting: list[str]) -> Fault:
    told = (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to"
        " each 'tool_call_id'. The following tool_call_ids did not have response messages: "
    )
    return Fault("pairs", told + ", ".join(waiting), f"{spot}.role")


def _called(spot: str, message: dict[str, Any]) -> Iterator[Fault]:
    calls, content = message.get("tool_calls"), message.get("content")
    if calls == []:
        yield _empty_array(f"{spot}.tool_calls")
    if not calls and not isinstance(content, str | list):
        told = "Invalid value for 'content': expected a string, got null."
        yield Fault("empty", told, f"{spot}.content")
    ids = set[str]()
    for at, call in enumerate(calls or ()):
        place, key = f"{spot}.tool_calls[{at}]", call.get("id")
        if not key or not isinstance(key, str):
            yield Fault("ids", f"Missing required parameter: '{place}.id'.", f"{place}.id")
        elif len(key) > LONGEST_ID:
            yield _too_long("ids", f"{place}.id", LONGEST_ID, len(key))
        elif key in ids:
            told = f"Duplicate value for 'tool_call_id' of '{key}' in {spot}.tool_calls"
            yield Fault("ids", told, f"{place}.id")
        ids.add(key)
        if call.get("type") != "function":
            yield Fault("shape", f"Missing required parameter: '{place}.type'.", f"{place}.type")
        function = call["function"]
        yield from _name("ids", f"{place}.function.name", function["name"])
        if not isinstance(function.get("arguments"), str):
            told = f"Invalid type for '{place}.function.arguments': expected a string."
            yield Fault("shape", told, f"{place}.function.arguments", "invalid_type")


def _name(kind: Kind, spot: str, name: str) -> Iterator[Fault]:
    if not NAME.fullmatch(name):
        told = (
            f"Invalid '{spot}': string does not match pattern. Expected a string that matches the"
            f" pattern '^[a-zA-Z0-9_-]+$', got {name!r}."
        )
        yield Fault(kind, told, spot, "invalid_value")
    elif len(name) > LONGEST_NAME:
        yield _too_long(kind, spot, LONGEST_NAME, len(name))


def _parts(spot: str, content: Any) -> Iterator[Fault]:
    for at, part in enumerate(content if isinstance(content, list) else ()):
        place = f"{spot}.content[{at}]"
        if not part.get("type"):
            yield Fault("shape", f"Missing required parameter: '{place}.type'.", f"{place}.type")
        if part.get("type") == "text" and not part.get("text"):
            yield Fault("empty", f"Invalid '{place}.text': empty string.", f"{place}.text")


def _order(messages: list[dict[str, Any]]) -> Iterator[Fault]:
    """Check that user and assistant alternate, as the templates of many models insist."""
    told = "Conversation roles must alternate user/assistant/user/assistant/..."
    roles = [(at, one.get("role")) for at, one in enumerate(messages)]
    talk = [(at, role) for at, role in roles if role not in INSTRUCTIONS]
    for (_, before), (at, role) in pairwise(talk):
        if role == before != "tool":
            yield Fault("roles", f"{told} messages[{at}] is the second {role} in a row.")
    if talk and talk[0][1] == "assistant":
        yield Fault("roles", f"{told} The first message is the assistant's.")


def _empty_array(spot: str) -> Fault:
    told = (
        f"Invalid '{spot}': empty array. Expected an array with minimum length 1, but got an empty"
        " array instead."
    )
    return Fault("tools" if spot == "tools" else "shape", told, spot, "empty_array")


def _too_long(kind: Kind, spot: str, most: int, length: int) -> Fault:
    told = (
        f"Invalid '{spot}': string too long. Expected a string with maximum length {most}, but got"
        f" a string with length {length} instead."
    )
    return Fault(kind, told, spot, "string_above_max_length")


def tokens(request: Request) -> int:
    """Return how many tokens *request* takes, by an estimate."""
    return tokens_in(request.json.get("tools", []), request.json["messages"])


def too_long(needed: int, window: int) -> Fault:
    """Return the fault of a request that takes more tokens than there are."""
    told = (
        f"This model's maximum context length is {window} tokens. However, your messages resulted"
        f" in {needed} tokens. Please reduce the length of the messages."
    )
    return Fault("window", told, "messages", "context_length_exceeded")


def too_long_for_llama(needed: int, window: int) -> Fault:
    """Return the same fault as llama.cpp reports it."""
    told = (
        f"request ({needed} tokens) exceeds the available context size ({window} tokens), try"
        " increasing it"
    )
    more = {"type": "exceed_context_size_error", "n_prompt_tokens": needed, "n_ctx": window}
    return Fault("window", told, more={"code": 400} | more)


def refusal(fault: Fault) -> Reply:
    """Return what the provider answers to a request that has *fault*."""
    told = {"message": fault.message, "type": "invalid_request_error"}
    told |= {"param": fault.param, "code": fault.code}
    if fault.more:
        told = {"message": fault.message, **fault.more}
    return failure(400, {"error": told}, {"x-request-id": "req_wire"})
