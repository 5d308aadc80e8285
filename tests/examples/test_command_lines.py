"""What a person sees who starts an example without a model that can do it."""

import os
import subprocess
from pathlib import Path

import pytest

import warm_python

ROOT = Path(__file__).parent.parent.parent
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")
EXAMPLES = pytest.mark.parametrize("name", ["find_and_fix", "research", "review_queue"])


def start(name: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key not in KEYS} | variables
    return warm_python.run(f"examples/{name}.py", *options, cwd=ROOT, env=environment)


@EXAMPLES
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--model", "nobody"], "no provider is called 'nobody'; write 'anthropic:MODEL', "),
        (["--model", "openai:gpt-5"], "openai:gpt-5 needs a key: set OPENAI_API_KEY"),
        (["--model", "local:nowhere.gguf"], "nowhere.gguf cannot be read"),
    ],
)
def test_a_model_that_is_not_there_is_exit_code_1_and_a_sentence_that_names_it(
    name: str, options: list[str], sentence: str
):
    done = start(name, *options)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{name}: ")
    assert sentence in done.stderr
    assert 'File "' not in done.stderr


@EXAMPLES
def test_a_model_has_to_be_named_and_to_call_functions(name: str):
    done = start(name, TREEFOLD_MODEL="")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{name}: no model is named: give one, or set TREEFOLD_MODEL\n"
    done = start(name, TREEFOLD_MODEL="local")
    assert (done.returncode, done.stdout) == (1, "")
    assert "local cannot call functions, and this uses " in done.stderr


@EXAMPLES
def test_a_folder_that_is_not_there_is_a_fault_of_the_command_line(name: str, tmp_path: Path):
    option = "--project" if name == "find_and_fix" else "--folder"
    done = start(name, option, str(tmp_path / "nowhere"))
    assert done.returncode == 2
    assert "there is no " in done.stderr.splitlines()[-1]


@EXAMPLES
def test_help_says_what_it_does(name: str):
    done = start(name, "--help")
    assert done.returncode == 0
    assert "--model" in done.stdout
