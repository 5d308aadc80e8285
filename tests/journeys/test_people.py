"""People who are asked, and who allow things, deep in a tree, from another thread."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_scripts import question_of, until
from journeys.roles import (
    Result,
    actor,
    all_views,
    assert_same,
    background,
    call,
    children,
    playing,
)
from treefold import (
    HOOK_PRE_TOOL_USE,
    AgentFunction,
    DeniedError,
    HookDecision,
    Limits,
    NodeState,
    NodeView,
    PreToolUseEvent,
    Question,
    QuestionKind,
    Runtime,
    registries,
    tool,
)
from treefold.models import Model
from treefold.toolbox import human_in_loop
from wire.protocols import Protocol

done: list[str] = []

with registries():

    @tool
    async def remove(path: str) -> str:
        """Remove a file."""
        done.append(path)
        return f"{path} is gone"


@pytest.fixture(autouse=True)
def nothing_removed() -> None:
    done.clear()


@pytest.fixture(params=["here", "in the background"])
def living(request: pytest.FixtureRequest) -> str:
    return request.param


@asynccontextmanager
async def running(
    living: str, lead: AgentFunction, model: Model, **options: Any
) -> AsyncGenerator[Runtime, None]:
    if living == "here":
        async with Runtime([lead], models=model, **options) as runtime:
            yield runtime
    else:
        async with background(Runtime([lead], models=model, **options)) as runtime:
            yield runtime


def states(view: NodeView) -> dict[str, NodeState]:
    return {one.fn: one.state for one in all_views(view)}


def three(*uses: Any) -> AgentFunction:
    """Return an agent that has an agent that has an agent."""
    return actor("lead", actor("scout", actor("clerk", *uses)))


def passing_on(protocol: Protocol) -> dict[str, Any]:
    return {
        "lead": [
            protocol.calls(call("s", "scout", task="Scout.")),
            protocol.text("Led."),
        ],
        "scout": [
            protocol.calls(call("c", "clerk", task="Write.")),
            protocol.text("Scouted."),
        ],
    }


async def test_a_question_three_levels_down_is_answered_from_another_thread(
    protocol: Protocol, living: str
):
    lead = three(human_in_loop)
    asking = call("h", "human_in_loop", question="Which city?", choices=["Ulm", "Jena"])
    clerk = [protocol.calls(asking), protocol.text("Noted.")]
    async with (
        playing(protocol, clerk=clerk, **passing_on(protocol)) as (server, play),
        running(living, lead, protocol.model(server)) as runtime,
    ):
        node = runtime.invoke(lead, {"task": "Lead."})
        question = await question_of(runtime)
        assert (question.kind, question.text) == (QuestionKind.Human, "Which city?")
        assert question.choices == ("Ulm", "Jena")
        view = runtime.get_view(node.id)
        assert states(view) == {
            "lead": NodeState.Running,
            "scout": NodeState.Running,
            "clerk": NodeState.Running,
            "human_in_loop": NodeState.Paused,
        }
        asked = all_views(view)[-1]
        assert (asked.id, asked.questions, asked.status) == (
            question.node_id,
            (question,),
            "Which city?",
        )
        assert [frame.function for frame in runtime.stack(node.id)] == list(states(view))
        with pytest.raises(ValueError, match="'Ulm', 'Jena'"):
            await asyncio.to_thread(runtime.answer, question.id, "Rome")
        await asyncio.to_thread(runtime.answer, question.id, "Jena")
        assert await node == "Led."
        assert runtime.questions() == []
        assert_same(runtime.get_view(node.id), node)
    assert play.told("clerk")[1].results == (Result("Jena"),)
    assert len(server.requests) == 6


async def test_a_question_that_is_open_holds_up_nobody_else(protocol: Protocol, living: str):
    lead = three(human_in_loop)
    clerk = [protocol.calls(call("h", "human_in_loop", question="Why?")), protocol.text("Noted.")]
    other = actor("other")
    async with (
        playing(
            protocol, clerk=clerk, other=[protocol.text("Done.")] * 3, **passing_on(protocol)
        ) as (server, _),
        running(living, lead, protocol.model(server), limits=Limits(1)) as runtime,
    ):
        node = runtime.invoke(lead, {"task": "Lead."})
        question = await question_of(runtime)
        others = [runtime.invoke(other, {"task": f"Do {n}."}) for n in range(3)]
        assert [await one for one in others] == ["Done."] * 3
        assert not node.state.final
        await asyncio.to_thread(runtime.answer, question.id, "Because.")
        assert await node == "Led."


Answering = Callable[[Runtime, Question], Awaitable[None]]


async def allow(runtime: Runtime, question: Question) -> None:
    await asyncio.to_thread(runtime.answer, question.id, "allow")


async def deny(runtime: Runtime, question: Question) -> None:
    await asyncio.to_thread(runtime.answer, question.id, "deny: not on a Sunday")


async def edit(runtime: Runtime, question: Question) -> None:
    await asyncio.to_thread(lambda: runtime.answer(question.id, args={"path": "b.txt"}))


@pytest.mark.parametrize(
    ("answer", "removed", "told"),
    [
        (allow, ["a.txt"], Result("a.txt is gone")),
        (
            deny,
            [],
            Result("DeniedError: remove was not allowed: not on a Sunday", is_error=True),
        ),
        (edit, ["b.txt"], Result("b.txt is gone")),
    ],
    ids=["allow", "deny", "edit"],
)
async def test_a_person_allows_denies_or_edits_a_call_three_levels_down(
    protocol: Protocol, living: str, answer: Answering, removed: list[str], told: Result
):
    events: list[PreToolUseEvent] = []

    async def guard(event: PreToolUseEvent) -> HookDecision | None:
        events.append(event)
        return HookDecision(ask="Remove it?") if event.tool_name == "remove" else None

    lead = three(remove)
    clerk = [protocol.calls(call("r", "remove", path="a.txt")), protocol.text("Written.")]
    async with (
        playing(protocol, clerk=clerk, **passing_on(protocol)) as (server, play),
        running(
            living, lead, protocol.model(server), hooks={HOOK_PRE_TOOL_USE: [guard]}
        ) as runtime,
    ):
        node = runtime.invoke(lead, {"task": "Lead."})
        question = await question_of(runtime)
        assert (question.kind, question.text) == (QuestionKind.Approval, "Remove it?")
        assert states(runtime.get_view(node.id))["remove"] is NodeState.Paused
        assert done == []
        await answer(runtime, question)
        assert await node == "Led."
        assert_same(runtime.get_view(node.id), node)
    assert [event.tool_name for event in events] == ["scout", "clerk", "remove"]
    assert (events[-1].tool_input, events[-1].tool_use_id) == ({"path": "a.txt"}, "r")
    assert events[-1].history[0] == {"role": "user", "content": "Write."}
    assert done == removed
    assert play.told("clerk")[1].results == (told,)
    [scout] = children(node)
    [clerk_node] = children(scout)
    [made] = children(clerk_node)
    assert isinstance(made.exception, DeniedError) == told.is_error
    assert made.inputs == {"path": removed[0] if removed else "a.txt"}


@pytest.mark.parametrize(
    ("decision", "removed", "told"),
    [
        (HookDecision(), ["a.txt"], Result("a.txt is gone")),
        (
            HookDecision(continue_=False, reason="never"),
            [],
            Result("DeniedError: remove was not allowed: never", is_error=True),
        ),
        (
            HookDecision(modified_input={"path": "c.txt"}),
            ["c.txt"],
            Result("c.txt is gone"),
        ),
    ],
    ids=["allow", "deny", "edit"],
)
async def test_a_hook_decides_by_itself_three_levels_down(
    protocol: Protocol, decision: HookDecision, removed: list[str], told: Result
):
    async def guard(event: PreToolUseEvent) -> HookDecision | None:
        return decision if event.tool_name == "remove" else None

    lead = three(remove)
    clerk = [protocol.calls(call("r", "remove", path="a.txt")), protocol.text("Written.")]
    async with (
        playing(protocol, clerk=clerk, **passing_on(protocol)) as (server, play),
        running(
            "here", lead, protocol.model(server), hooks={HOOK_PRE_TOOL_USE: [guard]}
        ) as runtime,
    ):
        node = runtime.invoke(lead, {"task": "Lead."})
        assert await node == "Led."
        assert_same(runtime.get_view(node.id), node)
    assert done == removed
    assert play.told("clerk")[1].results == (told,)


async def test_a_question_in_a_tree_that_is_cancelled_is_withdrawn(protocol: Protocol, living: str):
    lead = three(human_in_loop)
    clerk = [protocol.calls(call("h", "human_in_loop", question="Why?"))]
    async with (
        playing(protocol, clerk=clerk, **passing_on(protocol)) as (server, _),
        running(living, lead, protocol.model(server)) as runtime,
    ):
        node = runtime.invoke(lead, {"task": "Lead."})
        question = await question_of(runtime)
        node.cancel("enough")
        await until(lambda: node.state.final)
        view = runtime.get_view(node.id)
        assert set(states(view).values()) == {NodeState.Canceled}
        assert runtime.questions() == []
        assert all(not one.questions for one in all_views(view))
        with pytest.raises(KeyError, match="no question"):
            await asyncio.to_thread(runtime.answer, question.id, "Because.")
