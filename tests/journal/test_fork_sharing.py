"""What a fork asks again, and what it shares: calls beside the one that is forked."""

import asyncio
from typing import Any, Final

import pytest
from hypothesis import given, settings, strategies as st

from support import wait
from treefold import (
    Budget,
    BudgetExceeded,
    CodeFunction,
    Edit,
    Ensemble,
    MemoryStore,
    Node,
    NodeState,
    RunContext,
    Runtime,
    ToolResult,
    ToolUse,
    UserText,
    agent,
    registries,
    tool,
)
from treefold.core.events import CallEnded, CallRequested, TreeForked
from treefold.core.forking import cut_at, fork_of, inherit
from treefold.testing import ScriptedModel, replay

PATIENCE: Final = 60  # seconds
NAMES: Final = "abcdefgh"


def say(request: Any) -> str:
    """Answer a prompt with itself."""
    [prompt] = [part.text for part in request.transcript if isinstance(part, UserText)]
    return f"<{prompt}>"


@agent
def name_it(thing: str) -> str:
    return thing


with registries():  # so that no other test finds the name taken

    @tool(uses=[name_it])
    async def name_all(ctx: RunContext, things: list[str]) -> list[str]:
        nodes = [ctx.invoke(name_it, {"thing": thing}) for thing in things]
        return [await node for node in nodes]


@agent(uses=[name_it], parallel_tools=True)
def boss() -> str:
    return "Name all."


@agent(uses=[name_it])
def slow_boss() -> str:
    return "Name all."


def lead(request: Any) -> Any:
    """Ask for all names in one response, and tell them."""
    if "name_it" not in request.functions:
        return say(request)
    results = [part.content for part in request.transcript if isinstance(part, ToolResult)]
    if results:
        return ", ".join(results)
    return [ToolUse(thing, "name_it", {"thing": thing}) for thing in NAMES]


def children(runtime: Runtime, node: Node) -> list[Node]:
    return [one for one in runtime.get_subtree(node.id) if one.parent is node]


def replayed(functions: list[Any], store: MemoryStore) -> None:
    for row in store.trees():
        replay(functions, store, row.id).check()


@pytest.mark.parametrize("which", [0, 3, 7])
def test_one_of_several_calls_that_code_made_at_once_is_made_again_alone(which: int) -> None:
    model, store = ScriptedModel(say), MemoryStore()
    with Runtime([name_all], models=model, store=store) as runtime:
        node = runtime.invoke(name_all, {"things": list(NAMES)})
        assert node.result(PATIENCE) == [f"<{name}>" for name in NAMES]
        before = len(model.requests)
        fork = runtime.fork(children(runtime, node)[which], edit=Edit(prompt="new"))
        expected = [f"<{name}>" for name in NAMES]
        expected[which] = "<new>"
        assert fork.result(PATIENCE) == expected
        assert len(model.requests) == before + 1
        again = runtime.fork(children(runtime, fork)[2], edit=Edit(result="given"))
        expected[2] = "given"
        assert again.result(PATIENCE) == expected
        assert len(model.requests) == before + 1
        paths = [one.path.partition(".")[2] for one in children(runtime, again)]
        assert paths == [str(number) for number in range(1, 9)]
        assert fork.total_usage == node.total_usage
        assert not runtime.get_view(again.id).notices
    with Runtime([name_all], models=model, store=store) as runtime:
        assert runtime.list_toplevel()[2].result(PATIENCE) == expected
    replayed([name_all], store)


@pytest.mark.parametrize("which", [0, 7])
def test_one_of_several_calls_that_a_model_asked_for_at_once_is_made_again_alone(
    which: int,
) -> None:
    model, store = ScriptedModel(lead), MemoryStore()
    with Runtime([boss], models=model, store=store) as runtime:
        node = runtime.invoke(boss)
        assert node.result(PATIENCE) == ", ".join(f"<{name}>" for name in NAMES)
        before = len(model.requests)
        fork = runtime.fork(children(runtime, node)[which], edit=Edit(prompt="new"))
        expected = [f"<{name}>" for name in NAMES]
        expected[which] = "<new>"
        assert fork.result(PATIENCE) == ", ".join(expected)
        assert len(model.requests) == before + 2  # its own, and what the boss makes of it
    replayed([boss], store)


