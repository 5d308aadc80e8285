"""Spans of journals: of other processes, of killed processes, of forks."""

import os
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import treefold
import warm_python
from spans import (
    PATIENCE,
    facts,
    happenings,
    ids,
    looking,
    named,
    provider_for,
    sent_of,
    shapes,
    traced,
)
from treefold import (
    CodeFunction,
    Edit,
    MemoryStore,
    ModelProviderException,
    RunContext,
    Runtime,
    ToolUse,
    agent,
)
from treefold.core.agent_events import RequestSent
from treefold.core.errors import StoreError, UsageError
from treefold.core.question import QuestionKind
from treefold.core.store import TreeRow
from treefold.testing import ScriptedFailure, ScriptedModel
from treefold.views import otel
from views.traced_program import report


@contextmanager
def program(path: Path, *args: str) -> Generator["subprocess.Popen[str]"]:
    """Run the program beside this until it waits for a line."""
    tests = str(Path(__file__).parent.parent)
    command = warm_python.command("-m", "views.traced_program", str(path), *args)
    env = os.environ | {"PYTHONPATH": tests}
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "started\n"
            yield process
        finally:
            process.kill()


def go(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


def answer_when_asked(runtime: Runtime, kind: QuestionKind, answer: str) -> None:
    wait_until(lambda: kind in {question.kind for question in runtime.questions()})
    [question] = [one for one in runtime.questions() if one.kind is kind]
    runtime.answer(question.id, answer)


def requests_in(path: Path) -> int:
    with treefold.attach(path) as observer:
        events = [event for row in observer.trees() for event in observer.events(row.id).read()]
    return sum(isinstance(event, RequestSent) for event in events)


WHOLE = {
    "report": {
        "invoke_agent read": {
            "chat scripted": {},
            "execute_tool fetch": {},
            "execute_tool fetch'": {},
            "chat scripted'": {},
        }
    }
}


def test_a_run_of_another_process_is_traced_while_it_goes_on(tmp_path: Path):
    path = tmp_path / "run.db"
    with (
        program(path, "done") as process,
        traced(path) as exporter,
    ):
        go(process)
        wait_until(lambda: len(exporter.get_finished_spans()) == 6)
        assert process.wait(PATIENCE) == 0

    assert shapes(exporter.get_finished_spans()) == [WHOLE]


def test_a_run_that_was_killed_and_goes_on_elsewhere_is_one_trace(tmp_path: Path):
    path = tmp_path / "run.db"
    with (
        program(path) as process,
        traced(path) as first,
    ):
        go(process)
        wait_until(lambda: requests_in(path) == 2)
        process.kill()
        process.wait(PATIENCE)
        with treefold.attach(path) as observer:  # what was started ends a moment after its command
            wait_until(lambda: not observer.is_driven)
    runtime = Runtime([report], models=ScriptedModel("done"), store=path)
    with traced(runtime) as second, runtime:
        [node] = runtime.recover()
        assert node.result(PATIENCE) == "done"
    before, after = first.get_finished_spans(), second.get_finished_spans()

    assert sorted(span.name for span in before) == ["chat scripted", *["execute_tool fetch"] * 2]
    assert [span.name for span in after] == [
        "chat scripted",  # of which nothing more was heard
        "chat scripted",
        "invoke_agent read",
        "report",
    ]
    lost, asked_again, *_ = after
    assert (lost.status.status_code, facts(lost)["error.type"]) == (
        StatusCode.ERROR,
        "interrupted",
    )
    assert asked_again.status.status_code is StatusCode.UNSET
    inside = WHOLE["report"]["invoke_agent read"]
    assert shapes([*before, *after]) == [
        {"report": {"invoke_agent read": {**inside, "chat scripted''": {}}}}
    ]
    assert sorted(span.to_json() or "" for span in sent_of(path)) == sorted(
        span.to_json() or "" for span in [*before, *after]
    )


@agent(uses=[looking])
def work(topic: str) -> str:
    """Work on something."""
    return f"Work on {topic}."


async def manage(ctx: RunContext) -> str:
    """Have work done."""
    return await ctx.invoke(work, {"topic": "sea"})


managing = CodeFunction(callable=manage, uses=[work])


def test_a_fork_is_a_trace_of_its_own_that_has_only_what_is_new_and_links_to_the_other():
    model = ScriptedModel(ToolUse("c1", "look", {"what": "b"}), "done", "done otherwise")
    store = MemoryStore()
    with Runtime([managing], models=model, store=store) as runtime:
        top = runtime.invoke(managing)
        assert top.result() == "done"
        [agent_node] = runtime.get_view(top.id).children
        with traced(runtime) as exporter:
            forked = runtime.fork(agent_node.id, at=1)
            assert forked.result(PATIENCE) == "done otherwise"
    spans = exporter.get_finished_spans()

    assert shapes(spans) == [
        {"manage": {"invoke_agent work": {"execute_tool look": {}, "chat scripted": {}}}}
    ]
    first, _ = [span for span in sent_of(store) if span.name == "manage"]
    fork = named(spans, "manage")
    assert [(link.context.trace_id, link.context.span_id) for link in fork.links] == [ids(first)]
    assert ids(fork)[0] != ids(first)[0]
    again = [span.to_json() for span in sent_of(store) if ids(span)[0] == ids(fork)[0]]
    assert again == [span.to_json() for span in spans]


def test_a_fork_with_another_result_and_one_of_a_fork_are_traced_too():
    model = ScriptedModel(ToolUse("c1", "look", {"what": "b"}), "one", "two", "three")
    store = MemoryStore()
    with Runtime([managing], models=model, store=store) as runtime:
        top = runtime.invoke(managing)
        top.result()
        looked = runtime.get_view(top.id).children[0].children[0]
        second = runtime.fork(looked.id, edit=Edit(result="nothing"))
        assert second.result(PATIENCE) == "two"
        third = runtime.fork(runtime.get_view(second.id).children[0].id, at=1)
        assert third.result(PATIENCE) == "three"
    spans = sent_of(store)
    tops = [span for span in spans if span.name == "manage"]
    below = {"execute_tool look": {}, "chat scripted": {}}

    assert shapes(spans)[1:] == [{"manage": {"invoke_agent work": below}}] * 2
    assert [[link.context.span_id for link in span.links] for span in tops] == [
        [],
        [ids(tops[0])[1]],
        [ids(tops[1])[1]],
    ]


def test_what_the_fork_of_a_fork_shares_is_traced_with_the_first():
    step = CodeFunction(name="step", callable=lambda ctx, n: n)

    async def walk(ctx: RunContext) -> None:
        for n in range(3):
            await ctx.invoke(step, {"n": n})

    walks, store = CodeFunction(name="walk", callable=walk, uses=[step]), MemoryStore()
    with Runtime([walks], store=store) as runtime:
        node = runtime.invoke(walks)
        for n in (1, 2):
            node.result(PATIENCE)
            node = runtime.fork(runtime.get_view(node.id).children[n].id)

    assert shapes(sent_of(store)) == [
        {"walk": {"step": {}, "step'": {}, "step''": {}}},
        {"walk": {"step": {}, "step'": {}}},
        {"walk": {"step": {}}},
    ]


def test_a_failed_run_that_is_resumed_is_a_trace_that_links_to_the_failed_one():
    model = ScriptedModel(ScriptedFailure(500, "down"), "done")
    store = MemoryStore()
    with Runtime([managing], models=model, store=store) as runtime:
        top = runtime.invoke(managing)
        with pytest.raises(ModelProviderException):
            top.result(PATIENCE)
        assert runtime.resume(top.id).result(PATIENCE) == "done"
    spans = sent_of(store)
    failed, resumed = [span for span in spans if span.name == "manage"]

    assert shapes(spans) == [{"manage": {"invoke_agent work": {"chat scripted": {}}}}] * 2
    assert failed.status.status_code is StatusCode.ERROR
    assert [link.context.span_id for link in resumed.links] == [ids(failed)[1]]


class Odd:
    """Has no JSON form."""


def odd_functions() -> tuple[CodeFunction, Callable[[], int]]:
    calls: list[int] = []

    async def make(ctx: RunContext) -> Any:
        """Make something that cannot be written down."""
        calls.append(1)
        return Odd()

    making = CodeFunction(callable=make)

    async def use(ctx: RunContext) -> str:
        """Use it."""
        made = await ctx.invoke(making)
        return f"{type(made).__name__} {await ctx.ask('Go on?')}"

    return CodeFunction(callable=use, uses=[making]), lambda: len(calls)


def test_a_call_that_is_made_once_more_has_a_second_span_that_links_to_the_first():
    using, calls = odd_functions()
    store = MemoryStore()
    with Runtime([using], store=store) as runtime:
        runtime.invoke(using)
        wait_until(lambda: bool(runtime.questions()))
        runtime.close()
    with (
        Runtime([using], store=store) as runtime,
        traced(runtime) as exporter,
    ):
        [node] = runtime.recover()
        for kind, answer in (QuestionKind.Human, "yes"), (QuestionKind.InDoubt, "retry"):
            answer_when_asked(runtime, kind, answer)
        assert node.result(PATIENCE) == "Odd yes"
    assert calls() == 2
    spans = sent_of(store)
    first, second = [span for span in spans if span.name == "make"]

    assert shapes(spans) == [{"use": {"make": {}, "make'": {}}}]
    assert [link.context.span_id for link in second.links] == [ids(first)[1]]
    assert [name for name, _ in happenings(second)][-2:] == ["treefold.answer", "treefold.resumed"]
    assert [span.to_json() for span in exporter.get_finished_spans()] == [
        span.to_json() for span in spans if span is not first
    ]


def test_a_tree_that_was_deleted_is_not_missed():
    store = MemoryStore()
    with (
        Runtime([looking], store=store) as runtime,
        traced(store) as exporter,
    ):
        node = runtime.invoke(looking, {"what": "b"})
        node.result()
        wait_until(lambda: len(exporter.get_finished_spans()) == 1)
        runtime.delete(node.id)
        runtime.invoke(looking, {"what": "c"}).result()

    assert [span.name for span in exporter.get_finished_spans()] == ["look", "look"]


def test_a_tree_that_is_deleted_while_it_is_listed_does_not_end_the_tracing(
    caplog: pytest.LogCaptureFixture,
):
    class Vanishing(MemoryStore):
        def trees(self, **page: Any) -> list[TreeRow]:
            rows = super().trees(**page)
            for row in rows:
                if not row.open and row.id == 1:
                    self.delete(1)
            return rows

    store = Vanishing()
    with Runtime([looking], store=store) as runtime:
        runtime.invoke(looking, {"what": "b"}).result()
        runtime.invoke(looking, {"what": "c"}).result()
        assert [span.name for span in sent_of(store)] == ["look"]
    assert caplog.text == ""


def test_a_runtime_without_a_journal_is_told_how_to_get_one():
    with Runtime([looking]) as runtime, pytest.raises(UsageError, match="MemoryStore"):
        otel.trace(runtime)


def test_a_journal_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(StoreError, match="there is no such file"):
        otel.trace(tmp_path / "nowhere.db")


def test_the_runtime_may_be_closed_first(tmp_path: Path):
    exporter = InMemorySpanExporter()
    with Runtime([looking], store=tmp_path / "run.db") as runtime:
        tracing = otel.trace(runtime, provider_for(exporter))
        runtime.invoke(looking, {"what": "b"}).result()
    assert tracing.close(PATIENCE)

    assert [span.name for span in exporter.get_finished_spans()] == ["look"]


def test_no_call_ends_before_it_began_if_the_clock_was_set_back(monkeypatch: pytest.MonkeyPatch):
    store, clock = MemoryStore(), time.time

    async def ask(ctx: RunContext) -> str:
        return await ctx.ask("Ready?")

    asking = CodeFunction(callable=ask, repeatable=True)
    with Runtime([asking], store=store) as runtime:
        runtime.invoke(asking)
    monkeypatch.setattr(time, "time", lambda: clock() - 3600)
    with Runtime([asking], store=store) as runtime:
        [node] = runtime.recover()
        answer_when_asked(runtime, QuestionKind.Human, "yes")
        assert node.result(PATIENCE) == "yes"
    [span] = sent_of(store)
    assert span.start_time is not None
    assert span.end_time == span.start_time
