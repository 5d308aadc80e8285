"""``treefold init`` writes a project that runs, and whose test passes, with nothing but Python."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import warm_python
from command_results import PATIENCE, Done, environment, treefold

SMALLEST = "local:qwen2.5-coder-1.5b"  # the smallest local model that calls functions
NOWHERE = "http://127.0.0.1:9"  # no server listens there
WRITTEN = [
    ".gitignore", "Makefile", "README.md", "agent.py", "notes/ferns.txt", "notes/moss.txt",
    "pyproject.toml", "script.json", "tests/recorded.jsonl", "tests/test_agent.py",
]  # fmt: skip


def offline(home: Path) -> dict[str, str]:
    """What a new user finds: an empty home, no keys, and no network."""
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), NOWHERE)
    return environment(HOME=str(home), **proxies)


def files(folder: Path) -> list[str]:
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(map(str, found))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def made(home: Path) -> Done:
    """What is said when a project is made in an empty home."""
    return treefold("init", "hello", cwd=home, env={"HOME": str(home), "PATH": "/nowhere"})


@pytest.fixture
def project(made: Done, home: Path, tmp_path: Path) -> Path:
    """A copy of the project that was made."""
    assert made.code == 0
    return shutil.copytree(home / "hello", tmp_path / "copy")


def make(project: Path, *args: str) -> Done:
    command = ["make", "--silent", f"PYTHON={sys.executable}", *args]
    env = offline(project.parent)
    del env["PYTHONPATH"]
    done = subprocess.run(
        command, cwd=project, env=env, capture_output=True, text=True, timeout=PATIENCE
    )
    return Done(done.returncode, done.stdout, done.stderr)


def test_it_says_what_it_wrote_and_what_to_do_next(made: Done, home: Path):
    assert (made.code, made.err) == (0, "")
    assert files(home) == [f"hello/{place}" for place in WRITTEN]
    wrote, _, rest = made.out.partition("\n\n")
    assert wrote.splitlines() == [f"wrote hello/{place}" for place in WRITTEN]
    assert rest == (
        "next:\n"
        "  cd hello\n"
        f"  make run PYTHON={sys.executable}\n"
        f"  make test PYTHON={sys.executable}    # needs pytest, and neither a key nor a network\n"
        "\n"
        "No key was found, so script.json stands in for a model. With one, such as: make run"
        f" PYTHON={sys.executable} MODEL=anthropic\n"
    )


def test_the_project_runs_and_its_test_passes(project: Path):
    done = make(project, "run")
    assert (done.code, done.out) == (
        0,
        "Answer(text='Moss needs shade and a place that stays damp.', sources=['moss.txt'])\n",
    )
    assert "✓ 1.1 search_notes(word='moss') →" in done.err
    done = make(project, "test")
    assert (done.code, "2 passed" in done.out) == (0, True), done


def test_its_test_fails_when_the_agent_has_changed_until_a_run_is_recorded(project: Path):
    agent = project / "agent.py"
    agent.write_text(agent.read_text("utf-8").replace("Search them first", "Search them"), "utf-8")
    tests = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    done = warm_python.run(*tests, cwd=project, env=offline(project))
    assert done.returncode == 1
    assert "a system prompt that differs: answer" in done.stdout
    assert make(project, "record").code == 0
    done = warm_python.run(*tests, cwd=project, env=offline(project))
    assert (done.returncode, "2 passed" in done.stdout) == (0, True), done.stdout
    assert not list(project.glob("recording.db*"))


def test_nothing_is_overwritten(tmp_path: Path):
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_agent.py").symlink_to("nowhere")
    done = treefold("init", cwd=tmp_path)
    done.refused(". has README.md, tests/test_agent.py already, and no file is overwritten")
    assert files(tmp_path) == ["README.md"]
    treefold("init", "README.md", cwd=tmp_path).refused("README.md is not a folder")
    treefold("init", "README.md/x", cwd=tmp_path).refused("cannot be written")


@pytest.mark.parametrize(
    ("options", "env", "model", "extras"),
    [
        (["--model", "anthropic:claude-opus-5-5"], {}, "anthropic:claude-opus-5-5", "anthropic,"),
        (["--model", "ollama:qwen3"], {"OPENAI_API_KEY": "x"}, "ollama:qwen3", "openai,"),
        ([], {"TREEFOLD_MODEL": SMALLEST, "OPENAI_API_KEY": "x"}, SMALLEST, "local,"),
        ([], {"GEMINI_API_KEY": "x"}, "gemini", "gemini,"),
    ],
)
def test_the_project_is_for_the_model_that_is_there(
    tmp_path: Path, options: list[str], env: dict[str, str], model: str, extras: str
):
    done = treefold("init", *options, cwd=tmp_path, env=env)
    assert done.code == 0
    assert "  cd " not in done.out
    assert f"The agent uses {model}; the Makefile says so." in done.out
    assert f"\nMODEL ?= {model}\n" in (tmp_path / "Makefile").read_text()
    assert f'"treefold[{extras}terminal]>=' in (tmp_path / "pyproject.toml").read_text()


def test_a_model_that_cannot_call_the_tool_of_the_agent_is_refused(tmp_path: Path):
    done = treefold("init", cwd=tmp_path, env={"TREEFOLD_MODEL": "local"})
    done.refused(
        "local cannot call functions, and", f": give --model another model, such as {SMALLEST}"
    )
    treefold("init", "--model", "local:qwen", cwd=tmp_path).refused("no local model is called")
    assert files(tmp_path) == []