def test_calls_that_were_made_one_after_another_are_made_again() -> None:
    model, store = ScriptedModel(lead), MemoryStore()
    with Runtime([slow_boss], models=model, store=store) as runtime:
        node = runtime.invoke(slow_boss)
        node.result(PATIENCE)
        before = len(model.requests)
        fork = runtime.fork(children(runtime, node)[5], edit=Edit(result="given"))
        assert fork.result(PATIENCE) == "<a>, <b>, <c>, <d>, <e>, given, <g>, <h>"
        assert len(model.requests) == before + 3  # two that follow, and the boss
    replayed([slow_boss], store)


def test_calls_beside_a_caller_of_the_forked_one_are_shared() -> None:
    @tool(uses=[name_all])
    async def name_groups(ctx: RunContext) -> list[list[str]]:
        groups = [ctx.invoke(name_all, {"things": list(group)}) for group in ("ab", "cd", "ef")]
        return [await group for group in groups]

    model, store = ScriptedModel(say), MemoryStore()
    with Runtime([name_groups], models=model, store=store) as runtime:
        node = runtime.invoke(name_groups)
        node.result(PATIENCE)
        first = children(runtime, children(runtime, node)[0])[0]
        fork = runtime.fork(first, edit=Edit(prompt="new"))
        assert fork.result(PATIENCE) == [["<new>", "<b>"], ["<c>", "<d>"], ["<e>", "<f>"]]
        assert len(model.requests) == 7
    replayed([name_groups], store)


def test_a_call_whose_arguments_come_from_the_forked_one_is_made_again() -> None:
    @tool(uses=[name_it])
    async def chain(ctx: RunContext) -> list[str]:
        async def twice(thing: str) -> str:
            return await ctx.invoke(name_it, {"thing": await ctx.invoke(name_it, {"thing": thing})})

        async with asyncio.TaskGroup() as group:
            chains = [group.create_task(twice(thing)) for thing in ("a", "b")]
        return [chain.result() for chain in chains]

    model, store = ScriptedModel(say), MemoryStore()
    with Runtime([chain], models=model, store=store) as runtime:
        node = runtime.invoke(chain)
        assert node.result(PATIENCE) == ["<<a>>", "<<b>>"]
        fork = runtime.fork(children(runtime, node)[0], edit=Edit(result="new"))
        assert fork.result(PATIENCE) == ["<new>", "<<b>>"]
        asked = {say(request) for request in model.requests[4:]}
        # the second call of the other chain may have been asked for after the forked one had ended
        assert asked in ({"<new>"}, {"<new>", "<<b>>"})


def test_a_call_that_was_asked_for_because_of_a_value_of_the_forked_one_is_made_again() -> None:
    made: list[str] = []

    @tool(repeatable=True)
    async def use(value: str) -> str:
        made.append(value)
        return value.upper()

    @tool
    async def count(ctx: RunContext) -> str:
        await ctx.send("one")
        await asyncio.sleep(0)
        return "done"

    @tool(uses=[use, count])
    async def both(ctx: RunContext) -> list[str]:
        counted = ctx.invoke(count)
        async for view in ctx.runtime.watch(counted):
            if view.values:
                break
        used = ctx.invoke(use, {"value": "one"})
        return [await counted, await used]

    with Runtime([both], store=MemoryStore()) as runtime:
        node = runtime.invoke(both)
        assert node.result(PATIENCE) == ["done", "ONE"]
        fork = runtime.fork(children(runtime, node)[0])
        assert fork.result(PATIENCE) == ["done", "ONE"]
    assert made == ["one", "one"]


