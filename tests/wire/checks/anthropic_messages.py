"""What Anthropic asks of a request for a message."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from wire.checks.fault import Fault, tokens_in
from wire.checks.thoughts import Issued, Prefix, Thought, data_of
from wire.connection import Request
from wire.replies import Reply, failure

KEY = re.compile(r"[a-zA-Z0-9_-]+")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
SIGNED = {"thinking": "signature", "redacted_thinking": "data"}
THOUGHTS = set(SIGNED)
WHOSE = dict.fromkeys([*SIGNED, "tool_use"], "assistant") | {"tool_result": "user"}
BREAKPOINTS = 4
LEAST_BUDGET = 1024
LEAST_TOP_P = 0.95
BINDING_BETA = "thinking-binding-controls-2026-08-01"
GUIDE = "https://docs.claude.com/en/docs/build-with-claude/extended-thinking"


def faults(request: Request) -> Iterator[Fault]:
    """Yield what is wrong with *request*, worst first; signatures are checked apart."""
    body = request.json
    if not body.get("model"):
        yield Fault("shape", "model: Field required")
    if not request.path.partition("?")[0].endswith("/count_tokens"):
        if not isinstance(limit := body.get("max_tokens"), int):
            yield Fault("shape", "max_tokens: Field required")
        elif limit < 1:
            yield Fault("shape", "max_tokens: Input should be greater than or equal to 1")
    messages = body.get("messages")
    if messages is None:
        yield Fault("shape", "messages: Field required")
        return
    if not messages:
        yield Fault("shape", "messages: at least one message is required")
        return
    yield from _tools(body)
    yield from _blocks("system", "system", blocks_of(body.get("system")))
    if messages[0].get("role") != "user":
        yield Fault("roles", 'messages: first message must use the "user" role')
    yield from _messages(messages)
    yield from _options(request)


def _messages(messages: list[dict[str, Any]]) -> Iterator[Fault]:
    waiting: list[str] = []
    seen = set[str]()
    for at, message in enumerate(messages):
        role, blocks = message.get("role"), blocks_of(message.get("content"))
        last_prefill = role == "assistant" and at == len(messages) - 1
        if role not in {"user", "assistant", "system"}:
            told = f'messages: Unexpected role "{role}". Allowed roles are "user" or "assistant"'
            yield Fault("roles", told)
        if not blocks and not last_prefill:
            told = "all messages must have non-empty content except for the optional final"
            yield Fault("empty", f"messages.{at}: {told} assistant message")
        yield from _blocks(f"messages.{at}", str(role), blocks)
        yield from _results(at, blocks, waiting)
        waiting = []
        for number, block in enumerate(blocks):
            if block["type"] == "tool_use":
                if block["id"] in seen:
                    place = f"messages.{at}.content.{number}"
                    yield Fault("ids", f"{place}: `tool_use` ids must be unique")
                seen.add(block["id"])
                waiting.append(block["id"])
        ends_in = blocks[-1].get("text", "") if blocks else ""
        if last_prefill and ends_in != ends_in.rstrip():
            told = "messages: final assistant content cannot end with trailing whitespace"
            yield Fault("empty", told)
    if waiting:
        yield _unanswered(len(messages) - 1, waiting)


def _blocks(where: str, role: str, blocks: list[dict[str, Any]]) -> Iterator[Fault]:
    for at, block in enumerate(blocks):
        spot, kind = f"{where}.content.{at}", block.get("type")
        if kind is None:
            yield Fault("shape", f"{spot}.type: Field required")
        if kind == "text":
            yield from _text(where, block.get("text"))
        whose = WHOSE.get(str(kind), role)
        if role != whose:
            told = f"`{kind}` blocks can only be in `{whose}` messages"
            yield Fault("roles", f"{spot}: {told}")
        if kind in SIGNED:
            yield from _signed(f"{spot}.{kind}", block)
        if kind == "tool_use":
            yield from _use(f"{spot}.tool_use", block)
        if kind == "tool_result":
            yield from _blocks(spot, role, blocks_of(block.get("content")))


def _signed(spot: str, block: dict[str, Any]) -> Iterator[Fault]:
    if not block.get(field := SIGNED[block["type"]]):
        yield Fault("thinking", f"{spot}.{field}: Field required")
    if "cache_control" in block:
        yield Fault("options", f"{spot}.cache_control: Extra inputs are not permitted")


def _text(where: str, text: Any) -> Iterator[Fault]:
    if not text:
        yield Fault("empty", f"{where}: text content blocks must be non-empty")
    elif not text.strip():
        yield Fault("empty", f"{where}: text content blocks must contain non-whitespace text")


def _use(spot: str, block: dict[str, Any]) -> Iterator[Fault]:
    if not KEY.fullmatch(block.get("id") or ""):
        yield Fault("ids", f"{spot}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if not NAME.fullmatch(block.get("name") or ""):
        yield Fault("ids", f"{spot}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    if not isinstance(block.get("input"), dict):
        yield Fault("shape", f"{spot}.input: Input should be a valid dictionary")


def _results(at: int, blocks: list[dict[str, Any]], waiting: list[str]) -> Iterator[Fault]:
    given = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    leading = [block["type"] == "tool_result" for block in blocks[: len(given)]]
    if missing := [key for key in waiting if key not in given]:
        yield _unanswered(at - 1, missing)
    if not all(leading):
        # A result that something precedes is none.
        yield _unanswered(at - 1, waiting)
    for key, count in Counter(given).items():
        if key not in waiting:
            told = (
                f"unexpected `tool_use_id` found in `tool_result` blocks: {key}. Each `tool_result`"
                " block must have a corresponding `tool_use` block in the previous message."
            )
            yield Fault("pairs", f"messages.{at}.content.0: {told}")
        elif count > 1:
            told = (
                "each tool_use must have a single result. Found multiple `tool_result` blocks with"
                f" id: {key}"
            )
            yield Fault("pairs", f"messages.{at}.content.0: {told}")


def _unanswered(at: int, keys: list[str]) -> Fault:
    told = (
        f"`tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(keys)}. Each `tool_use` block must have a corresponding `tool_result` block in"
        " the next message."
    )
    return Fault("pairs", f"messages.{at}: {told}")


def _tools(body: dict[str, Any]) -> Iterator[Fault]:
    tools = body.get("tools") or []
    names = [tool.get("name") for tool in tools]
    for at, (tool, name) in enumerate(zip(tools, names, strict=True)):
        spot = f"tools.{at}.custom"
        if not NAME.fullmatch(name or ""):
            told = "String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"
            yield Fault("tools", f"{spot}.name: {told}")
        if tool.get("type", "custom") != "custom":
            # A tool of Anthropic's own, whose schema the model knows.
            continue
        schema = tool.get("input_schema")
        if not isinstance(schema, dict):
            yield Fault("tools", f"{spot}.input_schema: Field required")
        elif schema.get("type") != "object":
            yield Fault("tools", f"{spot}.input_schema.type: Input should be 'object'")
    if len(names) != len(set(names)):
        yield Fault("tools", "tools: Tool names must be unique.")
    if "tool_choice" in body and not tools:
        yield Fault("options", "tool_choice: may only be specified while providing `tools`.")


def _options(request: Request) -> Iterator[Fault]:
    body = request.json
    if (marks := _marks(body)) > BREAKPOINTS:
        told = f"A maximum of 4 blocks with cache_control may be provided. Found {marks}."
        yield Fault("options", told)
    thinking = body.get("thinking") or {}
    beta = request.headers.get("anthropic-beta", "")
    if "block_binding" in thinking and BINDING_BETA not in beta:
        yield Fault("options", "thinking.block_binding: Extra inputs are not permitted")
    if thinking.get("type") not in {"enabled", "adaptive"}:
        return
    if body.get("temperature", 1) != 1:
        yield Fault("options", "`temperature` may only be set to 1 when thinking is enabled.")
    if body.get("top_p", 1) < LEAST_TOP_P:
        told = "`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled."
        yield Fault("options", told)
    if (body.get("tool_choice") or {}).get("type") in {"any", "tool"}:
        told = "Thinking may not be enabled when tool_choice forces tool use."
        yield Fault("options", told)
    if thinking["type"] == "enabled":
        yield from _budget(body, interleaved="interleaved-thinking" in beta)
        yield from _begins_with_thinking(body["messages"])


def _budget(body: dict[str, Any], *, interleaved: bool) -> Iterator[Fault]:
    budget = body["thinking"].get("budget_tokens", 0)
    if budget < LEAST_BUDGET:
        spot = "thinking.enabled.budget_tokens"
        yield Fault("options", f"{spot}: Input should be greater than or equal to 1024")
    unlimited = interleaved and body.get("tools")
    if not unlimited and body.get("max_tokens", budget + 1) <= budget:
        told = "`max_tokens` must be greater than `thinking.budget_tokens`."
        yield Fault("options", f"{told} Please consult our documentation at {GUIDE}")


def _begins_with_thinking(messages: list[dict[str, Any]]) -> Iterator[Fault]:
    """Check that the last turn has thinking before its calls.

    The provider takes the messages of a turn as one, so responses after the first need not think.
    """
    turns = _turns(messages)
    said = [at for at, one in enumerate(messages) if one["role"] == "assistant"]
    last = blocks_of(messages[-1].get("content"))
    results = any(block["type"] == "tool_result" for block in last)
    if not said or not (results or said[-1] == len(messages) - 1):
        return
    kinds = [_first_kind(messages[at]) for at in said if turns[at] == turns[said[-1]]]
    if not THOUGHTS.intersection(kinds):
        told = (
            f"Expected `thinking` or `redacted_thinking`, but found `{kinds[-1]}`. When `thinking`"
            " is enabled, a final `assistant` message must start with a thinking block (preceeding"
            " the lastmost set of `tool_use` and `tool_result` blocks). We recommend you include"
            " thinking blocks from previous turns. To avoid this requirement, disable `thinking`."
            f" Please consult our documentation at {GUIDE}"
        )
        yield Fault("thinking", f"messages.{said[-1]}.content.0.type: {told}")


def _first_kind(message: dict[str, Any]) -> str:
    blocks = blocks_of(message.get("content"))
    return blocks[0]["type"] if blocks else "text"


def signature_faults(request: Request, issued: Issued, *, binds: bool) -> Iterator[Fault]:
    """Yield what is wrong with the thinking in *request*: nothing, if it is to be dropped."""
    dropped = dropped_thinking(request, issued, binds=binds)
    for spot, block, prefix in _thinking(request.json):
        thought = _thought(block)
        told = f"{spot}: Invalid `{SIGNED[block['type']]}` in `{block['type']}` block"
        if thought not in issued:
            yield Fault("thinking", told)
        elif binds and spot not in dropped and not issued.after(thought, prefix):
            told = (
                f"{told}. The block is bound to a different conversation. Remove the block, or set"
                ' `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
            )
            if BINDING_BETA not in request.headers.get("anthropic-beta", ""):
                told += (
                    f" That setting requires the `{BINDING_BETA}` value in the `anthropic-beta`"
                    " header."
                )
            yield Fault("binding", told)


def dropped_thinking(request: Request, issued: Issued, *, binds: bool) -> list[str]:
    """Return where *request* has thinking that it asks to drop, as its prefix has changed.

    The rest of the thinking in the same turn is dropped with it.
    """
    thinking = request.json.get("thinking") or {}
    behaviour = (thinking.get("block_binding") or {}).get("prefix_mismatch_behavior")
    if behaviour != "drop_block" or not binds:
        return []
    turns = _turns(request.json["messages"])
    found: list[str] = []
    broken: int | None = None
    for spot, block, prefix in _thinking(request.json):
        turn = turns[int(spot.split(".")[1])]
        if turn == broken or not issued.after(_thought(block), prefix):
            broken = turn
            found.append(spot)
    return found


def _turns(messages: list[dict[str, Any]]) -> list[int]:
    """Return the number of the turn of each message: a turn begins when the user says something."""
    numbers: list[int] = []
    for message in messages:
        kinds = {block.get("type") for block in blocks_of(message.get("content"))}
        begins = message.get("role") == "user" and kinds != {"tool_result"}
        numbers.append((numbers[-1] if numbers else 0) + begins)
    return numbers


def _thinking(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], bytes]]:
    """Yield where thinking stands, its block, and the digest of what stands before its message."""
    if (body.get("thinking") or {}).get("type") == "disabled":
        # Then the provider ignores what was thought before.
        return
    messages = body["messages"]
    if not any(block.get("type") in THOUGHTS for one in messages for block in _listed(one)):
        return
    prefix = _head(body)
    for at, message in enumerate(messages):
        for number, block in enumerate(_listed(message)):
            if block.get("type") in THOUGHTS:
                yield f"messages.{at}.content.{number}", block, prefix.digest
        prefix.add(_bound(message))


def _head(body: dict[str, Any]) -> Prefix:
    system = [_without_marks(block) for block in blocks_of(body.get("system"))]
    return Prefix(system, [_without_marks(tool) for tool in body.get("tools") or ()])


def _bound(message: dict[str, Any]) -> Any:
    """Return what binds later thinking to *message*: all but thinking, which may be left out."""
    blocks = [one for one in blocks_of(message.get("content")) if one.get("type") not in THOUGHTS]
    return [message["role"], *map(_without_marks, blocks)]


def _without_marks(block: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name != "cache_control"}


def issues(request: Request, reply: bytes, issued: Issued) -> None:
    """Note in *issued* the thinking in *reply* to *request*."""
    if b"signature" not in reply and b"redacted_thinking" not in reply:
        return
    prefix = _head(request.json)
    for message in request.json["messages"]:
        prefix.add(_bound(message))
    issued.note(_streamed(reply), prefix.digest)


def _streamed(reply: bytes) -> Iterator[Thought]:
    blocks: dict[Any, dict[str, Any]] = {}
    for event in data_of(reply):
        match event:
            case {"type": "content_block_start", "index": index, "content_block": {**block}}:
                blocks[index] = block
            case {"type": "content_block_delta", "index": index, "delta": {**delta}}:
                block = blocks.setdefault(index, {})
                for name in ("thinking", "signature"):
                    if isinstance(value := delta.get(name), str):
                        block[name] = block.get(name, "") + value
            case _:
                pass
    for block in blocks.values():
        if block.get("type") in THOUGHTS:
            yield _thought(block)


def _thought(block: dict[str, Any]) -> Thought:
    if block["type"] == "thinking":
        return "thinking", str(block.get("thinking")), str(block.get("signature"))
    return "redacted_thinking", str(block.get("data"))


def blocks_of(content: Any) -> list[dict[str, Any]]:
    """Return *content* as blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content or ())


def _listed(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _marks(value: Any) -> int:
    if isinstance(value, list):
        return sum(_marks(item) for item in value)
    if isinstance(value, dict):
        # What a call has as input, and a schema, may have a field of that name.
        own = {name: item for name, item in value.items() if name not in {"input_schema", "input"}}
        return sum(_marks(item) for item in own.values()) + bool(value.get("cache_control"))
    return 0


def tokens(request: Request) -> int:
    """Return how many tokens *request* takes, by an estimate."""
    body = request.json
    return tokens_in(body.get("system", ""), body.get("tools", []), body["messages"])


def too_long(needed: int, window: int) -> Fault:
    """Return the fault of a request that takes more tokens than there are."""
    return Fault("window", f"prompt is too long: {needed} tokens > {window} maximum")


def refusal(fault: Fault) -> Reply:
    """Return what the provider answers to a request that has *fault*."""
    told = {"type": "invalid_request_error", "message": fault.message}
    body = {"type": "error", "error": told, "request_id": "req_wire"}
    return failure(400, body, {"request-id": "req_wire"})
