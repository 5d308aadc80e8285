"""A runtime: the functions that it finds and refuses, and the trees that it runs and shows."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agent_scripts import StagedModel, agent_node, ended, until
from support import look
from treefold import (
    AgentFunction,
    AgentNode,
    CallGraphError,
    CodeFunction,
    CodeNode,
    Function,
    FunctionArg,
    Node,
    NodeState,
    RunContext,
    Runtime,
    ToolUse,
    TreefoldError,
    tool,
)
from treefold.testing import ScriptedModel


def nothing(ctx: RunContext) -> str:
    return "nothing"


def code(name: str, *uses: Function, **options: Any) -> CodeFunction:
    return CodeFunction(name=name, desc="", callable=nothing, uses=uses, **options)


def worker(name: str, *uses: Function, prompt: str = "Work.", **options: Any) -> AgentFunction:
    return AgentFunction(name, "", user_prompt_template=prompt, uses=uses, **options)


class Knot(CodeFunction):
    """Code whose uses can be tied after it was made."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, desc="", callable=nothing)
        self.tied: list[Function] = []

    @property
    def uses(self) -> Sequence[Function]:
        return self.tied


# --- what it finds


def test_all_functions_that_are_referred_to_are_found_from_a_partial_set():
    leaf = code("leaf")
    middle = worker("middle", leaf, look)
    top = code("top", middle)
    other = worker("other", leaf)
    found = Runtime([top, other]).invocable_functions
    assert dict(found) == {
        "top": top,
        "other": other,
        "middle": middle,
        "leaf": leaf,
        "look": look,
    }


def test_one_function_may_be_reached_in_several_ways():
    leaf = code("leaf")
    left, right = code("left", leaf), worker("right", leaf)
    assert set(Runtime([code("top", left, right), leaf, leaf]).invocable_functions) == {
        "top",
        "left",
        "right",
        "leaf",
    }


async def test_any_function_that_was_found_may_be_a_top_level_task():
    leaf = code("leaf")
    fine = worker("fine", leaf)
    coarse = code("coarse", fine)
    model = ScriptedModel(lambda request: "done")
    async with Runtime([coarse], models=model) as runtime, asyncio.timeout(60):
        for name, expected in [("leaf", "nothing"), ("fine", "done"), ("coarse", "nothing")]:
            assert await runtime.get_ctx().invoke(runtime.invocable_functions[name]) == expected


# --- what it refuses


def faults_of(*specs: Function, **options: Any) -> tuple[str, ...]:
    with pytest.raises(CallGraphError) as caught:
        Runtime(specs, **options)
    faults = caught.value.faults
    assert isinstance(faults, tuple)
    assert all("\n" not in fault for fault in faults)
    assert all(fault in str(caught.value) for fault in faults)
    return faults


def test_names_that_stand_for_different_functions_are_refused():
    [fault] = faults_of(code("top", code("leaf")), code("leaf"))
    assert "leaf" in fault


def test_a_bad_graph_is_a_value_error_of_the_program():
    with pytest.raises(ValueError, match="leaf") as caught:
        Runtime([code("leaf"), code("leaf")])
    assert isinstance(caught.value, TreefoldError)


def test_a_circle_is_refused_with_the_path_of_calls_that_leads_to_it():
    one, two, three = Knot("one"), Knot("two"), Knot("three")
    one.tied, two.tied, three.tied = [two], [three], [one]
    [fault] = faults_of(code("top", one))
    assert "one > two > three > one" in fault


def test_a_circle_through_agents_is_refused():
    back = Knot("back")
    boss = worker("boss", worker("helper", back))
    back.tied = [boss]
    [fault] = faults_of(boss)
    assert "boss > helper > back > boss" in fault


def test_a_function_that_lists_itself_is_refused_unless_it_says_so():
    knot = Knot("knot")
    knot.tied = [knot]
    [fault] = faults_of(knot)
    assert "knot" in fault

    class Recursive(Knot):
        def __init__(self) -> None:
            CodeFunction.__init__(
                self, name="again", desc="", callable=nothing, uses_recursion=True
            )
            self.tied = [self]

    assert set(Runtime([Recursive()]).invocable_functions) == {"again"}


def test_a_graph_without_circles_is_taken_however_deep():
    deepest: Function = code("f0")
    for number in range(1, 2000):
        deepest = code(f"f{number}", deepest)
    assert len(Runtime([deepest]).invocable_functions) == 2000


def misnamed(ctx: RunContext, b: str) -> None: ...


def greedy(ctx: RunContext, a: str, more: str) -> None: ...


def mistyped(ctx: RunContext, a: int) -> None: ...


def lazy(ctx: RunContext) -> None: ...


