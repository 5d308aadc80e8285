"""The budget of a runtime that is gone is one account for a run and its forks."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from crash.nursery import Nursery
from guards.guarded import model_for, plan, violations
from guards.program import until_it_rests
from treefold import AgentFunction, Budget, CodeFunction, Edit, RunContext, Runtime, ToolUse
from treefold.testing import ScriptedModel


async def _wait(ctx: RunContext) -> str:
    return await ctx.ask(str, "May it go on?")


look = CodeFunction(name="look", desc="Look.", callable=lambda ctx: "nothing", repeatable=True)
wait = CodeFunction(name="wait", desc="Wait.", callable=_wait, repeatable=True)
job = AgentFunction("job", "Work.", user_prompt_template="Work.", uses=[look, wait])


class Requests:
    """Counts requests; each is answered by a call: the second of a run waits for a person."""

    def __init__(self) -> None:
        self.made = 0
        self.model = ScriptedModel(self._reply)

    def _reply(self, request: Any) -> Any:
        self.made += 1
        calls = sum(isinstance(part, ToolUse) for part in request.transcript)
        return [ToolUse(f"{calls}", "wait" if calls == 1 else "look", {})]


def begin(store: Any, requests: Requests, budget: Budget, function: AgentFunction = job) -> int:
    """Start a run that waits for a person after two requests; then the runtime is gone."""
    with Runtime([function], models=requests.model, store=store, budget=budget) as runtime:
        node = runtime.invoke(function)
        until_it_rests(runtime)
        runtime.close()
    return node.id


def go_on(runtime: Runtime, run: int) -> None:
    """Let a run continue until its budget is used up, if it has one."""
    until_it_rests(runtime)
    calls = {one.id for one in runtime.get_subtree(run)}
    for question in runtime.questions():
        if question.node_id in calls:
            runtime.answer(question.id, "yes")
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if runtime.get_view(run).state.final:
            return
        time.sleep(0.01)
    raise AssertionError("the run does not end")


def continued(store: Any, requests: Requests, ways: Sequence[str]) -> None:
    """Continue the first run, and forks, each in a process without a budget."""
    for way in ways:
        with Runtime([job], models=requests.model, store=store) as runtime:
            until_it_rests(runtime)
            if way == "fork":
                forked = runtime.fork(1, at=1, edit=Edit(system="Again."))
                go_on(runtime, forked.id)
            else:
                go_on(runtime, int(way))
            runtime.close()


@pytest.mark.parametrize(
    "ways",
    [["fork", "1"], ["1", "fork"], ["fork", "fork", "1"]],
    ids=" then ".join,
)
@pytest.mark.parametrize("name", [None, "june"])
def test_a_run_and_its_forks_spend_a_budget_once(tmp_path: Path, ways: list[str], name: str | None):
    requests = Requests()
    begin(tmp_path / "run.db", requests, Budget(calls=6, name=name))
    continued(tmp_path / "run.db", requests, ways)
    assert requests.made == 6


def test_runtimes_with_equal_budgets_have_an_account_each(tmp_path: Path):
    requests, runs = Requests(), list[int]()
    other = AgentFunction("other", "Work.", user_prompt_template="Work.", uses=[look, wait])
    for one in (job, other):
        runs.append(begin(tmp_path / "run.db", requests, Budget(calls=3), function=one))
    with Runtime([job, other], models=requests.model, store=tmp_path / "run.db") as runtime:
        for run in runs:
            go_on(runtime, run)
    assert requests.made == 6


def test_what_a_fork_spends_without_the_budget_is_not_missing_from_it(tmp_path: Path):
    requests = Requests()
    begin(tmp_path / "run.db", requests, Budget(calls=4))
    with Runtime([job], models=requests.model, store=tmp_path / "run.db") as runtime:
        forked = runtime.fork(1, at=1, edit=Edit(system="Again."), without=["budget"])
        until_it_rests(runtime)
        assert requests.made == 3
        runtime.cancel(forked.id)
        until_it_rests(runtime)
        runtime.close()
    continued(tmp_path / "run.db", requests, ["1"])
    assert requests.made == 5


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery(tmp_path_factory.mktemp("nursery"), "guards.program") as nursery:
        yield nursery


@pytest.mark.parametrize("commit", [2, 5])
def test_a_killed_run_and_its_fork_spend_a_budget_once(
    nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit: int
):
    monkeypatch.setenv("GUARDED", str(tmp_path))
    assert nursery.live("a program", str(tmp_path), "budget", f"after:{commit}").status < 0
    with Runtime([plan], models=model_for("budget"), store=tmp_path / "run.db") as runtime:
        runtime.fork(1, edit=Edit(system="Again."))
        until_it_rests(runtime)
    assert violations(tmp_path, deaths=1) == ""


@pytest.mark.parametrize("commit", ["after:1", "before:2"])
def test_what_a_key_goes_on_with_counts_when_the_process_that_used_it_is_killed(
    nursery: Nursery, tmp_path: Path, commit: str
):
    lives = [("a program", ""), ("treefold run of the program", commit), ("another program", "")]
    deaths = sum(nursery.live(way, str(tmp_path), "budget", kill).status < 0 for way, kill in lives)
    assert (deaths, violations(tmp_path, deaths)) == (1, "")
