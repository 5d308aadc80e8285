"""The workers of a test session: every test is run and reported once, whatever becomes of them."""

import os
from pathlib import Path
from subprocess import CompletedProcess

import warm_python

CONFTEST = """
import pytest
from forked_workers import ForkedWorkers

def pytest_configure(config):
    config.pluginmanager.register(ForkedWorkers(2))

@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    with open("opened", "a") as opened:
        opened.write("one\\n")
    yield tmp_path_factory.mktemp("own")
    with open("closed", "a") as closed:
        closed.write("one\\n")
"""
TEST = """
def test_first(folder):
    pass

def test_second(folder):
    pass
"""
DYING = """
import os

def test_first(folder):
    pass

def test_that_dies():
    os._exit(3)

def test_after_it(folder):
    pass
"""
FAILING = """
def test_that_fails():
    print("a word before the end")
    assert 1 == 2
"""


def run_pytest(folder: Path, *options: str, **files: str) -> CompletedProcess[str]:
    """Run the tests in *files*, whose conftest has two workers run them."""
    for name, text in {"conftest": CONFTEST, **files}.items():
        (folder / f"{name}.py").write_text(text)
    # Plugins that are installed take longer to import than all of these tests to run.
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    env = {**os.environ, **alone, "PYTHONPATH": str(Path(__file__).parent)}
    options = ("-q", "-p", "no:cacheprovider", "--rootdir", str(folder), *options)
    return warm_python.run("-m", "pytest", *options, env=env, cwd=folder)


def test_a_session_fixture_is_made_once_in_each_worker(tmp_path: Path):
    files = {f"test_{number}": TEST for number in range(8)}
    done = run_pytest(tmp_path, **files)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "16 passed" in done.stdout
    opened = (tmp_path / "opened").read_text()
    assert opened in {"one\n", "one\none\n"}
    assert (tmp_path / "closed").read_text() == opened


def test_a_worker_that_dies_costs_the_test_that_it_ran(tmp_path: Path):
    done = run_pytest(tmp_path, test_dying=DYING, test_well=TEST)
    assert done.returncode == 1
    assert "1 failed, 4 passed" in done.stdout
    assert "the process that ran it has ended with the exit code 3" in done.stdout
    assert "test_dying.py::test_that_dies" in done.stdout


def test_a_failure_is_shown_with_what_was_printed_and_the_first_can_be_the_last(tmp_path: Path):
    done = run_pytest(tmp_path, "-x", test_failing=FAILING, test_other=FAILING)
    assert done.returncode == 1
    assert "a word before the end" in done.stdout
    assert "assert 1 == 2" in done.stdout
    assert "stopping after 1 failures" in done.stdout
