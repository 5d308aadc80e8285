"""What a node of an agent says of itself, and that its view says the same."""

from decimal import Decimal

from agent_scripts import ended, run_agent, until
from treefold import (
    AgentFunction,
    AgentNode,
    Budget,
    CodeFunction,
    ModelText,
    NodeView,
    RunContext,
    Runtime,
    ToolResult,
    ToolUse,
    UserText,
)
from treefold.runtime.calls.node import CallNode
from treefold.testing import ScriptedFailure, ScriptedModel

look = CodeFunction(name="look", callable=lambda ctx: "nothing")
find = AgentFunction("find", "Find it.", user_prompt_template="Find it.", uses=[look])


async def test_code_costs_nothing_of_its_own():
    async with Runtime() as runtime:
        node = await ended(runtime.invoke(look))
        assert node.cost == runtime.get_view(node.id).cost == Decimal(0)


async def test_what_was_never_sent_is_in_no_transcript():
    async with Runtime([find], models=ScriptedModel("Here."), budget=Budget(calls=0)) as runtime:
        node = await ended(runtime.invoke(find))
        assert isinstance(node, AgentNode)
        assert tuple(node.get_transcript()) == runtime.get_view(node.id).transcript == ()


async def test_a_request_that_failed_and_took_nothing_costs_nothing_whatever_the_price():
    node = await run_agent(find, models=ScriptedModel(ScriptedFailure(400)))
    assert node.cost == node.total_cost == Decimal(0)


async def test_the_view_of_a_call_that_goes_on_begins_with_what_was_said_before():
    model = ScriptedModel(ToolUse("1", "look"), ScriptedFailure(400), "Nowhere.")
    async with Runtime([find], models=model) as runtime:
        failed = await ended(runtime.invoke(find))
        resumed = await ended(runtime.resume(failed.id))
        assert isinstance(resumed, AgentNode)
        assert resumed.get_transcript() == [
            UserText("Find it."),
            ToolUse("1", "look"),
            ToolResult("1", "nothing"),
            ModelText("Nowhere."),
        ]
        assert runtime.get_view(resumed.id).transcript == tuple(resumed.get_transcript())


async def test_no_view_shows_an_ended_call_that_asks():
    async def idle(ctx: RunContext) -> None:
        await until(lambda: ctx.runtime.questions())

    seen: list[NodeView] = []
    async with Runtime() as runtime:
        node = runtime.invoke(CodeFunction(callable=idle))
        assert isinstance(node, CallNode)
        tree = node.tree

        def see() -> None:
            tree.on_next_event(see)
            seen.append(tree.view(node.id))

        see()
        runtime.pause(node.id)
        await ended(node)
    assert [view.questions for view in seen if view.state.final][:1] == [()]
