"""What becomes of a guarded run when a process has its guard, or a person gives their word.

Each test counts the guarded effect in a file. ``test_table`` has those who know nothing of it.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from command_line import treefold
from crash.nursery import Nursery
from guards.guarded import approve, model_for, noted, options_of, plan, violations
from guards.program import until_it_rests
from treefold import Runtime
from treefold.errors import HeldBackError
from treefold.runtime.observe.observer import attach

HERE: Final = Path(__file__).parent
PROGRAM: Final = str(HERE / "guarded.py")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GUARDED", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery(tmp_path_factory.mktemp("nursery"), "guards.program") as nursery:
        yield nursery


def command(*args: str, folder: Path, guard: str) -> Any:
    """Run a command on the journal, as one who has the functions and nothing else."""
    model = f"scripted:{HERE / 'models.py'}:{guard}"
    option = {"run": "--model", "fork": "--default-model", "resume": "--default-model"}
    models = [option[args[0]], model] if args[0] in option else []
    env = {"GUARDED": str(folder), "PYTHONPATH": str(HERE.parent)}
    return treefold(*args, *models, "--store", "run.db", cwd=folder, env=env, said="deny\n" * 5)


# With the guard, and with a person's word


def left_open(nursery: Nursery, folder: Path, commit: int = 2) -> None:
    assert nursery.live("a program", str(folder), "hook", f"after:{commit}").status < 0


def test_a_process_that_has_the_hook_resumes_the_run_and_asks(nursery: Nursery, folder: Path):
    left_open(nursery, folder)
    assert nursery.live("another program", str(folder), "hook", "").status == 0
    with attach(folder / "run.db") as observer:
        view = observer.get_view(1)
    assert view.held_back.startswith("guarded by guards.guarded:approve, which this process")
    options = options_of("hook")
    with Runtime([plan], models=model_for("hook"), store=folder / "run.db", **options) as runtime:
        [node] = runtime.recover()
        until_it_rests(runtime)
        [question] = runtime.questions()
        assert noted(folder, "effects") == 0
        runtime.answer(question.id, "allow")
        node.result(20)
        assert runtime.get_view(node.id).held_back == ""
    assert noted(folder, "effects") == 1


def test_a_hook_may_be_given_for_recorded_runs_only(nursery: Nursery, folder: Path):
    left_open(nursery, folder)
    with Runtime(
        [plan], models=model_for("hook"), store=folder / "run.db", guards=[approve]
    ) as runtime:
        until_it_rests(runtime)
        [question] = runtime.questions()
        runtime.answer(question.id, "deny")
        runtime.invoke(plan).result(20)  # a new run, which nothing guards
    assert noted(folder, "effects") == 1


def test_a_person_may_lift_a_guard_by_name_and_that_is_recorded(nursery: Nursery, folder: Path):
    left_open(nursery, folder)
    name = "guards.guarded:approve"
    with Runtime([plan], models=model_for("hook"), store=folder / "run.db") as runtime:
        [held] = runtime.held_back()
        with pytest.raises(ValueError, match="not guarded by 'approve'; it is by guards.guarded"):
            runtime.resume(held.id, without=["approve"])
        runtime.resume(held.id, without=[name]).result(20)
        events = [one.to_json() for one in runtime.events(held.id)]
    lifted = [one for one in events if one["type"] == "GuardsLifted"]
    assert [one["names"] for one in lifted] == [[name]]
    assert noted(folder, "effects") == 1


def test_the_key_of_a_run_that_is_held_back_is_refused_in_words(folder: Path):
    store, options = folder / "run.db", options_of("hook")
    with Runtime([plan], models=model_for("hook"), store=store, **options) as runtime:
        runtime.invoke(plan, key="nightly")
        until_it_rests(runtime)
        runtime.close()
    with Runtime([plan], models=model_for("hook"), store=store) as runtime:
        [question] = runtime.questions()
        runtime.answer(question.id, "allow")  # the person's word; but what follows is guarded
        deadline = time.monotonic() + 10
        while not runtime.held_back() and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(HeldBackError, match="run 1 is held back: guarded by"):
            runtime.invoke(plan, key="nightly")


def test_the_guards_of_a_program_that_resumes_a_run_bind_it_from_then_on(
    nursery: Nursery, folder: Path
):
    store = folder / "run.db"
    assert nursery.live("a program", str(folder), "function", "after:2").status < 0
    options = options_of("hook")
    with Runtime([plan], models=model_for("hook"), store=store, **options) as runtime:
        until_it_rests(runtime)
    assert nursery.live("another program", str(folder), "hook", "").status == 0
    with attach(store) as observer:
        assert observer.get_view(1).state.value != "success"
    assert noted(folder, "effects") == 0


def test_a_changed_hook_decides_and_is_mentioned(nursery: Nursery, folder: Path):
    left_open(nursery, folder)

    async def changed(event: Any) -> None:
        """Decide otherwise than before."""

    changed.__module__, changed.__qualname__ = approve.__module__, approve.__qualname__
    hooks: Any = {"pre_tool_use": [changed]}
    store = folder / "run.db"
    with Runtime([plan], store=store, hooks=hooks, on_new_code="pin") as runtime:
        [held] = runtime.held_back()
        assert "the hook guards.guarded:approve, which guards it, has changed" in (
            runtime.get_view(held.id).held_back
        )
    with Runtime([plan], models=model_for("hook"), store=store, hooks=hooks) as runtime:
        [node] = runtime.recover()
        node.result(20)
        assert "which guards this run, has changed" in runtime.get_view(node.id).notices[0]


# The command line


def test_the_command_line_says_what_is_missing_and_takes_it(nursery: Nursery, folder: Path):
    left_open(nursery, folder)
    refused = command("resume", "1", "--with", PROGRAM, folder=folder, guard="hook")
    assert refused.returncode == 2
    assert "run 1 is held back: guarded by guards.guarded:approve" in refused.stderr
    assert "--hooks guards/guarded.py" in refused.stderr
    lifted = command(
        "resume", "1", "--with", PROGRAM, "--without", "guards.guarded:approve",
        folder=folder, guard="hook",
    )  # fmt: skip
    assert (lifted.returncode, lifted.stdout) == (0, "Done.\n")
    assert noted(folder, "effects") == 1


def test_hooks_of_the_command_line_are_found_by_the_runs_that_they_guard(
    nursery: Nursery, folder: Path
):
    left_open(nursery, folder)
    given = command(
        "resume", "1", "--with", PROGRAM, "--hooks", PROGRAM, folder=folder, guard="hook"
    )
    assert "May it write?" in given.stderr
    assert (given.returncode, noted(folder, "effects")) == (0, 0)


def test_hooks_of_the_command_line_bind_new_runs(folder: Path):
    asked = command(
        "run", f"{PROGRAM}:plan", "--hooks", f"{PROGRAM}:approve", folder=folder, guard="hook"
    )
    assert "May it write?" in asked.stderr
    assert noted(folder, "effects") == 0
    unnamed = command("run", f"{PROGRAM}:plan", "--hooks", PROGRAM, folder=folder, guard="hook")
    assert unnamed.returncode == 2
    assert "has no 'hooks' that is a dict of hooks" in unnamed.stderr


def test_a_budget_of_the_command_line_is_kept_by_who_resumes_the_run(folder: Path):
    spent = command("run", f"{PROGRAM}:plan", "--budget", "calls=2", folder=folder, guard="budget")
    assert spent.returncode == 1
    assert "2 of 2 requests" in spent.stderr
    wrong = command("run", f"{PROGRAM}:plan", "--budget", "usd", folder=folder, guard="budget")
    assert (wrong.returncode, "--budget 'usd' is none" in wrong.stderr) == (2, True)
    assert violations(folder) == ""


def test_a_runtime_of_a_program_is_run_by_its_name(folder: Path):
    (folder / "app.py").write_text(
        "from treefold import Runtime\n"
        "from guards.guarded import approve, model_for, plan\n"
        "runtime = Runtime([plan], models=model_for('hook'), store='run.db',\n"
        "                  hooks={'pre_tool_use': [approve]})\n"
    )
    env = {"GUARDED": str(folder), "PYTHONPATH": str(HERE.parent)}
    asked = treefold("run", "app.py:runtime", "plan", cwd=folder, env=env, said="deny\n")
    assert "May it write?" in asked.stderr
    assert noted(folder, "effects") == 0
    beside = treefold("run", "app.py:runtime", "plan", "--store", "x.db", cwd=folder, env=env)
    assert "app.py:runtime is a Runtime, which has that itself: leave out --store" in beside.stderr
    nothing = treefold("run", "app.py:runtime", "plans", cwd=folder, env=env)
    assert "no function 'plans'" in nothing.stderr
