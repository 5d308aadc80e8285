"""Shell completion: what is proposed, and the script in a real shell."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from treefold.cli import main
from treefold.cli.commands import COMMANDS, COMPLETION_VARIABLE, load_command

Complete = Callable[..., list[str]]

# what bash does when Tab is pressed: it sets these and calls the function
TAB = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_treefold_completion treefold
[ ${#COMPREPLY[@]} -eq 0 ] || printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Complete:
    """Returns the lines that a shell is given for words; the last of them is incomplete."""

    def complete(*words: str, shell: str = "bash") -> list[str]:
        monkeypatch.setenv(COMPLETION_VARIABLE, f"{shell}_complete")
        line = " ".join(["treefold", *words])
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", words[-1] if shell == "fish" else str(len(words)))
        assert main([]) == 0
        monkeypatch.delenv(COMPLETION_VARIABLE)
        return capsys.readouterr().out.splitlines()

    return complete


def plain(*words: str) -> list[str]:
    return [f"plain,{word}" for word in words]


def options_of(name: str) -> list[click.Option]:
    command = load_command(name)
    parameters = command.get_params(click.Context(command, help_option_names=["-h", "--help"]))
    return [one for one in parameters if isinstance(one, click.Option)]


def test_commands_are_completed_and_none_is_loaded(completed: Complete):
    assert completed("") == plain(*COMMANDS)
    assert completed("tr") == plain("tree", "transcript")
    assert completed("--v") == plain("--verbose", "--version")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_options_of_every_command_are_completed(completed: Complete, name: str):
    names = [name for option in options_of(name) for name in option.opts]
    assert completed(name, "-") == plain(*names)
    assert "plain,--help" in completed(name, "--h")


def test_values_are_completed_and_files_are_left_to_the_shell(completed: Complete):
    assert completed("flame", "--by", "") == plain("time", "tokens", "money")
    assert completed("flame", "last", "--by", "t") == plain("time", "tokens")
    assert completed("local", "") == plain("list", "fetch", "path")
    assert completed("local", "fetch", "s") == plain("smollm2-135m")
    assert completed("completion", "z") == plain("zsh")
    assert completed("tree", "la") == plain("last")
    assert completed("ps", "--store", "ru") == ["file,ru"]
    assert completed("run", "exa") == ["file,exa"]
    assert completed("nothing", "") == [""]


@pytest.mark.parametrize("shell", ["fish", "zsh"])
def test_other_shells_get_the_same_commands_and_options_with_their_help(
    completed: Complete, shell: str
):
    shown = "\n".join(completed("", shell=shell))
    for name, (_, help) in COMMANDS.items():
        assert name in shown
        assert help in shown
    for name in COMMANDS:
        shown = "\n".join(completed(name, "--", shell=shell))
        for option in options_of(name):
            assert option.opts[-1] in shown


def test_the_script_works_in_bash(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "treefold.bash"
    script.write_text(capsys.readouterr().out)
    command = tmp_path / "bin" / "treefold"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m treefold "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    for words, expected in [
        (["tr"], ["tree", "transcript"]),
        (["flame", "--by", "t"], ["time", "tokens"]),
    ]:
        done = subprocess.run(
            ["bash", "-u", "-c", TAB, "bash", str(script), "treefold", *words],
            capture_output=True,
            env=os.environ | {"PATH": path},
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr, done.stdout.split()) == (0, "", expected)


@pytest.mark.parametrize("shell", ["fish", "zsh"])
def test_the_scripts_of_other_shells_ask_the_command(
    shell: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["completion", shell]) == 0
    assert f"{COMPLETION_VARIABLE}={shell}_complete" in capsys.readouterr().out


def test_there_is_none_for_other_shells(capsys: pytest.CaptureFixture[str]):
    assert main(["completion", "cmd"]) == 2
    assert "'cmd' is not one of 'bash', 'fish', 'zsh'" in capsys.readouterr().err
