"""Shell completion, in a real shell."""

import subprocess
from pathlib import Path

import pytest

from treefold.cli import main, parser_of
from treefold.cli.commands import COMMANDS

# what bash does when Tab is pressed: it sets these and calls the function
TAB = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
_treefold treefold "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
[ ${#COMPREPLY[@]} -eq 0 ] || printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", "bash"]) == 0
    path = tmp_path / "treefold.bash"
    path.write_text(capsys.readouterr().out)
    return path


def completed(script: Path, *words: str) -> list[str]:
    done = subprocess.run(
        ["bash", "-u", "-c", TAB, "bash", str(script), "treefold", *words],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def options_of(name: str) -> list[str]:
    parser = parser_of(COMMANDS[name])
    return list(parser._option_string_actions)  # pyright: ignore[reportPrivateUsage]


def test_bash_completes_commands(script: Path):
    assert completed(script, "") == list(COMMANDS)
    assert completed(script, "tr") == ["tree", "transcript"]
    assert completed(script, "--v") == ["--version"]


@pytest.mark.parametrize("name", COMMANDS)
def test_bash_completes_the_options_of_every_command(script: Path, name: str):
    assert completed(script, name, "-") == options_of(name)
    assert "--help" in completed(script, name, "--h")


def test_bash_completes_values_and_leaves_files_to_itself(script: Path):
    assert completed(script, "flame", "--by", "") == ["time", "tokens", "money"]
    assert completed(script, "flame", "last", "--by", "t") == ["time", "tokens"]
    assert completed(script, "local", "") == ["fetch", "path"]
    assert completed(script, "completion", "z") == ["zsh"]
    assert completed(script, "tree", "la") == ["last"]
    assert completed(script, "ps", "--store", "") == []
    assert completed(script, "run", "") == []
    assert completed(script, "nothing", "") == []
    registered = subprocess.run(
        ["bash", "-c", 'source "$1"; complete -p treefold', "bash", str(script)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert registered.stdout == "complete -o default -F _treefold treefold\n"  # default: files


@pytest.mark.parametrize("shell", ["fish", "zsh"])
def test_other_shells_are_told_the_same_commands_and_options(
    shell: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["completion", shell]) == 0
    shown = capsys.readouterr().out
    for command in COMMANDS.values():
        about = [line for line in shown.splitlines() if command.name in line]
        assert any(command.help in line for line in about)
        for name in options_of(command.name):
            in_fish = f"-l {name[2:]} " if name.startswith("--") else f"-s {name[1:]} "
            assert any((in_fish if shell == "fish" else name) in line for line in about)


def test_there_is_none_for_other_shells(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        main(["completion", "cmd"])
    assert end.value.code == 2
    assert "invalid choice: 'cmd'" in capsys.readouterr().err