@pytest.mark.parametrize("callable", [misnamed, greedy, mistyped, lazy])
def test_a_callable_that_does_not_match_its_spec_is_refused(callable: Callable[..., Any]):
    spec = CodeFunction(name="f", desc="", callable=callable, args=[FunctionArg("a", str)])
    faults = faults_of(code("top", spec))
    assert any("top > f" in fault for fault in faults)


def exact(ctx: RunContext, a: str) -> None: ...


def unannotated(ctx, a) -> None: ...


def generous(ctx: RunContext, **kwargs: Any) -> None: ...


def with_default(ctx: RunContext, a: str, more: int = 3) -> None: ...


def wider(ctx: RunContext, a: str | None) -> None: ...


@pytest.mark.parametrize("callable", [exact, unannotated, generous, with_default, wider])
def test_a_callable_that_matches_its_spec_is_taken(callable: Callable[..., Any]):
    spec = CodeFunction(name="f", desc="", callable=callable, args=[FunctionArg("a", str)])
    assert set(Runtime([spec]).invocable_functions) == {"f"}


def without_context(a: str) -> None: ...


def test_a_callable_that_takes_no_run_context_is_refused():
    with pytest.raises((TypeError, CallGraphError), match="RunContext"):
        Runtime([CodeFunction(name="f", desc="", callable=without_context)])


def test_a_function_that_the_provider_of_the_default_model_refuses_is_refused_at_start():
    bad = code("no such name!")
    boss = worker("boss", bad)
    [fault] = faults_of(boss, models=ScriptedModel("x"))
    assert "boss" in fault
    assert "no such name!" in fault


def test_every_fault_is_listed_at_once():
    one, two = Knot("one"), Knot("two")
    one.tied, two.tied = [two], [one]
    spec = CodeFunction(name="f", desc="", callable=misnamed, args=[FunctionArg("a", str)])
    faults = faults_of(one, spec, worker("typo", prompt="Look at {rot}."), code("d"), code("d"))
    for named in ("one", "f", "rot", "d"):
        assert any(named in fault for fault in faults)
    assert len(faults) >= 4


# --- trees


async def test_a_context_outside_any_task_has_a_runtime_and_no_node():
    async with Runtime() as runtime:
        ctx = runtime.get_ctx()
        assert ctx.runtime is runtime
        with pytest.raises(TreefoldError):
            _ = ctx.node


async def test_each_top_level_call_is_one_tree_that_shares_no_node_with_another():
    helper = worker("helper", look)
    boss = worker("boss", helper)

    def reply(request: Any) -> Any:
        if len(request.transcript) > 1:
            return "done"
        name = request.functions[0]
        return [ToolUse("a", name, {"at": "x"} if name == "look" else {})]

    async with Runtime([boss], models=ScriptedModel(reply)) as runtime, asyncio.timeout(60):
        nodes = [runtime.get_ctx().invoke(boss) for _ in range(3)]
        for node in nodes:
            assert await node == "done"
        assert runtime.list_toplevel() == nodes
        trees = [{one.id for one in runtime.get_subtree(node.id)} for node in nodes]
    assert [len(tree) for tree in trees] == [3, 3, 3]
    assert len(set[int]().union(*trees)) == 9


async def test_a_context_knows_the_node_that_it_belongs_to_and_makes_its_children():
    async def child(ctx: RunContext) -> Node:
        return ctx.node

    inner = CodeFunction(callable=child)

    async def parent(ctx: RunContext) -> list[Node]:
        return [ctx.node, await ctx.invoke(inner)]

    outer = CodeFunction(callable=parent, uses=[inner])
    async with Runtime([outer]) as runtime, asyncio.timeout(60):
        node = runtime.invoke(outer)
        above, below = await node
        assert above is node
        assert below.parent is node
        assert node.get_children() == [below]
        assert node.parent is None


async def test_ids_only_grow():
    async with Runtime([look]) as runtime, asyncio.timeout(60):
        nodes = [runtime.invoke(look, {"at": str(n)}) for n in range(5)]
        for node in nodes:
            await node
    ids = [node.id for node in nodes]
    assert ids == sorted(set(ids))


async def test_code_is_started_at_once_and_agents_when_there_is_room_for_their_requests():
    model = StagedModel(ScriptedModel(lambda request: "done"), held=True)
    boss = worker("boss")
    async with Runtime([boss, look], models=model) as runtime, asyncio.timeout(60):
        agents = [runtime.invoke(boss) for _ in range(20)]
        await until(lambda: model.in_flight)
        assert await runtime.invoke(look, {"at": "code"}) == "code is fine"
        model.gate.set()
        assert [await node for node in agents] == ["done"] * 20


