"""What the journeys share: agents that each play a part, and what requests say to a model."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

from treefold import (
    AgentFunction,
    AgentNode,
    Function,
    FunctionArg,
    Node,
    NodeView,
    Runtime,
    TokenUsage,
)
from wire import ModelServer, Reply, Request, Step
from wire.protocols import Protocol

REPORTED = {
    "openai": TokenUsage(input=8, cache_read=3, reasoning=2, output=5),
    "anthropic": TokenUsage(input=11, cache_read=3, cache_write=5, output=7),
    "gemini": TokenUsage(input=8, cache_read=3, reasoning=2, output=7),
}
"""What each server says that a request took."""


def actor(name: str, *uses: Function, **options: Any) -> AgentFunction:
    """Return an agent that can be told from others by its system prompt."""
    return AgentFunction(
        name,
        f"Ask {name}.",
        args=[FunctionArg("task", str, "What to do")],
        system_prompt=f"You are {name}.",
        user_prompt_template="{task}",
        uses=uses,
        **options,
    )


def call(id: str, name: str, **args: Any) -> tuple[str, str, str]:
    """Return a call that a model asks for."""
    return (id, name, json.dumps(args))


@dataclass(frozen=True)
class Result:
    """What a model is told of one of its calls."""

    content: str
    is_error: bool = False


@dataclass(frozen=True)
class Said:
    """What one request says, whatever the protocol."""

    agent: str
    task: str  # the first that the user said
    results: tuple[Result, ...]  # of calls, in the newest message
    texts: tuple[str, ...]  # of the user, in the newest message
    functions: tuple[str, ...]
    may_call: bool


Script = Sequence[Reply] | Callable[[Said], Reply]


def read(protocol: Protocol, request: Request) -> Said:
    """Return what *request* says."""
    body = request.json
    return _READERS[protocol.name](body)


class Play:
    """Answers each agent by its own script, in the order in which it asks."""

    def __init__(self, protocol: Protocol, server: ModelServer, **scripts: Script) -> None:
        self.said: list[Said] = []
        self._protocol = protocol
        self._scripts = {
            name: script if callable(script) else list(script) for name, script in scripts.items()
        }
        server.on_request = self._reply

    def told(self, agent: str) -> list[Said]:
        """Return what the model of *agent* was told, request by request."""
        return [said for said in self.said if said.agent == agent]

    def _reply(self, request: Request) -> Reply | None:
        said = read(self._protocol, request)
        self.said.append(said)
        script = self._scripts.get(said.agent)
        if callable(script):
            return script(said)
        return script.pop(0) if script else None


@asynccontextmanager
async def playing(
    protocol: Protocol, **scripts: Script
) -> AsyncGenerator[tuple[ModelServer, Play], None]:
    """Open a server on which each agent has a script."""
    async with asyncio.timeout(60), protocol.server() as server:
        yield server, Play(protocol, server, **scripts)


@asynccontextmanager
async def background(runtime: Runtime) -> AsyncGenerator[Runtime, None]:
    """Let *runtime* live on a loop of its own, and close it without holding up this one."""
    try:
        yield runtime
    finally:
        await asyncio.to_thread(runtime.close)


def with_steps(reply: Reply, *steps: Step) -> Reply:
    """Return *reply* with *steps* in its middle, after the first words."""
    middle = len(reply.steps) // 2
    return replace(reply, steps=(*reply.steps[:middle], *steps, *reply.steps[middle:]))


def children(node: Node) -> list[Node]:
    """Return the calls that *node* made, one after the other."""
    found: list[Node] = []
    for child in node.get_children():
        found += child if isinstance(child, list) else [child]
    return found


def everyone(node: Node) -> list[Node]:
    """Return *node* and all below it."""
    return [node, *(below for child in children(node) for below in everyone(child))]


def all_views(view: NodeView) -> list[NodeView]:
    """Return *view* and all below it."""
    return [view, *(below for child in view.children for below in all_views(child))]


def assert_same(view: NodeView, node: Node) -> None:
    """Compare a view, which comes from events alone, with the node itself, and all below."""
    for name in ("id", "path", "inputs", "outputs", "state", "sequence", "tool_use_id"):
        assert getattr(view, name) == getattr(node, name), name
    for name in ("started_at", "ended_at", "usage", "total_usage", "total_cost"):
        assert getattr(view, name) == getattr(node, name), name
    assert view.fn == node.function.name
    told = None if view.exception is None else view.exception.type
    assert told == (None if node.exception is None else type(node.exception).__name__)
    if isinstance(node, AgentNode):
        assert (view.model, view.cost) == (node.model, node.cost)
        assert list(view.transcript) == node.get_transcript()
    below = children(node)
    assert len(view.children) == len(below)
    for one, other in zip(view.children, below, strict=True):
        assert_same(one, other)


def _openai(body: dict[str, Any]) -> Said:
    system, *messages = body["messages"]
    last = len(messages)
    while messages[last - 1]["role"] != "assistant" and last > 0:
        last -= 1
    results = [m["content"] for m in messages[last:] if m["role"] == "tool"]
    return Said(
        agent=_name(system["content"]),
        task=messages[0]["content"],
        results=tuple(map(_openai_result, results)),
        texts=tuple(m["content"] for m in messages[last:] if m["role"] == "user"),
        functions=tuple(tool["function"]["name"] for tool in body.get("tools", ())),
        may_call=body.get("tool_choice") != "none",
    )


def _openai_result(content: str) -> Result:
    """Read a result; there is no flag in this protocol, so a failure says so itself."""
    try:
        value = json.loads(content)
    except ValueError:
        return Result(content)
    failed = isinstance(value, dict) and list(cast("dict[str, Any]", value)) == ["tool_error"]
    return Result(value["tool_error"], is_error=True) if failed else Result(content)


def _anthropic(body: dict[str, Any]) -> Said:
    newest = body["messages"][-1]["content"]
    return Said(
        agent=_name(body["system"]),
        task=body["messages"][0]["content"][0]["text"],
        results=tuple(
            Result(block["content"], is_error=block.get("is_error", False))
            for block in newest
            if block["type"] == "tool_result"
        ),
        texts=tuple(block["text"] for block in newest if block["type"] == "text"),
        functions=tuple(tool["name"] for tool in body.get("tools", ())),
        may_call=body.get("tool_choice") != {"type": "none"},
    )


def _gemini(body: dict[str, Any]) -> Said:
    newest = body["contents"][-1]["parts"]
    answers = [p["functionResponse"]["response"] for p in newest if "functionResponse" in p]
    declared = [one for tool in body.get("tools", ()) for one in tool["functionDeclarations"]]
    mode = body.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode")
    return Said(
        agent=_name(body["systemInstruction"]["parts"][0]["text"]),
        task=body["contents"][0]["parts"][0]["text"],
        results=tuple(
            Result(a["error"], is_error=True) if "error" in a else Result(a["result"])
            for a in answers
        ),
        texts=tuple(part["text"] for part in newest if "text" in part),
        functions=tuple(one["name"] for one in declared),
        may_call=mode != "NONE",
    )


def _name(system: str) -> str:
    return system.partition("\n")[0].removeprefix("You are ").removesuffix(".")


_READERS: dict[str, Callable[[dict[str, Any]], Said]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "gemini": _gemini,
}
