"""Where the time of a run went: each call by kinds, the critical path, and sums."""

import random
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from support import wait
from treefold import AgentFunction, CodeFunction, NodeView, RunContext, Runtime, TokenUsage, attach
from treefold.core.fact import replace
from treefold.core.phases import Phase, PhaseKind
from treefold.testing import ScriptedModel
from treefold.views import data
from treefold.views.timing import Timing, Totals, timing_of, totals_of
from view_trees import START, after, call, flat, planted

ZERO = START.timestamp()


def phase(kind: str, start: float, end: float | None) -> Phase:
    return Phase(PhaseKind(kind), ZERO + start, None if end is None else ZERO + end)


def timed(view: NodeView, now: float = 100) -> tuple[NodeView, Timing]:
    view = planted(view)
    return view, timing_of(view, now=after(now))


def spans(timing: Timing, id: int) -> list[tuple[Any, ...]]:
    return [
        (kind, round(start - ZERO, 3), round(end - ZERO, 3))
        for kind, start, end in timing.spans[id]
    ]


def path(timing: Timing) -> list[tuple[Any, ...]]:
    return [
        (step.view.fn, step.kind, round(step.start - ZERO, 3), round(step.end - ZERO, 3))
        for step in timing.path
    ]


def test_code_that_waits_for_nothing_is_all_its_own():
    _, timing = timed(call("work", "success", start=1, end=4))
    assert spans(timing, 1) == [("tool", 1, 4)]
    assert path(timing) == [("work", "tool", 1, 4)]


def test_an_agent_is_split_into_requests_waits_and_calls():
    view = call(
        "agent",
        "success",
        call("tool", "success", start=5, end=7),
        start=1,
        end=12,
        phases=(
            phase("queued", 0, 1),  # until it was started
            phase("queued", 1, 2),  # for a lease
            phase("model", 2, 5),
            phase("model", 8, 9),
            phase("person", 9, 11),
        ),
    )
    _, timing = timed(view)
    assert spans(timing, 1) == [
        ("queued", 0, 2),
        ("model", 2, 5),
        ("calls", 5, 7),
        ("tool", 7, 8),
        ("model", 8, 9),
        ("person", 9, 11),
        ("tool", 11, 12),
    ]
    assert timing.split == {
        "queued": 2,
        "model": 4,
        "tool": 4,
        "person": 2,
        "down": 0,
        "calls": 0,
    }


def test_a_run_without_a_process_is_down_unless_a_person_is_asked():
    view = call(
        "top",
        "success",
        call("agent", "success", start=0, end=10, phases=(phase("model", 1, 8),)),
        call("ask", "success", start=0, end=10, phases=(phase("person", 1, 6),)),
        start=0,
        end=10,
        phases=(phase("down", 2, 7),),
    )
    _, timing = timed(view)
    assert spans(timing, 1) == [("calls", 0, 2), ("down", 2, 7), ("calls", 7, 10)]
    assert spans(timing, 2) == [
        ("tool", 0, 1),
        ("model", 1, 2),
        ("down", 2, 7),
        ("model", 7, 8),
        ("tool", 8, 10),
    ]
    assert spans(timing, 3) == [("tool", 0, 1), ("person", 1, 6), ("down", 6, 7), ("tool", 7, 10)]


def test_what_is_open_lasts_until_now_and_what_waits_is_queued():
    view = call(
        "top",
        "running",
        call("agent", "running", start=1, phases=(phase("model", 2, None),)),
        call("next", "waiting", phases=(phase("queued", 3, None),)),
    )
    _, timing = timed(view, now=5)
    assert spans(timing, 1) == [("tool", 0, 1), ("calls", 1, 5)]
    assert spans(timing, 2) == [("tool", 1, 2), ("model", 2, 5)]
    assert spans(timing, 3) == [("queued", 3, 5)]


def test_the_critical_path_follows_the_call_that_ended_last():
    view = call(
        "top",
        "success",
        call("quick", "success", start=1, end=3),
        call("slow", "success", call("inner", "success", start=2, end=6), start=1, end=7),
        call("last", "success", start=7, end=9),
        start=0,
        end=10,
    )
    _, timing = timed(view)
    assert path(timing) == [
        ("top", "tool", 0, 1),
        ("slow", "tool", 1, 2),
        ("inner", "tool", 2, 6),
        ("slow", "tool", 6, 7),
        ("last", "tool", 7, 9),
        ("top", "tool", 9, 10),
    ]