def test_sync_code_waits_for_the_result_of_an_agent():
    boss = worker("boss", look)
    model = ScriptedModel([ToolUse("a", "look", {"at": "x"})], "done")
    with Runtime([boss], models=model) as runtime:
        node = runtime.get_ctx().invoke(boss)
        assert node.result(60) == "done"
        assert [one.function.name for one in runtime.get_subtree(node.id)] == ["boss", "look"]


async def test_async_code_awaits_the_result_of_an_agent_of_a_background_runtime():
    boss = worker("boss")
    with Runtime([boss], models=ScriptedModel("done")) as runtime:
        async with asyncio.timeout(60):
            assert await runtime.invoke(boss) == "done"


def test_everything_may_be_asked_from_any_thread():
    release = threading.Event()

    def wait(ctx: RunContext) -> str:
        assert release.wait(60)
        return "waited"

    waiting = CodeFunction(callable=wait)
    boss = worker("boss", waiting)
    with Runtime([boss], models=ScriptedModel([ToolUse("a", "wait")], "done")) as runtime:
        node = runtime.invoke(boss)
        found: list[Any] = []

        def ask() -> None:
            for view in runtime.watch(node, timeout=60):
                if view.children and view.children[0].state is NodeState.Running:
                    break
            found.extend([
                [frame.function for frame in runtime.stack(node.id)],
                runtime.questions(),
                runtime.list_toplevel() == [node],
                len(agent_node(node).get_transcript()),
            ])
            release.set()

        thread = threading.Thread(target=ask)
        thread.start()
        assert node.result(60) == "done"
        thread.join(60)
    assert found == [["boss", "wait"], [], True, 2]


async def test_a_finished_tree_that_is_deleted_is_forgotten():
    boss = worker("boss")
    async with Runtime([boss], models=ScriptedModel("one", "two")) as runtime:
        first, second = [await ended(runtime.invoke(boss)) for _ in range(2)]
        runtime.delete(first.id)
        assert runtime.list_toplevel() == [second]
        with pytest.raises(KeyError):
            runtime.get_view(first.id)


async def test_an_agent_is_an_agent_node_and_code_a_code_node():
    boss = worker("boss", look)
    model = ScriptedModel([ToolUse("a", "look", {"at": "x"})], "done")
    async with Runtime([boss], models=model) as runtime:
        node = await ended(runtime.invoke(boss))
        [child] = node.get_children()
    assert type(node) is AgentNode
    assert type(child) is CodeNode
    assert isinstance(node, Node)


# --- the stack of agents and code


async def test_the_stack_shows_the_calls_that_are_waited_on_from_the_root_down():
    inside, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def probe(depth: int) -> str:
        inside.set()
        await go_on.wait()
        return "probed"

    find = AgentFunction(
        "find",
        "",
        args=[FunctionArg("error", str)],
        user_prompt_template="Find {error}.",
        uses=[look, probe],
    )

    async def fix(ctx: RunContext, root: str) -> str:
        return await ctx.invoke(find, {"error": "boom"})

    top = CodeFunction(callable=fix, uses=[find])
    model = ScriptedModel(
        [ToolUse("a", "look", {"at": "x"})], [ToolUse("b", "probe", {"depth": 3})], "found",
        name="the-model",
    )  # fmt: skip
    async with Runtime([top], models=model) as runtime, asyncio.timeout(60):
        node = runtime.invoke(top, {"root": "/src"})
        await inside.wait()
        frames = runtime.stack(node.id)
        assert [frame.function for frame in frames] == ["fix", "find", "probe"]
        assert [frame.kind for frame in frames] == ["code", "agent", "code"]
        assert [frame.path for frame in frames] == ["1", "1.1", "1.1.2"]
        assert [frame.state for frame in frames] == [NodeState.Running] * 3
        assert frames[0].node_id == node.id
        assert "/src" in frames[0].arguments
        assert "boom" in frames[1].arguments
        assert "3" in frames[2].arguments
        assert frames[1].model == "the-model"
        assert frames[1].responses == 2
        assert frames[1].parts == 4  # prompt, call, result, call
        below = runtime.stack(frames[1].node_id)
        assert [frame.function for frame in below][-2:] == ["find", "probe"]
        for frame in frames:
            line = str(frame)
            assert "\n" not in line
            assert frame.function in line
        go_on.set()
        assert await node == "found"


async def test_the_stack_shows_what_was_spent():
    async with Runtime([worker("boss")], models=ScriptedModel("done")) as runtime:
        node = await ended(runtime.invoke(runtime.invocable_functions["boss"]))
        [frame] = runtime.stack(node.id)
        assert frame.usage == agent_node(node).usage
        assert frame.cost == agent_node(node).cost
