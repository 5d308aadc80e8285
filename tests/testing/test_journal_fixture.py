"""The fixture in a real run of pytest, on a journal and on an exported tree."""

import os
from pathlib import Path

import pytest

import warm_python
from treefold import MemoryStore, Runtime, SqliteStore, agent
from treefold.stores import export_tree
from treefold.testing import ScriptedModel, replay

AGENTS = """\
from treefold import agent

@agent(system="{system}")
def greet(name: str) -> str:
    return f"Greet {{name}}."
"""
TESTS = """\
from agents import greet

from treefold.testing import journal_fixture

greeting = journal_fixture("{file}", [greet])


def test_the_greeting_has_not_changed(greeting):
    greeting.check()
    assert greeting.output == "Hi, Ada!"
"""
RECORD = """\
from agents import greet

from treefold import Runtime
from treefold.testing import ScriptedModel

with Runtime([greet], models=ScriptedModel("Hi, Ada!"), store="run.db") as runtime:
    runtime.invoke(greet, {"name": "Ada"}).result()
"""


def run(folder: Path, *command: str) -> str:
    env = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # the fixture is not one of a plugin
    done = warm_python.run(*command, cwd=folder, env=env)
    return done.stdout + done.stderr


@pytest.mark.parametrize("file", ["run.db", "greeting.jsonl"])
def test_a_test_with_a_recorded_tree_passes_until_something_changes(tmp_path: Path, file: str):
    (tmp_path / "agents.py").write_text(AGENTS.format(system="Be polite."))
    (tmp_path / "test_greeting.py").write_text(TESTS.format(file=file))
    assert run(tmp_path, "-c", RECORD) == ""
    with SqliteStore(tmp_path / "run.db") as store:
        export_tree(store, store.trees()[0].id, tmp_path / "greeting.jsonl")

    pytest_run = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert "1 passed" in run(tmp_path.parent, *pytest_run, str(tmp_path))

    (tmp_path / "agents.py").write_text(AGENTS.format(system="Be very polite."))
    said = run(tmp_path, *pytest_run)
    assert "1 failed" in said
    assert "AssertionError: a system prompt that differs: greet (run 1)" in said
    assert "-Be polite." in said
    assert "+Be very polite." in said


def test_an_exported_tree_can_be_replayed_as_the_journal_can(tmp_path: Path):
    @agent
    def greet(name: str) -> str:
        return f"Greet {name}."

    store = MemoryStore()
    with Runtime([greet], models=ScriptedModel("Hi, Ada!", "Hi, Bo!"), store=store) as runtime:
        first = runtime.invoke(greet, {"name": "Ada"})
        first.result()
        runtime.invoke(greet, {"name": "Bo"}).result()
    export_tree(store, first.id, tmp_path / "greeting.jsonl")

    again = replay([greet], tmp_path / "greeting.jsonl")
    assert (again.divergence, again.output) == (None, "Hi, Ada!")


def test_whoever_does_not_test_needs_no_pytest(tmp_path: Path):
    code = "import sys, treefold.testing; print('pytest' in sys.modules)"
    assert run(tmp_path, "-c", code) == "False\n"