def test_a_call_that_is_still_open_when_another_begins_does_not_delay_that():
    view = call(
        "top",
        "success",
        call("a", "success", start=1, end=8),
        call("b", "success", start=5, end=10),
        start=0,
        end=10,
    )
    _, timing = timed(view)
    assert path(timing) == [("top", "tool", 0, 5), ("b", "tool", 5, 10)]


def test_of_calls_made_together_only_the_last_to_end_is_on_the_path():
    # On a busy machine it takes a while to make them.
    made = [call(f"part {n}", "success", start=n, end=20 + (7 * n) % 5) for n in range(5)]
    view = call("top", "success", *made, start=0, end=25)
    _, timing = timed(view)
    assert path(timing) == [
        ("top", "tool", 0, 2),
        ("part 2", "tool", 2, 24),
        ("top", "tool", 24, 25),
    ]


def test_a_call_waited_for_the_one_whose_end_let_it_begin():
    # Two at a time: the third began when the second had ended.
    view = call(
        "top",
        "success",
        call("first", "success", start=0, end=10),
        call("second", "success", start=0, end=6),
        call("third", "success", start=6, end=12),
        start=0,
        end=12,
    )
    _, timing = timed(view)
    assert path(timing) == [("second", "tool", 0, 6), ("third", "tool", 6, 12)]


def test_clocks_that_differ_a_little_hide_no_call():
    view = call(
        "top",
        "success",
        call("elsewhere", "success", start=0, end=60.02),  # by the clock of another machine
        call("here", "success", start=60, end=70),
        start=0,
        end=70,
    )
    _, timing = timed(view)
    assert path(timing) == [("elsewhere", "tool", 0, 60), ("here", "tool", 60, 70)]


def test_of_open_calls_the_first_is_on_the_path():
    view = call("top", "running", call("a", "running", start=1), call("b", "running", start=2))
    _, timing = timed(view, now=5)
    assert path(timing) == [("top", "tool", 0, 1), ("a", "tool", 1, 5)]


def test_calls_of_the_source_of_a_fork_take_no_time_of_the_fork():
    view = call(
        "top",
        "success",
        call("shared", "success", start=1, end=4, phases=(phase("queued", 0.5, 1),)),
        call("anew", "success", start=21, end=25),
        start=20,
        end=26,
        phases=(phase("queued", 0, 1), phase("model", 1, 3)),
    )
    _, timing = timed(view)
    assert spans(timing, 1) == [("tool", 20, 21), ("calls", 21, 25), ("tool", 25, 26)]
    assert spans(timing, 2) == []
    assert path(timing)[0] == ("top", "tool", 20, 21)


def test_calls_without_any_time_do_no_harm():
    view = call("top", "waiting")
    _, timing = timed(view)
    assert spans(timing, 1) == []
    assert path(timing) == []
    instant = call("top", "success", *[call("f", "success", end=0) for _ in range(5)], end=0)
    _, timing = timed(instant)
    assert path(timing) == []


def random_view(rng: random.Random, start: float, end: float, depth: int) -> NodeView:
    children: list[NodeView] = []
    for _ in range(rng.randrange(4) if depth else 0):
        begun = rng.uniform(start - 1, end)
        children.append(random_view(rng, begun, rng.uniform(begun, end + 1), depth - 1))
    phases = [
        phase(kind, at, None if rng.random() < 0.1 else at + rng.uniform(0, 3))
        for kind in ("queued", "model", "person", "down")
        for at in [rng.uniform(start, end) for _ in range(rng.randrange(3))]
    ]
    return call("f", "success", *children, start=start, end=end, phases=tuple(phases))


@pytest.mark.parametrize("seed", range(200))
def test_spans_fill_each_call_and_the_path_fills_the_run(seed: int):
    rng = random.Random(seed)
    view, timing = timed(random_view(rng, 0, 10, 4))
    for one in flat(view):
        found = timing.spans[one.id]
        assert all(span.end > span.start for span in found)
        for span, following in pairwise(found):
            assert span.end == following.start
            assert span.kind != following.kind
    reached = timing.start
    for step in timing.path:
        assert step.kind != "calls"
        assert step.start == pytest.approx(reached)
        reached = step.end
    assert reached == pytest.approx(timing.end)
    assert sum(timing.split.values()) == pytest.approx(timing.end - timing.start)