def test_members_of_an_ensemble_are_shared_and_the_answers_reconciled_again() -> None:
    together = Ensemble(name_it, {"default": 3})
    model, store = ScriptedModel(say), MemoryStore()
    with Runtime([together], models=model, store=store) as runtime:
        node = runtime.invoke(together, {"thing": "a"})
        node.result(PATIENCE)
        before = len(model.requests)
        for which in range(3):
            fork = runtime.fork(children(runtime, node)[which], edit=Edit(prompt="new"))
            fork.result(PATIENCE)
            before += 2
            assert len(model.requests) == before
            kept = [one.outputs for one in children(runtime, fork)[:3]]
            assert sorted(kept) == ["<a>", "<a>", "<new>"]
    replayed([together], store)


def test_calls_that_were_cancelled_because_another_failed_go_on_when_that_one_is_mended() -> None:
    ran: list[str] = []

    @tool(repeatable=True)
    async def work(n: int) -> int:
        ran.append(f"work {n}")
        if len(ran) <= 4:
            await asyncio.Event().wait()
        return n

    @tool
    async def fail() -> int:
        while len(ran) < 4:  # noqa: ASYNC110 - the others begin
            await asyncio.sleep(0)
        raise ZeroDivisionError

    @tool(uses=[work, fail])
    async def all_at_once(ctx: RunContext) -> list[int]:
        calls = [ctx.invoke(work, {"n": 1}), ctx.invoke(work, {"n": 2}), ctx.invoke(fail)]
        calls += [ctx.invoke(work, {"n": 4}), ctx.invoke(work, {"n": 5})]
        third = await calls[2]
        return [await calls[0], await calls[1], third, await calls[3], await calls[4]]

    store = MemoryStore()
    with Runtime([all_at_once], store=store) as runtime:
        node = runtime.invoke(all_at_once)
        with pytest.raises(ZeroDivisionError):
            node.result(PATIENCE)
        fork = runtime.fork(children(runtime, node)[2], edit=Edit(result=3))
        assert fork.result(PATIENCE) == [1, 2, 3, 4, 5]
        assert len(children(runtime, fork)) == 5
        states = [one.state for one in children(runtime, node)]
        assert states.count(NodeState.Canceled) == 4  # the source stays as it is
    assert sorted(ran) == sorted([f"work {n}" for n in (1, 2, 4, 5)] * 2)
    replayed([all_at_once], store)


def test_a_call_beside_the_forked_one_that_may_have_been_done_is_in_doubt_in_the_fork() -> None:
    paid: list[int] = []
    release = asyncio.Event()

    async def pay(ctx: RunContext, n: int) -> int:
        paid.append(n)
        if n:
            await release.wait()
        return n

    paying = CodeFunction(callable=pay)

    @tool(uses=[paying])
    async def pay_all(ctx: RunContext) -> list[int]:
        calls = [ctx.invoke(paying, {"n": n}) for n in range(2)]
        return [await call for call in calls]

    store = MemoryStore()
    with Runtime([pay_all], store=store) as runtime:
        node = runtime.invoke(pay_all)
        wait(lambda: paid == [0, 1] and children(runtime, node)[0].state is NodeState.Success)
        fork = runtime.fork(children(runtime, node)[0], edit=Edit(result=7))
        [question] = wait(runtime.questions)
        assert question.node_id == children(runtime, fork)[1].id
        runtime.answer(question.id, "use: 1")
        assert fork.result(PATIENCE) == [7, 1]
        node.cancel()
    assert paid == [0, 1]


