"""Helpers of the tests of chats: options, tools, and one vocabulary for what was said.

What a request says to a model and what a client keeps as history are both read into `User`,
`Assistant` and `Result`, whatever the protocol, so that whole conversations can be compared.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from treefold import (
    HOOK_POST_TOOL_USE,
    HOOK_PRE_TOOL_USE,
    HOOK_USER_PROMPT_SUBMIT,
    AgentOptions,
    Client,
    ModelProviderException,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    tool,
)
from treefold.models import Retry
from wire import ModelServer, Reply, Request, Step
from wire.openai_wire import MODEL
from wire.protocols import PROTOCOLS, Protocol
from wire.replies import compact

OPENAI, ANTHROPIC, GEMINI = PROTOCOLS
SYSTEM = "You help."


@tool("add", "Add two numbers.", {"a": int, "b": int})
async def add(args: dict[str, Any]) -> int:
    return args["a"] + args["b"]


@tool("fail", "Do what cannot be done.", {"why": str})
async def fail(args: dict[str, Any]) -> None:
    raise LookupError(args["why"])


@tool("search", "Search.", {"q": {"type": "string", "default": ""}})
async def search(args: dict[str, Any]) -> str:
    return f"found {args.get('q', '')}"


def entries(*made: dict[str, Any]) -> dict[str, Any]:
    """Return the delta of a stream that has these tool calls."""
    return {"tool_calls": list(made)}


def adding(id: str, a: int = 25, b: int = 17) -> tuple[str, str, str]:
    """Return a call of `add` that a model asks for."""
    return (id, "add", compact({"a": a, "b": b}))


def failing(id: str, why: str = "no such city") -> tuple[str, str, str]:
    """Return a call of `fail` that a model asks for."""
    return (id, "fail", compact({"why": why}))


@asynccontextmanager
async def serving(*script: Reply, protocol: Protocol = OPENAI) -> AsyncGenerator[ModelServer, None]:
    """Open a server that checks every request, for no longer than any test may take."""
    async with asyncio.timeout(60), protocol.server(*script) as server:
        yield server
        assert server.unexpected == 0, f"{server.unexpected} requests more than the script has"


def options(server: ModelServer, protocol: Protocol | None = None, **changes: Any) -> AgentOptions:
    """Return options for *server*: by its address, or with the model of a *protocol*."""
    given: dict[str, Any] = {"system_prompt": SYSTEM, "model": MODEL, "retry": Retry([])}
    if protocol is None:
        given["base_url"] = f"{server.url}/v1"
    else:
        given |= {"model": protocol.model(server, retry=Retry([])), "retry": None}
    return AgentOptions(**given | changes)


def by_name(**hooks: Any) -> dict[str, Any]:
    """Return hooks under their long names."""
    names = {
        "pre": HOOK_PRE_TOOL_USE,
        "post": HOOK_POST_TOOL_USE,
        "prompt": HOOK_USER_PROMPT_SUBMIT,
    }
    return {names[name]: made for name, made in hooks.items()}


async def heard(client: Client) -> list[Any]:
    """Return the rest of what a client receives."""
    async with asyncio.timeout(60):
        return [block async for block in client.receive_messages()]


async def asked(client: Client, prompt: str) -> list[Any]:
    """Return all that comes of *prompt*."""
    async with asyncio.timeout(60):
        await client.query(prompt)
    return await heard(client)


async def answered(client: Client, prompt: str) -> list[Any]:
    """Do the same in either mode: the calls are made here if the client does not make them."""
    found: list[Any] = []
    async with asyncio.timeout(60):
        await client.query(prompt)
        async for block in client.receive_messages():
            found.append(block)
            if isinstance(block, ToolUseBlock) and not client.options.auto_execute_tools:
                tools: dict[str, Any] = {one.name: one for one in client.options.tools}
                result = await tools[block.name].execute(block.input)
                await client.add_tool_result(block.id, result, block.name)
                await client.query("")
    return found


async def until_failure(client: Client) -> tuple[list[Any], Exception]:
    """Return what a client receives, and the exception that comes out of the loop in the end."""
    found: list[Any] = []
    blocks = client.receive_messages()
    try:
        async with asyncio.timeout(60):
            while True:
                found.append(await anext(blocks))
    except (RuntimeError, ModelProviderException) as error:
        return found, error


def joined(blocks: Iterable[Any]) -> list[Any]:
    """Return *blocks* with the pieces of a text or a thought put together."""
    found: list[Any] = []
    for block in blocks:
        match found[-1:], block:
            case [TextBlock(before)], TextBlock(text):
                found[-1] = TextBlock(before + text)
            case [ThinkingBlock(before)], ThinkingBlock(thinking, was_text=False):
                found[-1] = ThinkingBlock(before + thinking)
            case _:
                found.append(block)
    return found


def text_of(blocks: Iterable[Any]) -> str:
    """Return the text of *blocks*, less what turned out to be thinking."""
    text = ""
    for block in blocks:
        if isinstance(block, ThinkingBlock) and block.was_text:
            text = ""
        elif isinstance(block, TextBlock):
            text += block.text
    return text


def after(reply: Reply, words: str, *steps: Step) -> Reply:
    """Return *reply* with *steps* put in behind the first piece that has *words*."""
    spellings = (words.encode(), compact(words)[1:-1].encode())  # as JSON, or inside a string
    [place, *_] = [
        at
        for at, step in enumerate(reply.steps)
        if isinstance(step, bytes) and any(spelling in step for spelling in spellings)
    ]
    return replace(reply, steps=(*reply.steps[: place + 1], *steps, *reply.steps[place + 1 :]))


@dataclass(frozen=True)
class User:
    """What the user said."""

    text: Any


@dataclass(frozen=True)
class Assistant:
    """What the model said, and which calls it asked for, each (id, name, arguments)."""

    text: Any = ""
    calls: tuple[tuple[str, str, Any], ...] = ()


@dataclass(frozen=True)
class Result:
    """What the model is told of a call: a value if it is JSON, and whether it has failed."""

    id: str
    content: Any
    failed: bool = False


Said = User | Assistant | Result


class Saying:
    """Equal to whatever has all these words in it."""

    def __init__(self, *words: str) -> None:
        self._words = words

    def __eq__(self, other: object) -> bool:
        text = other if isinstance(other, str) else json.dumps(other, default=str)
        return all(word.casefold() in text.casefold() for word in self._words)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"Saying{self._words!r}"


def call(id: str, name: str, **args: Any) -> tuple[str, str, dict[str, Any]]:
    """Return a call as `Assistant` has it."""
    return (id, name, args)


def failed(id: str, error: Any, tool: str) -> Result:
    """Return the result that says that a call has failed."""
    return Result(id, {"error": error, "tool": tool}, failed=True)


def written(history: Sequence[dict[str, Any]]) -> list[Said]:
    """Return what the messages of a history say, which have to be in OpenAI's form."""
    return [_message(message) for message in history]


