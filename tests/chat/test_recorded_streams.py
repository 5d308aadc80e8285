"""Each recorded stream goes through a client, and is followed by a request that can be sent."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chat_helpers import asked, heard, options, serving, text_of
from treefold import (
    Client,
    CodeFunction,
    ModelProviderException,
    ModelRefusedError,
    RunContext,
    ThinkingBlock,
    ToolUseBlock,
    ToolUseError,
)
from treefold.models import Profile, Retry, Thinking
from wire import stream
from wire.protocols import PROTOCOLS, Protocol

CORPUS = Path(__file__).parent.parent / "models" / "corpus"
CASES = sorted(path.relative_to(CORPUS).with_suffix("") for path in CORPUS.glob("*/*.json"))


def nothing(ctx: RunContext) -> None: ...


def options_for(case: dict[str, Any], server: Any, protocol: Protocol) -> Any:
    """Return options with the functions and the profile that a recording was made with."""
    tools = [CodeFunction(name=name, callable=nothing) for name in case["functions"]]
    model: Any = protocol.model(server, retry=Retry([]))
    profile: Profile = replace(model.profile, thinking=Thinking.UNASKED, **case.get("profile", {}))
    model = protocol.model(server, retry=Retry([]), profile=profile)
    return options(server, protocol, tools=tools, model=model)


def thinking_of(blocks: list[Any]) -> str:
    return "".join(block.thinking for block in blocks if isinstance(block, ThinkingBlock))


def calls_of(blocks: list[Any]) -> list[Any]:
    return [block for block in blocks if isinstance(block, ToolUseBlock | ToolUseError)]


def check_calls(expected: list[dict[str, Any]], found: list[Any]) -> None:
    assert len(found) == len(expected)
    for call, wanted in zip(found, expected, strict=True):
        if "fault" in wanted:
            assert isinstance(call, ToolUseError)
            continue
        assert call == ToolUseBlock(wanted["id"] or call.id, wanted["name"], wanted["args"])


@pytest.mark.parametrize("name", CASES, ids=str)
async def test_a_recorded_stream_is_understood_and_can_be_gone_on_from(name: Path):
    case = json.loads((CORPUS / name).with_suffix(".json").read_text())
    reply = stream((CORPUS / name).with_suffix(".sse").read_bytes())
    [protocol] = [one for one in PROTOCOLS if one.name == name.parts[0]]
    thought = "Fine.</think>" if case.get("profile", {}).get("thinks_first") else ""
    script = [reply, *[protocol.text(f"{thought}ok") for _ in range(2)]]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(options_for(case, server, protocol)) as client,
    ):
        if case["broken"] or case["error"] or case["finish"] == "refused":
            kind = ModelRefusedError if case["finish"] == "refused" else ModelProviderException
            with pytest.raises(kind):
                await asked(client, "Go.")
            assert client.history == []
        else:
            found = await asked(client, "Go.")
            more = "ok" if case["finish"] == "paused" else ""  # it goes on by itself
            assert text_of(found) == case["text"] + more
            assert thinking_of(found).strip() == case["thinking"].strip()
            check_calls(case["calls"], calls_of(found))
            for call in calls_of(found):
                if isinstance(call, ToolUseBlock):
                    await client.add_tool_result(call.id, "done", call.name)
        await client.query("Go on.")
        assert text_of(await heard(client)) == "ok"
