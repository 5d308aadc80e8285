"""Chats inside code that is run again: what was said is not asked for twice, and not forgotten."""

from typing import Any

from ramify import (
    AgentOptions,
    Client,
    MemoryStore,
    RunContext,
    Runtime,
    TextBlock,
    ToolUse,
    ToolUseBlock,
    UserText,
    tool,
)
from ramify.testing import ScriptedModel, ScriptedRequest


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
        return node.result(10)


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
