"""The same work by hand: a session as a loop over plain httpx or aiohttp, a journal as a table."""

import json
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import aiohttp
import httpx

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
Post = Callable[[dict[str, Any]], AbstractAsyncContextManager[AsyncIterator[Any]]]


async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


class Httpx:
    """Requests by httpx."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = httpx.AsyncClient(timeout=60, headers={"authorization": "Bearer x"})

    async def events(self, payload: dict[str, Any]) -> AsyncGenerator[Any, None]:
        """Yield what the server sends."""
        async with self._client.stream("POST", self._url, json=payload) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    yield json.loads(line[6:])  # noqa: ASYNC119 - read to the end by all here

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


class Aiohttp:
    """Requests by aiohttp."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), headers={"authorization": "Bearer x"}
        )

    async def events(self, payload: dict[str, Any]) -> AsyncGenerator[Any, None]:
        """Yield what the server sends."""
        async with self._client.post(self._url, json=payload) as response:
            response.raise_for_status()
            async for line in response.content:
                if line.startswith(b"data: {"):
                    yield json.loads(line[6:])  # noqa: ASYNC119 - read to the end by all here

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


async def openai(http: Httpx | Aiohttp) -> str:
    """Have a conversation in OpenAI's protocol; return the answer."""
    function = {"name": "add", "description": "Add two integers.", "parameters": SCHEMA}
    messages: list[Any] = [{"role": "user", "content": "go"}]
    payload = {"model": "m", "stream": True, "messages": messages,
               "tools": [{"type": "function", "function": function}]}  # fmt: skip
    while True:
        calls: dict[int, list[str]] = {}
        text: list[str] = []
        async for event in http.events(payload):
            for choice in event["choices"]:
                delta = choice["delta"]
                if delta.get("content"):
                    text.append(delta["content"])
                for part in delta.get("tool_calls") or ():
                    call = calls.setdefault(part["index"], ["", "", ""])
                    call[0] = part.get("id") or call[0]
                    call[1] = part["function"].get("name") or call[1]
                    call[2] += part["function"]["arguments"]
        if not calls:
            return "".join(text)
        made = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments in calls.values()
        ]
        messages.append({"role": "assistant", "content": None, "tool_calls": made})
        for id, _, arguments in calls.values():
            result = await add(**json.loads(arguments))
            messages.append({"role": "tool", "tool_call_id": id, "content": str(result)})


async def anthropic(http: Httpx | Aiohttp) -> str:
    """Have a conversation in Anthropic's protocol; return the answer."""
    tool = {"name": "add", "description": "Add two integers.", "input_schema": SCHEMA}
    messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "go"}]}]
    payload = {
        "model": "m",
        "max_tokens": 1000,
        "stream": True,
        "messages": messages,
        "tools": [tool],
    }
    while True:
        blocks: list[dict[str, Any]] = []
        pieces: list[list[str]] = []
        async for event in http.events(payload):
            match event["type"]:
                case "content_block_start":
                    blocks.append(event["content_block"])
                    pieces.append([])
                case "content_block_delta":
                    delta = event["delta"]
                    pieces[-1].append(delta.get("text") or delta["partial_json"])
                case _:
                    pass
        results: list[Any] = []
        for block, parts in zip(blocks, pieces, strict=True):
            if block["type"] == "text":
                block["text"] = "".join(parts)
                continue
            block["input"] = json.loads("".join(parts))
            content = str(await add(**block["input"]))
            results.append({"type": "tool_result", "tool_use_id": block["id"], "content": content})
        if not results:
            return blocks[0]["text"]
        messages += [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]


async def gemini(http: Httpx | Aiohttp) -> str:
    """Have a conversation in Gemini's protocol; return the answer."""
    tool = {"name": "add", "description": "Add two integers.", "parametersJsonSchema": SCHEMA}
    contents: list[Any] = [{"role": "user", "parts": [{"text": "go"}]}]
    payload = {"contents": contents, "tools": [{"functionDeclarations": [tool]}]}
    while True:
        parts: list[Any] = []
        async for event in http.events(payload):
            parts += event["candidates"][0]["content"]["parts"]
        results: list[Any] = []
        for part in parts:
            if call := part.get("functionCall"):
                response = {"result": str(await add(**call["args"]))}
                results.append({"functionResponse": {"name": "add", "response": response}})
        if not results:
            return "".join(part["text"] for part in parts)
        contents += [{"role": "model", "parts": parts}, {"role": "user", "parts": results}]


def journal(path: Path, texts: Sequence[str], synchronous: str) -> None:
    """Write each text and the end of its step, in two commits."""
    with closing(sqlite3.connect(path, isolation_level=None)) as rows:
        rows.execute("PRAGMA journal_mode = WAL")
        rows.execute(f"PRAGMA synchronous = {synchronous}")
        rows.execute("CREATE TABLE IF NOT EXISTS journal (seq INTEGER PRIMARY KEY, body TEXT)")
        for text in texts:
            for body in (text, "done"):
                rows.execute("INSERT INTO journal (body) VALUES (?)", (body,))


def read_journal(path: Path) -> int:
    """Read the JSON of each event of a treefold journal; return how many there are."""
    with closing(sqlite3.connect(path)) as rows:
        bodies = [body for (body,) in rows.execute("SELECT body FROM events")]
        return len([[json.loads(line) for line in body.split("\n")] for body in bodies])
