"""What Anthropic asks of a request for a message."""

import re
from collections import Counter
from typing import Any

from wire.connection import Request

KEY = re.compile(r"[a-zA-Z0-9_-]+")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
THOUGHTS = {"thinking", "redacted_thinking"}
BREAKPOINTS = 4


def check_request(request: Request) -> None:
    """Raise AssertionError when Anthropic would refuse *request*."""
    body = request.json
    assert body.get("model"), "The request names no model."
    if not request.path.partition("?")[0].endswith("/count_tokens"):
        limit = body.get("max_tokens")
        assert isinstance(limit, int), "The request has no max_tokens."
        assert limit >= 1, f"max_tokens is {limit}."
    messages = body.get("messages")
    assert messages, "The request has no messages."
    assert messages[0].get("role") == "user", "The first message is not of the user."
    _check_options(body)
    waiting: list[str] = []
    for at, message in enumerate(messages):
        role, blocks = message.get("role"), _blocks(message.get("content"))
        assert role in {"user", "assistant", "system"}, f"messages.{at} has the role {role!r}."
        last_prefill = role == "assistant" and at == len(messages) - 1
        assert blocks or last_prefill, f"messages.{at} has no content."
        _check_blocks(f"messages.{at}", role, blocks)
        _check_results(at, role, blocks, waiting)
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert not waiting, f"The messages end without a tool_result for {waiting}."
    if (body.get("thinking") or {}).get("type") == "enabled":
        _check_thinking(body, request)


def _check_options(body: dict[str, Any]) -> None:
    _check_blocks("system", "system", _blocks(body.get("system")))
    names = [tool["name"] for tool in body.get("tools", ())]
    for name in names:
        assert NAME.fullmatch(name), f"No tool can have the name {name!r}."
    assert len(names) == len(set(names)), f"Two tools have the same name: {names}."
    assert "tool_choice" not in body or names, "tool_choice is only allowed when there are tools."
    marks = _marks(body)
    assert marks <= BREAKPOINTS, f"At most 4 blocks may have cache_control, not {marks}."


def _check_blocks(where: str, role: str, blocks: list[dict[str, Any]]) -> None:
    for at, block in enumerate(blocks):
        spot, kind = f"{where}.content.{at}", block.get("type")
        assert kind, f"{spot} has no type."
        if kind == "text":
            assert block.get("text"), f"{spot} is an empty text."
            assert block["text"].strip(), f"{spot} is a text of nothing but white space."
        if kind in {*THOUGHTS, "tool_use"}:
            assert role == "assistant", f"{spot} is a {kind} that is not the assistant's."
        if kind == "thinking":
            assert block.get("signature"), f"{spot} is thinking without a signature."
        if kind == "redacted_thinking":
            assert block.get("data"), f"{spot} is redacted thinking without its data."
        if kind == "tool_use":
            assert KEY.fullmatch(block.get("id") or ""), f"{spot} has the id {block.get('id')!r}."
            assert isinstance(block.get("input"), dict), f"{spot} has an input that is no object."
        if kind == "tool_result":
            assert role == "user", f"{spot} is a tool_result that is not the user's."
            _check_blocks(spot, role, _blocks(block.get("content")))


def _check_results(at: int, role: str, blocks: list[dict[str, Any]], waiting: list[str]) -> None:
    given = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    assert role == "user" or not waiting, f"messages.{at} is no tool_result for {waiting}."
    assert len(waiting) == len(set(waiting)), f"Two tool_use before messages.{at} have one id."
    missing = [key for key in waiting if key not in given]
    assert not missing, f"messages.{at} has no tool_result for {missing}."
    extra = list((Counter(given) - Counter(waiting)).elements())
    assert not extra, f"messages.{at} has a tool_result for {extra}, which nobody waits for."
    first = [block["type"] for block in blocks[: len(given)]]
    assert set(first) <= {"tool_result"}, f"messages.{at} has something before its tool_results."


def _check_thinking(body: dict[str, Any], request: Request) -> None:
    budget = body["thinking"].get("budget_tokens", 0)
    assert budget >= 1024, f"thinking.budget_tokens is {budget}; it is at least 1024."
    interleaved = "interleaved-thinking" in request.headers.get("anthropic-beta", "")
    limit = body.get("max_tokens", budget + 1)
    unlimited = interleaved and body.get("tools")
    assert unlimited or limit > budget, (
        f"max_tokens is {limit}, not more than thinking.budget_tokens."
    )
    said = [m for m in body["messages"] if m["role"] == "assistant"]
    results = [b for b in _blocks(body["messages"][-1]["content"]) if b["type"] == "tool_result"]
    if said and results:
        first = _blocks(said[-1]["content"])[0]["type"]
        assert first in THOUGHTS, f"With thinking the last assistant starts with it, not {first}."


def _blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content or ())


def _marks(value: Any) -> int:
    if isinstance(value, list):
        return sum(_marks(item) for item in value)
    if isinstance(value, dict):
        inside = sum(_marks(item) for name, item in value.items() if name != "input_schema")
        return inside + bool(value.get("cache_control"))
    return 0