def told(request: Request, protocol: Protocol = OPENAI) -> list[Said]:
    """Return what *request* says to the model, its system prompt apart."""
    body = request.json
    if protocol is OPENAI:
        system, *messages = body["messages"]
        assert system == {"role": "system", "content": SYSTEM}
        return written(messages)
    if protocol is ANTHROPIC:
        assert body["system"] == SYSTEM
        return [one for message in body["messages"] for one in _claude(message)]
    assert body["systemInstruction"]["parts"] == [{"text": SYSTEM}]
    return [one for content in body["contents"] for one in _gemini(content)]


def _message(message: dict[str, Any]) -> Said:
    match message:
        case {"role": "user", "content": str(text)}:
            return User(text)
        case {"role": "tool", "tool_call_id": id, "content": str(content)}:
            return _result(id, content)
        case {"role": "assistant"}:
            calls = [_asked_for(call) for call in message.get("tool_calls", ())]
            return Assistant(message["content"] or "", tuple(calls))
        case _:
            raise AssertionError(f"what is this? {message}")


def _asked_for(call: dict[str, Any]) -> tuple[str, str, Any]:
    assert call["type"] == "function"
    return (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))


def _result(id: str, content: str) -> Result:
    """Read a result; this protocol has no flag, so that a failure says so itself."""
    value = _value(content)
    if isinstance(value, dict) and value.keys() == {"tool_error"}:
        return Result(id, _value(value["tool_error"]), failed=True)
    return Result(id, value, isinstance(value, dict) and value.keys() == {"error", "tool"})


def _claude(message: dict[str, Any]) -> list[Said]:
    blocks: Any = message["content"]
    if isinstance(blocks, str):
        blocks = [{"type": "text", "text": blocks}]
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    if message["role"] == "assistant":
        uses = [block for block in blocks if block["type"] == "tool_use"]
        calls = [(use["id"], use["name"], use["input"]) for use in uses]
        return [Assistant("".join(texts), tuple(calls))]
    results: list[Said] = [
        Result(block["tool_use_id"], _value(block["content"]), block.get("is_error", False))
        for block in blocks
        if block["type"] == "tool_result"
    ]
    return [*results, User("\n\n".join(texts))] if texts else results


def _gemini(content: dict[str, Any]) -> list[Said]:
    parts = content["parts"]
    texts = [part["text"] for part in parts if "text" in part]
    if content["role"] == "model":
        made = [part["functionCall"] for part in parts if "functionCall" in part]
        calls = [(one["id"], one["name"], one["args"]) for one in made]
        return [Assistant("".join(texts), tuple(calls))]
    found: list[Said] = []
    for part in parts:
        if "functionResponse" in part:
            [(kind, value)] = part["functionResponse"]["response"].items()
            found.append(Result(part["functionResponse"]["id"], _value(value), kind == "error"))
    return [*found, User("\n\n".join(texts))] if texts else found


def _value(content: str) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content