def test_what_a_fork_shares_of_calls_at_once_is_not_counted_by_the_runtimes_budget_again() -> None:
    model = ScriptedModel(say)
    with Runtime([name_all], models=model, store=MemoryStore(), budget=Budget(calls=10)) as runtime:
        node = runtime.invoke(name_all, {"things": list(NAMES)})
        node.result(PATIENCE)
        first = children(runtime, node)[0]
        for _ in range(2):
            runtime.fork(first).result(PATIENCE)
        with pytest.raises(BudgetExceeded):
            runtime.fork(first).result(PATIENCE)
    assert len(model.requests) == 10


def test_a_fork_that_an_earlier_version_wrote_shares_what_it_shared_then() -> None:
    def asked_for(node: int, parent: int | None, index: int) -> CallRequested:
        return CallRequested(node, parent, index, index, "f", {}, key=f"f{index}")

    events = [
        asked_for(1, None, 1),
        asked_for(2, 1, 1),
        asked_for(3, 1, 2),
        CallEnded(3, NodeState.Success, 0.0),
        CallEnded(2, NodeState.Success, 0.0),
        CallEnded(1, NodeState.Success, 0.0),
    ]
    old = TreeForked(
        4,
        at=0.0,
        key="#4",
        tree_number=2,
        function="f",
        is_agent=False,
        source=1,
        inherited=1,
        cut=2,
        length=6,
        reopened=(1, 2),
    )
    assert [(event.node, type(event)) for event in inherit(events, old)] == [
        (4, CallRequested),
        (5, CallRequested),
    ]
    new = fork_of(events, cut_at(events, 2, 0), old)
    assert new.inherited == 2
    assert [(event.node, type(event)) for event in inherit(events, new)][2:] == [
        (6, CallRequested),
        (6, CallEnded),
    ]


# --- any tree: batches of parallel calls, one after another, at any depth

Plan = list[list[Any]]  # the batches of a call, each of plans; a call without any is a leaf
PLANS: Final = st.recursive(
    st.just([]), lambda plans: st.lists(st.lists(plans, min_size=1, max_size=3), max_size=3)
)


def leaves(plan: Plan) -> int:
    return sum(leaves(one) for batch in plan for one in batch) if plan else 1


def made_again(plan: Plan, path: list[int]) -> int:
    """Return how many leaves follow the call with this path: the places of it and its callers."""
    if not path:
        return 0
    place = path[0]
    for number, batch in enumerate(plan):
        if place < len(batch):
            later = sum(leaves(one) for rest in plan[number + 1 :] for one in rest)
            return later + made_again(batch[place], path[1:])
        place -= len(batch)
    raise AssertionError


@settings(max_examples=25, deadline=None)
@given(PLANS, st.lists(st.integers(0, 1000), min_size=1, max_size=3))
def test_a_fork_makes_exactly_the_calls_again_that_follow_the_forked_one(
    plan: Plan, picks: list[int]
) -> None:
    runs = 0

    async def grow(ctx: RunContext, plan: list[Any], name: str) -> str:
        nonlocal runs
        runs += not plan
        found: list[str] = []
        for number, batch in enumerate(plan):
            calls = [
                ctx.invoke(growing, {"plan": one, "name": f"{name}.{number}.{place}"})
                for place, one in enumerate(batch)
            ]
            found += [await call for call in calls]
        return f"{name}({', '.join(found)})"

    growing = CodeFunction(callable=grow, uses_recursion=True, max_depth=100)
    store = MemoryStore()
    with Runtime([growing], store=store) as runtime:
        node = runtime.invoke(growing, {"plan": plan, "name": "1"})
        result = node.result(PATIENCE)
        assert runs == leaves(plan)
        for pick in picks:
            nodes = runtime.get_subtree(node.id)
            forked = nodes[pick % len(nodes)]
            before, path = runs, [int(place) - 1 for place in forked.path.split(".")[1:]]
            node = runtime.fork(forked, edit=Edit(result=forked.outputs))
            assert node.result(PATIENCE) == result
            assert runs - before == made_again(plan, path)
            again = [one.path.partition(".")[2] for one in runtime.get_subtree(node.id)]
            assert len(again) == len(set(again))