def test_five_thousand_calls_and_a_deep_tree_are_timed():
    wide = call(
        "top",
        "success",
        *[call("f", "success", start=at / 100, end=at / 100 + 5) for at in range(5_000)],
        end=60,
    )
    view, timing = timed(wide)
    assert len(timing.spans) == 5_001
    assert totals_of(view, timing).functions[0].calls == 5_000
    deep = replace(call("f", "success", end=1), id=3_000)
    for number in range(2_999, 0, -1):
        deep = replace(call("f", "success", deep, end=1), id=number)
    assert len(timing_of(deep, now=after(1)).spans) == 3_000


def test_time_tokens_and_money_are_summed_by_function_and_by_model():
    small: dict[str, Any] = {"model": "small", "usage": TokenUsage(output=10), "cost": Decimal(1)}
    large: dict[str, Any] = {"model": "large", "usage": TokenUsage(output=5), "cost": None}
    view, timing = timed(
        call(
            "top",
            "success",
            call("ask", "success", start=0, end=4, phases=(phase("model", 1, 3),), **small),
            call("ask", "success", start=4, end=9, phases=(phase("model", 4, 9),), **large),
            start=0,
            end=10,
        )
    )
    totals = Totals()
    totals.add(view, timing)
    totals.add(view, timing)
    found = data.totals(totals)
    assert (found["runs"], found["calls"], found["seconds"]) == (2, 6, 20.0)
    assert found["split"] == {"queued": 0, "model": 14, "tool": 6, "person": 0, "down": 0}
    nothing = {"queued": 0, "person": 0, "down": 0}
    assert found["functions"] == [
        {
            "name": "ask",
            "calls": 4,
            "requests": 4,
            "seconds": 18.0,
            "split": nothing | {"model": 14, "tool": 4},
            "tokens": 30,
            "cost": None,
        },
        {
            "name": "top",
            "calls": 2,
            "requests": 0,
            "seconds": 2.0,
            "split": nothing | {"model": 0, "tool": 2},
            "tokens": 0,
            "cost": "0",
        },
    ]
    assert [(one["name"], one["tokens"], one["cost"]) for one in found["models"]] == [
        ("large", 10, None),
        ("small", 20, "2"),
    ]


# What runs record


def kinds(view: NodeView) -> set[str]:
    return {kind for kind, _, _ in view.phases}


def test_requests_and_questions_of_a_run_are_recorded():
    talk = AgentFunction("talk", "Talks.", system_prompt="Talk.", user_prompt_template="Go.")

    async def top(ctx: RunContext) -> str:
        answer = await ctx.ask("Go on?")
        return answer + await ctx.invoke(talk)

    function = CodeFunction(callable=top, name="top", uses=[talk])
    with Runtime([function], models=ScriptedModel("done")) as runtime:
        node = runtime.invoke(function)
        [question] = wait(runtime.questions)
        # The machine may be busy: then it was queued first.
        assert kinds(runtime.get_view(node.id)) - {"queued"} == {"person"}
        runtime.answer(question.id, "yes")
        node.result(60)
        view = runtime.get_view(node.id)
    assert kinds(view.children[0]) - {"queued"} == {"model"}
    assert all(end is not None for _, _, end in (*view.phases, *view.children[0].phases))
    timing = timing_of(view)
    assert {step.kind for step in timing.path} >= {"person", "model"}


def test_the_time_between_two_processes_is_down(tmp_path: Path):
    async def slow(ctx: RunContext) -> str:
        return await ctx.ask("Which?")

    async def top(ctx: RunContext) -> str:
        first = await ctx.invoke(question)
        await ctx.invoke(step)
        return first

    async def pause(ctx: RunContext) -> str:
        return "done"

    question = CodeFunction(callable=slow, name="question", repeatable=True)
    step = CodeFunction(callable=pause, name="step", repeatable=True)
    function = CodeFunction(callable=top, name="top", uses=[question, step], repeatable=True)
    store = tmp_path / "run.db"
    with Runtime([function], store=store) as runtime:
        node = runtime.invoke(function)
        wait(runtime.questions)
    with attach(store) as observer:
        observer.answer(observer.questions()[0].id, "this")
    with Runtime([function], store=store) as runtime:
        wait(lambda: runtime.get_view(node.id).state.final or None)
        view = runtime.get_view(node.id)
    [down] = [one for one in view.phases if one.kind is PhaseKind.Down]
    assert down.end is not None
    assert view.started_at is not None
    assert view.started_at.timestamp() <= down.start <= down.end
    assert view.children[1].started_at is not None
    assert view.children[1].started_at.timestamp() >= down.end
