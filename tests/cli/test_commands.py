"""The ``treefold`` command before any subcommand."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from treefold.cli import exit_codes, main
from treefold.cli.commands import COMMANDS, GROUPS

Capture = pytest.CaptureFixture[str]


def help_of(name: str, capsys: Capture) -> str:
    assert main([name, "--help"]) == 0
    return capsys.readouterr().out


def test_the_help_lists_every_command_in_its_group(capsys: Capture):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for title, group in GROUPS.items():
        listed = shown.split(f"\n{title}:\n")[1].split("\n\n")[0].splitlines()
        expected = [[name, help] for name, (_, help) in group.items()]
        assert [line.split(maxsplit=1) for line in listed] == expected


@pytest.mark.parametrize("name", COMMANDS)
def test_the_short_option_for_help_is_the_same(name: str, capsys: Capture):
    shown = help_of(name, capsys)
    assert main([name, "-h"]) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_fits_on_a_screen(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
):
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, help_of(name, capsys).splitlines())) <= 100


def test_the_help_loads_no_command():
    script = (
        "import sys\n"
        "from treefold.cli import main\n"
        "main(['--help'])\n"
        "names = [name for name in sys.modules if name.startswith('treefold.cli.')]\n"
        "print(names, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert (
        done.stderr
        == "['treefold.cli.log_output', 'treefold.cli.commands', 'treefold.cli.exit_codes']\n"
    )


def test_an_unknown_command_is_exit_code_2_and_the_nearest_is_named(
    capsys: Capture,
):
    usage = "Usage: treefold [OPTIONS] COMMAND [ARGS]...\n"
    for given, said in [
        (["lokal"], "there is no command 'lokal'; did you mean 'local'?"),
        (["zzz\x1b"], "there is no command 'zzz\\x1b'; 'treefold --help' lists them"),
        ([], "give a command; 'treefold --help' lists them"),
        ([""], "give a command; 'treefold --help' lists them"),
    ]:
        assert main(given) == 2
        assert capsys.readouterr().err == f"{usage}treefold: {said}\nTry 'treefold --help'.\n"


def test_an_unknown_option_is_exit_code_2_and_the_nearest_is_named(capsys: Capture):
    for given, said in [
        (["ps", "--stor", "x"], "No such option '--stor'."),
        (["--verison"], "No such option '--verison'."),
        (["tree", "1", "2"], "Got unexpected extra argument (2)"),
        (["ps", "--store"], "Option '--store' requires an argument."),
    ]:
        assert main(given) == 2
        shown = capsys.readouterr()
        assert (shown.out, said in shown.err) == ("", True)
        assert ("--store" in shown.err) == (given[0] == "ps")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_what_it_does_by_example_and_what_its_exit_codes_mean(
    name: str, capsys: Capture
):
    shown = help_of(name, capsys)
    assert shown.startswith(f"Usage: treefold {name} ")
    assert f"\nexample: treefold {name} " in shown or f"\nexample: treefold {name}\n" in shown
    assert "\nexit codes: 0 " in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_the_module_of_a_command_says_its_name(name: str):
    module = import_module(f"treefold.cli.{COMMANDS[name][0]}")
    assert f"``treefold {name}``" in str(module.__doc__)


@pytest.mark.parametrize("args", [["--help"], ["local", "--help"]])
def test_a_reader_that_closes_the_pipe_is_not_an_error(args: list[str]):
    with subprocess.Popen(
        [sys.executable, "-m", "treefold", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()  # before it has anything to say
        _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (0, "")


def test_what_cannot_be_written_is_said_in_a_sentence():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "treefold", "completion", "bash"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    said = "treefold: the output cannot be written (No space left on device)\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_a_closed_stdout_is_no_trouble():
    line = f"{sys.executable} -m treefold completion bash >&-"
    done = subprocess.run(["bash", "-c", line], stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


GUIDE = Path(__file__).parent.parent.parent / "docs" / "operate" / "command-line.md"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_guide_names_every_command_as_the_help_does(name: str):
    assert f"\n| `{name}` | {COMMANDS[name][1]} |\n" in GUIDE.read_text("utf-8")


def test_the_guide_has_every_exit_code():
    codes = sorted(value for name, value in vars(exit_codes).items() if name.isupper())
    listed = GUIDE.read_text("utf-8").split("## Exit codes")[1].split("##")[0]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", listed, re.MULTILINE)] == codes
