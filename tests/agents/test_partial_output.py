"""Typed results while a model writes them."""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from treefold import AgentFunction, Runtime, agent, attach
from treefold.core.arriving import ArrivingResponse, OutputDelta
from treefold.events import CallEnded, ResponseStreamed
from wire import anthropic_wire, openai_wire
from wire.protocols import PROTOCOLS, Protocol
from wire.replies import Reply, Step, Wait

Replying = Callable[[Sequence[str | Step]], Reply]


class Poem(BaseModel):
    title: str
    lines: list[str]


@agent(returns=Poem)
def write() -> str:
    return "Write a poem."


@agent(returns=list[str])
def list_words() -> str:
    return "List some words."


def openai_call(fragments: Sequence[str | Step]) -> Reply:
    deltas: list[Any] = [
        {"tool_calls": [{"index": 0, "function": {"arguments": fragment}}]}
        if isinstance(fragment, str)
        else fragment
        for fragment in fragments
    ]
    opening = {"role": "assistant", "content": None}
    named = next(openai_wire.call_deltas([("call_1", "return_result")]))
    return openai_wire.completion(opening, named, *deltas, finish="tool_calls")


def openai_text(fragments: Sequence[str | Step]) -> Reply:
    return openai_wire.text(*fragments)


def anthropic_call(fragments: Sequence[str | Step]) -> Reply:
    block = anthropic_wire.ToolUse("call_1", "return_result", fragments)
    said = anthropic_wire.Text(["Here it is."])
    return anthropic_wire.message(said, block, stop_reason="tool_use")


BY_NAME = {protocol.name: protocol for protocol in PROTOCOLS}
WAYS = pytest.mark.parametrize(
    ("protocol", "reply"),
    [
        (BY_NAME["openai"], openai_call),
        (BY_NAME["openai"], openai_text),
        (BY_NAME["anthropic"], anthropic_call),
    ],
    ids=["openai", "openai text", "anthropic"],
)


async def followed(
    protocol: Protocol,
    reply: Replying,
    function: AgentFunction,
    fragments: Sequence[str],
    store: Path | None,
) -> tuple[list[Any], list[Any], Any]:
    """Run an agent whose model writes the next fragment when the last one has been seen.

    Return the partial outputs in the events, those in the views, and the result.
    """
    first, *others = fragments
    gates = [asyncio.Event() for _ in others]
    steps: list[str | Step] = [first]
    for fragment, gate in zip(others, gates, strict=True):
        steps += [Wait(gate), fragment]
    seen: list[Any] = []
    viewed: list[Any] = []
    async with protocol.server(reply(steps)) as server, asyncio.timeout(60):
        model = protocol.model(server)
        async with Runtime([function], models=model, store=store) as runtime:
            node = runtime.invoke(function)
            await anext(aiter(runtime.events(node)))  # it has been written
            observer = runtime if store is None else attach(store)
            async for event in observer.events(node.id):
                if isinstance(event, ResponseStreamed) and event.partial_output is not None:
                    seen.append(event.partial_output)
                    viewed.append(observer.get_view(node.id).partial_output)
                    if len(seen) <= len(gates):
                        gates[len(seen) - 1].set()
                if isinstance(event, CallEnded) and event.node == node.id:
                    assert observer.get_view(node.id).partial_output is None
            if store is not None:
                observer.close()
            return seen, viewed, await node


@WAYS
@pytest.mark.parametrize("recorded", [False, True], ids=["in memory", "observed"])
async def test_a_typed_result_is_seen_while_it_is_written(
    protocol: Protocol, reply: Replying, tmp_path: Path, *, recorded: bool
):
    store = tmp_path / "run.db" if recorded else None
    fragments = ['{"title": "Moon', 'light", "lines": ["The p', 'ond", "is still"', "]}"]
    seen, viewed, poem = await followed(protocol, reply, write, fragments, store)
    assert seen[:3] == viewed[:3]
    assert seen[:3] == [
        {"title": "Moon"},
        {"title": "Moonlight", "lines": ["The p"]},
        {"title": "Moonlight", "lines": ["The pond", "is still"]},
    ]
    assert poem == Poem(title="Moonlight", lines=["The pond", "is still"])


async def test_a_result_that_is_no_object_is_seen_without_the_argument_around_it():
    fragments = ['{"result": ["pond', '", "moon"]}']
    protocol, reply = BY_NAME["openai"], openai_call
    seen, _, words = await followed(protocol, reply, list_words, fragments, None)
    assert seen[0] == ["pond"]
    assert words == ["pond", "moon"]


def test_a_long_result_is_not_parsed_at_each_of_its_fragments():
    text = json.dumps({"lines": ["a line of the poem, as long as most"] * 5000})
    response, outputs = ArrivingResponse(), list[Any]()
    for start in range(0, len(text), 4):
        response.add(OutputDelta(text[start : start + 4], is_first=start == 0))
        if not outputs or response.output is not outputs[-1]:
            outputs.append(response.output)
    lengths = [len(output["lines"]) for output in outputs if output and "lines" in output]
    assert lengths == sorted(lengths)
    assert lengths[-1] > 0.9 * 5000
    assert len(outputs) < 300  # of 50,000 fragments
