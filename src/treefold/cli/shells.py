"""Completion scripts, each as its shell wants it."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

FILE: Final = "FILE"  # the value of an option that is the path of a file


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of a command.

    Attributes:
        value: what its value is called, None if it has none.
        words: the values there are, if they are few.
    """

    names: tuple[str, ...]
    help: str
    value: str | None
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Completed:
    """A command, and what may follow it.

    Attributes:
        words: arguments that are always the same.
        takes_more: whether it takes arguments at all.
    """

    name: str
    help: str
    options: tuple[Option, ...]
    words: tuple[str, ...]
    takes_more: bool


def bash(commands: Sequence[Completed]) -> str:
    """Return the script for bash, also for the old one of macOS."""
    names = " ".join(command.name for command in commands)
    values = "\n".join(
        f"        {_either(f'{command.name} {name}' for name in option.names)})"
        f" words='{' '.join(option.words)}' ;;"
        for command in commands
        for option in command.options
        if option.value is not None
    )
    followers = "\n".join(
        f"        '{command.name} '*)"
        f" words='{' '.join(command.words if command.takes_more else _names(command))}'"
        f" options='{' '.join(_names(command))}' ;;"
        for command in commands
    )
    return f"""\
_treefold() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" words= options=
    local place="${{COMP_WORDS[1]}} ${{COMP_WORDS[COMP_CWORD - 1]}}"
    [ "$COMP_CWORD" -gt 1 ] || place=
    case "$place" in
        '') words='{names}' options='--help --version' ;;
{values}
{followers}
    esac
    case "$word" in -*) words="$options" ;; esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _treefold treefold
"""


def zsh(commands: Sequence[Completed]) -> str:
    """Return the script for zsh, to be sourced or put into a folder of functions."""
    listed = "\n".join(
        f"        {_quoted(f'{command.name}:{command.help}')}" for command in commands
    )
    followers = "\n".join(
        f"        {command.name}) _arguments {' '.join(_zsh_arguments(command))} ;;"
        for command in commands
    )
    return f"""\
#compdef treefold
_treefold() {{
    local -a commands=(
{listed}
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    shift words
    (( CURRENT-- ))
    case "$words[1]" in
{followers}
    esac
}}
if [ "$funcstack[1]" = _treefold ]; then
    _treefold "$@"
else
    compdef _treefold treefold
fi
"""


def _zsh_arguments(command: Completed) -> list[str]:
    found: list[str] = []
    for option in command.options:
        told = option.help.translate(str.maketrans({"[": "\\[", "]": "\\]", ":": "\\:"}))
        named = re.sub(r"\W+", " ", option.value or "").strip()
        value = f":{named}:{_zsh_values(option)}" if named else ""
        found.extend(_quoted(f"*{name}[{told}]{value}") for name in option.names)
    argument = f"*:argument:({' '.join(command.words)})" if command.words else "*:argument:_files"
    return [*found, _quoted(argument)]


def _zsh_values(option: Option) -> str:
    if option.words:
        return f"({' '.join(option.words)})"
    return "_files" if option.value == FILE else ""


def fish(commands: Sequence[Completed]) -> str:
    """Return the script for fish."""
    start = "complete -c treefold -f -n __fish_use_subcommand -a"
    lines = [f"{start} {command.name} -d {_quoted(command.help)}" for command in commands]
    for command in commands:
        start = f"complete -c treefold -n '__fish_seen_subcommand_from {command.name}'"
        if command.words:
            lines.append(f"{start} -f -a {_quoted(' '.join(command.words))}")
        lines += [f"{start} {_fish_option(option)}" for option in command.options]
    return "\n".join([*lines, ""])


def _fish_option(option: Option) -> str:
    names = " ".join(
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
    )
    value = ""
    if option.words:
        value = f" -x -a {_quoted(' '.join(option.words))}"
    elif option.value is not None:
        value = " -r -F" if option.value == FILE else " -x"
    return f"{names}{value} -d {_quoted(option.help)}"


def _names(command: Completed) -> list[str]:
    return [name for option in command.options for name in option.names]


def _either(patterns: Iterable[str]) -> str:
    return "|".join(f"'{pattern}'" for pattern in patterns)


def _quoted(text: str) -> str:
    """Return *text* as one word of any of these shells."""
    return "'" + text.replace("'", "'\"'\"'") + "'"


SCRIPTS: Final[Mapping[str, Callable[[Sequence[Completed]], str]]] = {
    "bash": bash,
    "zsh": zsh,
    "fish": fish,
}
