"""A tree that stands still because somebody said so, and goes on."""

import asyncio

from agent_scripts import until
from journeys.roles import (
    Result,
    actor,
    all_views,
    assert_same,
    background,
    call,
    playing,
    with_steps,
)
from support import look
from treefold import NodeState, QuestionKind, Runtime
from wire import Wait
from wire.protocols import Protocol


async def test_what_is_under_way_ends_and_nothing_begins_until_it_is_resumed(protocol: Protocol):
    rest = asyncio.Event()
    lead = actor("lead", actor("scout", look))
    first = protocol.calls(call("l", "look", at="Ulm"))
    scouting = [with_steps(first, Wait(rest)), protocol.text("It is fine.")]
    asks = [protocol.calls(call("s", "scout", task="Scout.")), protocol.text("Led.")]
    other = actor("other")
    async with (
        playing(protocol, lead=asks, scout=scouting, other=[protocol.text("Yes.")]) as (
            server,
            play,
        ),
        background(Runtime([lead, other], models=protocol.model(server))) as runtime,
    ):
        node = runtime.invoke(lead, {"task": "Lead."})
        await until(lambda: len(server.requests) == 2)
        await asyncio.to_thread(runtime.pause, node.id, "let me see")
        rest.set()  # the response that is under way comes to its end
        stopped = await until(
            lambda: [
                view
                for view in all_views(runtime.get_view(node.id))
                if view.state is NodeState.Paused
            ]
        )
        assert [view.fn for view in stopped] == ["scout"]
        assert "let me see" in stopped[0].status
        [question] = runtime.questions()
        assert (question.kind, question.node_id) == (QuestionKind.Paused, node.id)
        assert await runtime.invoke(other, {"task": "Ready?"}) == "Yes."  # others go on
        assert len(server.requests) == 3
        assert all_views(runtime.get_view(node.id))[-1].state is NodeState.Waiting
        await asyncio.to_thread(runtime.resume, node.id)
        assert await node == "Led."
        assert_same(runtime.get_view(node.id), node)
    assert play.told("scout")[1].results == (Result("Ulm is fine"),)
    assert len(server.requests) == 5
