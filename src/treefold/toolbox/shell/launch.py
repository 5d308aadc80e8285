"""How a shell is started: by a supervisor where the system has child subreapers, else directly."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from treefold.core.inherited_variables import inherited_variables
from treefold.toolbox.shell.processes import has_child_lists

_SUPERVISOR: Final = Path(__file__).with_name("supervisor.py")
# Variables that configure bash itself, set for another shell or for interactive use.
_BASH_VARIABLES: Final = frozenset({
    "BASHOPTS", "BASH_ENV", "BASH_XTRACEFD", "ENV", "MAILCHECK", "PROMPT_COMMAND", "PS0",
    "SHELLOPTS", "TMOUT",
})  # fmt: skip
_PYTHON_VARIABLES: Final = ("LD_LIBRARY_PATH",)  # some Python builds do not start without it


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The process to start for a shell.

    Attributes:
        command: the program with its arguments.
        env: the environment of the command.
        preamble: data to write to its standard input before anything else.
        is_supervised: whether the command is a supervisor, and the shell its child.
    """

    command: list[str]
    env: dict[str, str]
    preamble: bytes
    is_supervised: bool


def launch(shell: Sequence[str], env: Mapping[str, str], status: int) -> Launch:
    """Return how to start *shell* with *env*; a supervisor reports to descriptor *status*."""
    if not _can_supervise():
        return Launch(command=[*shell], env={**env}, preamble=b"", is_supervised=False)
    packed = b"\0".join(os.fsencode(f"{name}={value}") for name, value in env.items())
    return Launch(
        command=[sys.executable, "-I", "-S", str(_SUPERVISOR), str(status), *shell],
        env={name: os.environ[name] for name in _PYTHON_VARIABLES if name in os.environ},
        preamble=b"%010d" % len(packed) + packed,
        is_supervised=True,
    )


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a shell: what programs inherit from this process, and *given*."""
    return {
        name: value
        for name, value in (inherited_variables(os.environ) | dict(given)).items()
        if name not in _BASH_VARIABLES and not _is_function(name, value)
    }


def _is_function(name: str, value: str) -> bool:
    """Whether the variable is a function exported by another bash."""
    return name.startswith("BASH_FUNC_") or value.startswith("() {")


def _can_supervise() -> bool:
    # In a program that embeds or bundles Python, sys.executable may be that program.
    is_python = Path(sys.executable or "").name.startswith(("python", "pypy"))
    return sys.platform == "linux" and is_python and _SUPERVISOR.is_file() and has_child_lists()
