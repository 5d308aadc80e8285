"""What OpenAI, and the templates of the models behind compatible servers, ask of a request."""

import re
from itertools import pairwise
from typing import Any

from wire.connection import Request

INSTRUCTIONS = {"system", "developer"}
ROLES = {*INSTRUCTIONS, "user", "assistant", "tool"}
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_request(request: Request) -> None:
    """Raise AssertionError when OpenAI or a compatible server would refuse *request*."""
    body = request.json
    assert body.get("model"), "The request names no model."
    assert body.get("messages"), "The request has no messages."
    _check_options(body)
    _check_order(body["messages"])
    waiting: set[str] = set()
    for at, message in enumerate(body["messages"]):
        role = message.get("role")
        assert role in ROLES, f"messages[{at}] has the role {role!r}."
        if role == "tool":
            key = message.get("tool_call_id")
            assert key in waiting, f"messages[{at}] answers {key!r}, which nobody waits for."
            assert message.get("content") is not None, f"messages[{at}] has no content."
            waiting.remove(key)
            continue
        assert not waiting, f"messages[{at}] comes before an answer to {sorted(waiting)}."
        if role == "assistant":
            waiting = _called(at, message)
        else:
            _check_content(at, message.get("content"))
    assert not waiting, f"The messages end without an answer to {sorted(waiting)}."


def _check_options(body: dict[str, Any]) -> None:
    names = [tool["function"]["name"] for tool in body.get("tools", ()) if "function" in tool]
    for name in names:
        assert NAME.fullmatch(name), f"No tool can have the name {name!r}."
    assert len(names) == len(set(names)), f"Two tools have the same name: {names}."
    assert body.get("tools") != [], "A list of tools has at least one; leave it out."
    for option in ("tool_choice", "parallel_tool_calls"):
        assert option not in body or names, f"{option} is only allowed when there are tools."
    if "stream_options" in body:
        assert body.get("stream") is True, "stream_options is only allowed with stream."


def _check_order(messages: list[dict[str, Any]]) -> None:
    """Check that user and assistant alternate, as the templates of many models insist."""
    roles = [(at, one.get("role")) for at, one in enumerate(messages)]
    talk = [(at, role) for at, role in roles if role not in INSTRUCTIONS]
    for (_, before), (at, role) in pairwise(talk):
        assert role == "tool" or role != before, f"messages[{at}] is the second {role} in a row."
    assert not talk or talk[0][1] != "assistant", "The first message is the assistant's."


def _called(at: int, message: dict[str, Any]) -> set[str]:
    made = message.get("tool_calls")
    assert made != [], f"messages[{at}] has an empty list of tool calls; leave it out."
    if not made:
        assert isinstance(message.get("content"), str | list), f"messages[{at}] has no content."
        return set()
    keys = [call.get("id") for call in made]
    assert all(keys), f"messages[{at}] has a tool call without an id."
    assert len(keys) == len(set(keys)), f"messages[{at}] has two tool calls of one id: {keys}."
    for call in made:
        assert call.get("type") == "function", f"messages[{at}] has a tool call without its type."
        function = call["function"]
        assert NAME.fullmatch(function["name"]), f"messages[{at}] calls {function['name']!r}."
        given = function.get("arguments")
        assert isinstance(given, str), f"messages[{at}] has arguments that are not a string."
    return set(keys)


def _check_content(at: int, content: Any) -> None:
    assert content, f"messages[{at}] has no content."
    if isinstance(content, list):
        for part in content:
            assert part.get("type"), f"messages[{at}] has a part without a type."
            assert part["type"] != "text" or part.get("text"), f"messages[{at}] has an empty text."
