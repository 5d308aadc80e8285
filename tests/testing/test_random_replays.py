"""Random programs, recorded and replayed: unchanged they do the same, whoever was quicker."""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import HealthCheck, assume, given, settings, strategies as st

from treefold import (
    AgentFunction,
    CodeFunction,
    Function,
    MemoryStore,
    Node,
    RunContext,
    Runtime,
    ToolUse,
)
from treefold.core.errors import CallError
from treefold.testing import ScriptedModel, ScriptedRequest, replay

EXAMPLES = int(os.environ.get("RANDOM_REPLAYS", "30"))  # if it is set, they are new ones each time


@dataclass(frozen=True)
class Plan:
    """One function: what it calls, how, and what comes of it."""

    kind: str  # code, agent, or leaf
    how: str = "series"  # or all at once: gather, collect as they come, race; batch of an agent
    calls: tuple["Plan", ...] = ()
    turns: int = 0  # of the loop that a leaf takes
    fails: bool = False
    tag: str = ""


def _above(below: st.SearchStrategy[Plan]) -> st.SearchStrategy[Plan]:
    calls = st.lists(below, min_size=1, max_size=4).map(tuple)
    hows = st.sampled_from(["series", "gather", "collect", "race"])
    return st.builds(
        Plan, st.just("code"), how=hows, calls=calls, fails=st.integers(0, 5).map(lambda n: n == 5)
    ) | st.builds(
        Plan, st.just("agent"), how=st.sampled_from(["series", "batch", "at once"]), calls=calls
    )


LEAVES = st.builds(
    Plan, st.just("leaf"), turns=st.integers(0, 8), fails=st.integers(0, 3).map(lambda n: n == 3)
)
PLANS = _above(st.recursive(LEAVES, _above, max_leaves=10))


class Program:
    """The functions of a plan, each with a name of its own, and their models."""

    def __init__(self, plan: Plan) -> None:
        self.models: dict[str, ScriptedModel] = {}
        self.ran = 0
        self.root = self._made(plan, "f")

    def _made(self, plan: Plan, name: str) -> Function:
        below = [self._made(call, f"{name}_{n}") for n, call in enumerate(plan.calls)]
        if plan.kind == "leaf":
            return CodeFunction(name=name, callable=self._leaf(plan, name))
        if plan.kind == "code":
            return CodeFunction(name=name, callable=_code(plan, name, below), uses=below)
        uses = [ToolUse(f"call {n}", used.name) for n, used in enumerate(below)]
        steps: list[Any] = [[use] for use in uses] if plan.how == "series" else [uses]
        self.models[name] = ScriptedModel(*steps, _answer)
        return AgentFunction(
            name,
            "Do it.",
            user_prompt_template=f"Do {name}{plan.tag}.",
            uses=below,
            default_model=name,
            parallel_tools=plan.how == "at once",
        )

    def _leaf(self, plan: Plan, name: str) -> Any:
        async def leaf(ctx: RunContext) -> str:
            self.ran += 1
            for _ in range(plan.turns):
                await asyncio.sleep(0)
            if plan.fails:
                raise ValueError(f"{name} failed")
            return f"{name}{plan.tag}"

        return leaf


def _answer(request: ScriptedRequest) -> str:
    return f"I was told {len(request.transcript)} things."


def _code(plan: Plan, name: str, below: list[Function]) -> Any:
    async def code(ctx: RunContext) -> Any:
        found: list[Any] = [plan.tag]
        if plan.how == "series":
            found += [await _outcome(ctx.invoke(one)) for one in below]
        else:
            nodes = [ctx.invoke(one) for one in below]
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_kept(node, found)) for node in nodes]
                if plan.how == "race":
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    found[2:] = []
                    for node in nodes:
                        node.cancel("another was quicker")
            if plan.how == "race":
                found[2:] = []
            if plan.how == "gather":
                found.sort(key=repr)
        if plan.fails:
            raise ValueError(f"{name} failed: {found}")
        return found

    return code


async def _kept(node: Node, found: list[Any]) -> None:
    found.append(await _outcome(node))


async def _outcome(node: Node) -> Any:
    try:
        return await node
    except (ValueError, CallError) as error:
        return repr(str(error))


def record(program: Program) -> MemoryStore:
    store = MemoryStore()
    with Runtime([program.root], models=program.models or None, store=store) as runtime:
        node = runtime.invoke(program.root)
        try:
            node.result(timeout=60)
        except ValueError:
            assert node.exception is not None
    return store


RANDOM = settings(
    max_examples=EXAMPLES,
    derandomize="RANDOM_REPLAYS" not in os.environ,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@RANDOM
@given(PLANS)
def test_whatever_a_program_does_it_does_again(plan: Plan):
    program = Program(plan)
    store = record(program)
    ran, asked = program.ran, [len(model.requests) for model in program.models.values()]

    again = replay([program.root], store)
    again.check()
    with Runtime(store=store) as runtime:
        recorded = runtime.get_view(1)
    assert (again.view.state, again.output) == (recorded.state, recorded.outputs)
    assert (again.view.exception, again.view.path) == (recorded.exception, recorded.path)
    assert program.ran == ran
    assert [len(model.requests) for model in program.models.values()] == asked


def variants(plan: Plan) -> Iterator[Plan]:
    """Each plan in which one function that runs says something else."""
    if plan.kind != "leaf":
        yield replace(plan, tag="!")
    for n, call in enumerate(plan.calls):
        for other in variants(call):
            yield replace(plan, calls=(*plan.calls[:n], other, *plan.calls[n + 1 :]))


def without_races(plan: Plan) -> bool:
    return plan.how != "race" and all(map(without_races, plan.calls))


@RANDOM
@given(PLANS, st.data())
def test_whatever_is_changed_in_a_program_shows(plan: Plan, data: st.DataObject):
    assume(without_races(plan))  # in one, the change may be in a call that was cancelled
    program = Program(plan)
    store = record(program)
    changed = Program(data.draw(st.sampled_from(list(variants(plan)))))
    found = replay([changed.root], store).divergence
    assert found is not None
    assert "!" in found.actual
    assert "!" not in found.expected
    assert changed.ran == 0
