"""Chat templates, as llama.cpp fills them in; the weights are those of the small default model."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from treefold import Provider, registries, tool
from treefold.agents.results import ReturnResult
from treefold.core.errors import InvalidValueError
from treefold.core.model import ModelSettings
from treefold.core.model_events import Noticed
from treefold.core.transcript import ToolUse, UserText
from treefold.models import LocalModel, Profile, profile_of
from treefold.models.chat_templates import BARE_JSON_CALLS
from treefold.models.local.call_schema import call_schema
from treefold.models.local.llama import LlamaServer
from wire.protocols import answer

with registries():

    @tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b


class Sum(BaseModel):
    total: int


QWEN = replace(profile_of(Provider.Local, "qwen2.5-coder-1.5b"), context_window=512)
HOW = """\
To call a function, write one JSON object and nothing else: no explanation, no code block, no tags.
{"name": "the name of the function", "arguments": {"the name of an argument": "its value"}}
The next message has its result. Call functions one after the other until you know the answer."""
CALL = '{"name": "add", "arguments": {"a": 1, "b": 2}}'
CALLED = [
    {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
]
ADD = {"name": "add", "description": "Add.", "parameters": {"type": "object"}}
TOOLS = [{"type": "function", "function": ADD}]


@pytest.fixture(scope="module")
def server(smollm2: Path) -> Iterator[LlamaServer]:
    server = LlamaServer.start(smollm2, context=256, chat_template=BARE_JSON_CALLS)
    yield server
    server.close()


def prompt(server: LlamaServer, *messages: dict[str, Any], tools: list[Any]) -> str:
    url = server.base_url.removesuffix("/v1") + "/apply-template"
    headers = {"authorization": f"Bearer {server.api_key}"}
    body = {"messages": messages, "tools": tools}
    return httpx.post(url, headers=headers, json=body, timeout=60).json()["prompt"]


def test_calls_are_bare_json_and_the_last_result_comes_with_the_question(server: LlamaServer):
    shown = prompt(
        server,
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1 + 2?"},
        {"role": "assistant", "content": None, "tool_calls": CALLED},
        {"role": "tool", "tool_call_id": "1", "content": "3"},
        {"role": "assistant", "content": "Once more.", "tool_calls": CALLED},
        {"role": "tool", "tool_call_id": "1", "content": "4"},
        tools=TOOLS,
    )
    assert shown == (
        "<|im_start|>system\nBe brief.\n\n"
        "You can call these functions, described by JSON schemas:\n\n"
        f"{json.dumps(ADD)}\n\n"
        f"{HOW}<|im_end|>\n"
        "<|im_start|>user\n1 + 2?<|im_end|>\n"
        f"<|im_start|>assistant\n{CALL}<|im_end|>\n"
        "<|im_start|>user\nResult: 3<|im_end|>\n"
        f"<|im_start|>assistant\nOnce more.\n{CALL}<|im_end|>\n"
        "<|im_start|>user\nResult: 4\nUse it to answer: 1 + 2?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_without_functions_it_is_only_the_conversation(server: LlamaServer):
    assert prompt(server, {"role": "user", "content": "Hello"}, tools=[]) == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_a_model_that_writes_its_calls_as_json_makes_them(smollm2: Path):
    """A grammar has the small model write what the larger ones write by themselves."""
    model = LocalModel(smollm2, context=512, profile=QWEN)
    assert (model.calls_functions, LocalModel(smollm2).calls_functions) == (True, False)
    taught = LocalModel(smollm2, chat_template=BARE_JSON_CALLS, profile=Profile())
    assert taught.calls_functions
    assert not LocalModel("qwen2.5-coder-0.5b").calls_functions
    grammar = f"root ::= {CALL!r}".replace('"', '\\"').replace("'", '"')
    session = model.open("", [add], ModelSettings(extra={"grammar": grammar}))
    events = await answer(session, UserText("What is 1 + 2?"))
    (call,) = [part for part in session.transcript if isinstance(part, ToolUse)]
    assert (call.name, call.args) == ("add", {"a": 1, "b": 2})
    assert [event for event in events if isinstance(event, Noticed)] == []


async def test_an_agent_with_a_declared_result_can_only_call(smollm2: Path):
    """Even the small model, which knows nothing about calls, makes one that is valid."""
    model = LocalModel(smollm2, context=512, profile=QWEN)
    session = model.open("", [add, ReturnResult(Sum, or_answer=True)])
    await answer(session, UserText("What is 1 + 2?"))
    (call,) = [part for part in session.transcript if isinstance(part, ToolUse)]
    assert call.args.keys() == ({"a", "b"} if call.name == "add" else {"total"})


def test_the_schema_of_a_call_has_the_types_of_all_functions():
    both = call_schema([ReturnResult(list[Sum]), add])
    assert both is not None
    assert both["$defs"].keys() == {"Sum"}
    assert [one["properties"]["name"] for one in both["anyOf"]] == [
        {"const": "return_result"},
        {"const": "add"},
    ]


def test_a_template_that_is_no_jinja_is_refused_with_its_fault(smollm2: Path):
    with pytest.raises(InvalidValueError, match="Unexpected token.*GGUF file or chat_template"):
        LlamaServer.start(smollm2, chat_template="{% if %}", context=256)
    with pytest.raises(InvalidValueError, match="the text of a Jinja template, got 'a.jinja'"):
        LocalModel(smollm2, chat_template="a.jinja")
