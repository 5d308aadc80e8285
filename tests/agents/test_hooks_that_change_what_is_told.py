"""Decision hooks that replace results, and those that do not let an agent end."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import children_of, worker
from treefold import (
    HOOK_POST_TOOL_USE,
    HOOK_PRE_TOOL_USE,
    HOOK_STOP,
    HOOK_SUBAGENT_STOP,
    AgentFunction,
    Edit,
    HookDecision,
    MemoryStore,
    PostToolUseEvent,
    PreToolUseEvent,
    Runtime,
    StopEvent,
    ToolResult,
    ToolUse,
    UserText,
    registries,
    tool,
)
from treefold.core.decisions import Hooks, RuleChain, Rules
from treefold.errors import InvalidValueError
from treefold.testing import ScriptedModel, replay
from treefold.toolbox import human_in_loop

with registries():

    @tool(repeatable=True)
    async def read(name: str) -> str:
        """Read a file."""
        if name == "none":
            raise FileNotFoundError(name)
        return f"the secret of {name}"


def reading(*names: str) -> list[ToolUse]:
    return [ToolUse(f"c{n}", "read", {"name": name}) for n, name in enumerate(names)]


def told(model: ScriptedModel, at: int) -> list[Any]:
    """Return what was said to the model last in the request with this number."""
    said = list(model.requests[at].transcript)
    last = max(n for n, part in enumerate(said) if not isinstance(part, ToolResult | UserText))
    return said[last + 1 :]


# The names of hooks


@pytest.mark.parametrize(
    "name", ["PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "SubagentStop"]
)
async def test_hooks_may_have_the_names_of_claude_agent_sdk(name: str):
    seen: list[str] = []

    async def note(event: object) -> None:
        seen.append(type(event).__name__)

    sub = worker("sub")
    boss = worker("boss", sub)
    model = ScriptedModel(ToolUse("1", "sub"), "sub is done", "done")
    async with Runtime([boss], models=model, hooks={name: [note]}) as runtime:
        assert await runtime.invoke(boss) == "done"
    kinds = {"Stop": "StopEvent", "SubagentStop": "StopEvent"}
    times = 2 if name == "UserPromptSubmit" else 1
    assert seen == [kinds.get(name, f"{name}Event")] * times


@pytest.mark.parametrize(
    ("hooks", "fault"),
    [
        ({"PreTolUse": []}, "no decision hook is called 'PreTolUse'; did you mean 'PreToolUse'"),
        ({"Stop": [], "stop": []}, "hooks has both 'stop' and 'Stop': give one list"),
        ({"Stop": print}, "each hook name has a list of functions"),
    ],
)
def test_wrong_hooks_are_refused(hooks: Any, fault: str):
    with pytest.raises(InvalidValueError, match=fault):
        Runtime(hooks=hooks)


# Results


async def hide(event: PostToolUseEvent) -> HookDecision | None:
    if event.is_error:
        return HookDecision(modified_result="nothing is there")
    if event.tool_input["name"] == "plain":
        return HookDecision(continue_=False, reason="it has been made, and this changes nothing")
    return HookDecision(modified_result={"hidden": event.tool_input["name"]})


@pytest.mark.parametrize("parallel", [False, True])
async def test_a_hook_replaces_the_result_that_the_model_sees(*, parallel: bool):
    agent = worker("agent", read, parallel_tools=parallel)
    model = ScriptedModel(reading("a", "plain", "none"), "done")
    async with Runtime([agent], models=model, hooks={HOOK_POST_TOOL_USE: [hide]}) as runtime:
        node = runtime.invoke(agent)
        assert await node == "done"
    assert told(model, 1) == [
        ToolResult("c0", '{"hidden": "a"}'),
        ToolResult("c1", "the secret of plain"),
        ToolResult("c2", "nothing is there", is_error=True),
    ]
    assert children_of(node)[0].outputs == "the secret of a"


async def test_a_later_level_of_rules_sees_the_result_that_an_earlier_one_replaced():
    async def shout(event: PostToolUseEvent) -> HookDecision:
        return HookDecision(modified_result=f"{event.tool_result}!")

    level = Rules.of(None, (), {"PostToolUse": [shout]})
    event = PostToolUseEvent("read", {}, "hm", "c")
    decision = await RuleChain([level, level]).decide(HOOK_POST_TOOL_USE, event)
    assert decision.modified_result == "hm!!"


# The end


def insisting(*prompts: str) -> tuple[list[StopEvent], Any]:
    """Return a hook that tells an agent each of *prompts* before it may end, and what it saw."""
    seen: list[StopEvent] = []

    async def insist(event: StopEvent) -> HookDecision | None:
        seen.append(event)
        if event.continuations < len(prompts):
            return HookDecision(modified_prompt=prompts[event.continuations])
        return None

    return seen, insist


async def test_a_stop_hook_lets_an_agent_continue():
    agent = worker("agent")
    model = ScriptedModel("half", "all", "all of it")
    seen, insist = insisting("Go on.", "Finish.")
    async with Runtime([agent], models=model, hooks={HOOK_STOP: [insist]}) as runtime:
        assert await runtime.invoke(agent) == "all of it"
    assert [(event.agent, event.result, event.continuations) for event in seen] == [
        ("agent", "half", 0),
        ("agent", "all", 1),
        ("agent", "all of it", 2),
    ]
    assert [message["content"] for message in seen[1].history][-2:] == ["Go on.", "all"]
    assert told(model, 2) == [UserText("Finish.")]


async def test_a_result_of_a_type_may_be_sent_back():
    agent = worker("agent", returns=int)
    model = ScriptedModel(
        ToolUse("1", "return_result", {"result": 1}), ToolUse("2", "return_result", {"result": 2})
    )
    seen, insist = insisting("Count again.")
    async with Runtime([agent], models=model, hooks={HOOK_STOP: [insist]}) as runtime:
        assert await runtime.invoke(agent) == 2
    assert [event.result for event in seen] == [1, 2]
    assert told(model, 1) == [ToolResult("1", "1"), UserText("Count again.")]


async def test_hooks_of_agents_below_agents_are_others():
    sub = worker("sub")
    boss = worker("boss", sub)
    model = ScriptedModel(ToolUse("1", "sub"), "hm", "thorough", "done")
    seen, insist = insisting("Be thorough.")
    noted, note = insisting()
    hooks: Hooks = {HOOK_SUBAGENT_STOP: [insist], HOOK_STOP: [note]}
    async with Runtime([boss], models=model, hooks=hooks) as runtime:
        assert await runtime.invoke(boss) == "done"
    assert [(event.agent, event.result) for event in seen] == [("sub", "hm"), ("sub", "thorough")]
    assert [(event.agent, event.result) for event in noted] == [("boss", "done")]


async def test_it_ends_after_ten_continuations_and_when_there_are_no_more_steps():
    seen, insist = insisting(*["Again."] * 99)
    agent, brief = worker("agent"), worker("brief", max_steps=3)
    model = ScriptedModel(lambda request: f"answer {len(request.transcript)}")
    async with Runtime([agent, brief], models=model, hooks={HOOK_STOP: [insist]}) as runtime:
        assert await runtime.invoke(agent) == "answer 21"
        assert (len(seen), len(model.requests)) == (10, 11)
        assert await runtime.invoke(brief) == "answer 5"
    assert len(seen) == 12


async def test_a_stop_hook_that_denies_is_told_how_to_continue():
    async def deny(event: StopEvent) -> HookDecision:
        return HookDecision(continue_=False, reason="Run the tests.")

    agent = worker("agent")
    async with Runtime([agent], models=ScriptedModel("x"), hooks={"Stop": [deny]}) as runtime:
        with pytest.raises(InvalidValueError, match="to let an agent continue, or None"):
            await runtime.invoke(agent)


# Journals


async def until_asked(runtime: Runtime, agent: AgentFunction) -> None:
    node = runtime.invoke(agent, key="it")
    async with asyncio.timeout(60):
        async for _ in runtime.watch(node):
            if runtime.questions():
                return


async def test_what_hooks_decided_is_not_asked_again_after_a_crash_and_in_a_replay(tmp_path: Path):
    asked: list[str] = []

    async def before(event: PreToolUseEvent) -> HookDecision:
        asked.append(f"before {event.tool_name}")
        if event.tool_name == "read":
            return HookDecision(modified_input={"name": "b"})
        return HookDecision()

    async def after(event: PostToolUseEvent) -> HookDecision:
        asked.append(f"after {event.tool_name}")
        return HookDecision(modified_result=f"{event.tool_name} number {len(asked)}")

    seen, insist = insisting("Ask.")
    hooks: Hooks = {HOOK_PRE_TOOL_USE: [before], "PostToolUse": [after], "Stop": [insist]}
    ask = ToolUse("q", "human_in_loop", {"question": "Go?"})
    agent, store = worker("agent", read, human_in_loop), tmp_path / "run.db"
    first = ScriptedModel("soon", [*reading("a"), ask])
    async with Runtime([agent], models=first, store=store, hooks=hooks) as runtime:
        await until_asked(runtime, agent)
    assert asked == ["before read", "after read", "before human_in_loop"]
    second = ScriptedModel("done")
    async with Runtime([agent], models=second, store=store, hooks=hooks) as runtime:
        node = runtime.invoke(agent, key="it")
        runtime.answer(runtime.questions()[0].id, "yes")
        async with asyncio.timeout(60):
            assert await node == "done"
    assert asked[3:] == ["after human_in_loop"]
    assert [event.continuations for event in seen] == [0, 1]
    assert told(second, 0) == [
        ToolResult("c0", "read number 2"),
        ToolResult("q", "human_in_loop number 4"),
    ]
    assert children_of(node)[0].inputs == {"name": "b"}
    assert replay([agent], store).divergence is None


async def test_a_fork_asks_the_hook_about_the_edited_result():
    async def after(event: PostToolUseEvent) -> HookDecision:
        return HookDecision(modified_result=f"{event.tool_result}, seen")

    agent = worker("agent", read)
    model = ScriptedModel(reading("a", "b"), "done", "done again")
    hooks: Hooks = {HOOK_POST_TOOL_USE: [after]}
    async with Runtime([agent], models=model, hooks=hooks, store=MemoryStore()) as runtime:
        node = runtime.invoke(agent)
        assert await node == "done"
        fork = runtime.fork(children_of(node)[1], edit=Edit(result="other"))
        assert await fork == "done again"
    assert told(model, 2) == [
        ToolResult("c0", "the secret of a, seen"),
        ToolResult("c1", "other, seen"),
    ]
