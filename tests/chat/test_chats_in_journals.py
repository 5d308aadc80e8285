"""Chats inside code that is run again: what was said is not asked for twice, and not forgotten."""

import asyncio
from typing import Any

import pytest

from chat_helpers import OPENAI, add, adding, options, serving
from support import wait
from treefold import (
    AgentOptions,
    Client,
    MemoryStore,
    ModelText,
    RunContext,
    Runtime,
    TextBlock,
    ToolUse,
    ToolUseBlock,
    UserText,
    tool,
)
from treefold.testing import HANGS, ScriptedModel, ScriptedRequest, replay


class Model:
    """Answers by what it is shown, and remembers what that was."""

    def __init__(self) -> None:
        self.told: list[list[str]] = []

    def options(self, **more: Any) -> AgentOptions:
        return AgentOptions("You chat.", ScriptedModel(self._reply), **more)

    def _reply(self, request: ScriptedRequest) -> Any:
        texts = [part.text for part in request.transcript if isinstance(part, UserText)]
        self.told.append(texts)
        if texts[-1] == "How many?" and len(request.transcript) == 1:
            return ToolUse("1", "count", {})
        return f"answer {len(self.told)}"


async def said(client: Client, prompt: str) -> str:
    await client.query(prompt)
    blocks = [block async for block in client.receive_messages()]
    return "".join(block.text for block in blocks if isinstance(block, TextBlock))


def interrupted(function: Any) -> list[Any]:
    """Run it to its question in one runtime and from there in another; return what it gave."""
    store = MemoryStore()
    with Runtime([function], store=store) as runtime:
        runtime.invoke(function)
    with Runtime([function], store=store) as runtime:
        [node] = runtime.recover()
        [question] = runtime.questions()
        runtime.answer(question.id, "go on")
        return node.result(60)


def test_what_a_model_has_said_is_said_again_and_the_conversation_goes_on():
    model = Model()

    @tool(repeatable=True)
    async def talk(ctx: RunContext) -> list[Any]:
        async with Client(model.options()) as client:
            first = await said(client, "I am Ada")
            await ctx.ask("Go on?")
            return [first, await said(client, "Who am I?"), len(client.history)]

    assert interrupted(talk) == ["answer 1", "answer 2", 4]
    assert model.told == [["I am Ada"], ["I am Ada", "Who am I?"]]


def test_calls_that_were_handed_out_are_handed_out_again():
    model = Model()

    @tool("count", "Count.", {})
    def count(args: Any) -> int:
        return 3

    @tool(repeatable=True)
    async def talk(ctx: RunContext) -> list[Any]:
        async with Client(model.options(tools=[count])) as client:
            await client.query("How many?")
            [call] = [block async for block in client.receive_messages()]
            assert isinstance(call, ToolUseBlock)
            await client.add_tool_result(call.id, 3)
            await ctx.ask("Go on?")
            return [call.name, call.input, await said(client, "")]

    assert interrupted(talk) == ["count", {}, "answer 2"]
    assert model.told == [["How many?"], ["How many?"]]


def pays(id: str, amount: int) -> ToolUse:
    return ToolUse(id, "pay", {"amount": amount})


@pytest.mark.parametrize(
    "script",
    [
        [HANGS, [ModelText("Hm."), pays("1", 1)], [pays("2", 2), pays("3", 3)], "Paid.", "Bye."],
        [[ModelText("Hm."), pays("1", 1)], HANGS, [pays("2", 2), pays("3", 3)], "Paid.", "Bye."],
        [[ModelText("Hm."), pays("1", 1)], [pays("2", 2), pays("3", 3)], HANGS, "Paid.", "Bye."],
        [[ModelText("Hm."), pays("1", 1)], [pays("2", 2), pays("3", 3)], "Paid.", HANGS, "Bye."],
        [[ModelText("Hm."), pays("1", 1)], [pays("2", 2), pays("3", 9)], "Paid.", "Bye."],
    ],
    ids=["first request", "second request", "third request", "next turn", "in a call"],
)
def test_a_turn_that_was_cut_off_goes_on_after_the_last_response(script: list[Any]):
    model, store, paid = ScriptedModel(*script), MemoryStore(), list[int]()

    @tool
    async def pay(amount: int) -> int:
        paid.append(amount)
        if amount == 9:
            await asyncio.Event().wait()
        return amount

    options = AgentOptions("You chat.", model, tools=[pay], auto_execute_tools=True)

    @tool(uses=[pay])
    async def talk(ctx: RunContext) -> tuple[list[str], list[str]]:
        blocks = list[Any]()
        async with Client(options) as client:
            for prompt in ("Pay!", "Thanks."):
                await client.query(prompt)
                blocks += [block async for block in client.receive_messages()]
            texts = [getattr(block, "text", None) or str(block.input) for block in blocks]
            return texts, [message["role"] for message in client.history]

    runtime = Runtime([talk], store=store)
    runtime.invoke(talk)
    cut_at = script.index(HANGS) + 1 if HANGS in script else 2
    wait(lambda: len(model.requests) == cut_at and (HANGS in script or 9 in paid))
    runtime.close()
    last = 3 if HANGS in script else 9
    with Runtime([talk], store=store) as runtime:
        [node] = runtime.recover()
        if last == 9:
            runtime.answer(wait(runtime.questions)[0].id, "use: 9")
        blocks, roles = node.result(60)
    calls = [str({"amount": amount}) for amount in (1, 2, last)]
    assert blocks == ["Hm.", *calls, "Paid.", "Bye."]
    assert " ".join(roles) == "user assistant tool assistant tool tool assistant user assistant"
    assert paid == [1, 2, last]
    replay([talk], store).check()
    assert len(model.requests) == len(script)


async def test_a_chat_is_replayed_without_asking_the_server_again():
    texts = [OPENAI.text("It is 42."), OPENAI.text("You are welcome.")]
    script = [OPENAI.calls(adding("a")), *texts]
    store = MemoryStore()

    async with serving(*script) as server:

        @tool(uses=[add])
        async def talk(ctx: RunContext) -> list[str]:
            async with Client(options(server, tools=[add])) as client:
                await client.query("25 + 17?")
                [call] = [block async for block in client.receive_messages()]
                assert isinstance(call, ToolUseBlock)
                await client.add_tool_result(call.id, 42)
                return [await said(client, ""), await said(client, "Thanks.")]

        async with Runtime([talk], store=store) as runtime:
            answers = await runtime.invoke(talk)
        again = await asyncio.to_thread(replay, [talk], store)
    assert answers == ["It is 42.", "You are welcome."]
    assert (again.divergence, again.output) == (None, answers)
