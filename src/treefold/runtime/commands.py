"""What other processes ask of whoever drives a journal: one JSON object to a message."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, cast

from treefold.core.errors import InvalidValueError
from treefold.core.forking import UNCHANGED, Edit
from treefold.core.frames import shortened


def read_command(body: str) -> dict[str, Any]:
    """Return what a message asks for.

    Raises:
        InvalidValueError: it is none of ours.
    """
    try:
        command: Any = json.loads(body)
    except (ValueError, RecursionError):
        command = None
    if not isinstance(command, dict):
        raise InvalidValueError(f"{shortened(body, 100)} is no message of ours")
    return cast("dict[str, Any]", command)


def write_command(command: Mapping[str, Any], what: str) -> str:
    """Return a message that asks for something.

    Raises:
        InvalidValueError: there is something in it that JSON cannot say; *what* is named.
    """
    try:
        return json.dumps(command)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValueError(f"{what} has to be JSON: {error}") from error


def edit_as_data(edit: Edit | None) -> dict[str, Any]:
    """Return what is different in a fork, as a message says it."""
    edit = edit or Edit()
    said = {"prompt": edit.prompt, "model": edit.model, "args": edit.args}
    data = {name: value for name, value in said.items() if value is not None}
    return data if edit.result is UNCHANGED else data | {"result": edit.result}


def edit_of(data: Mapping[str, Any]) -> Edit:
    """Return what a message says is different in a fork.

    Raises:
        InvalidValueError: it says something else.
    """
    try:
        return Edit(**data)
    except TypeError as error:
        raise InvalidValueError(f"{shortened(data, 100)} is no edit of a fork") from error


def refusal_of(key: str, error: Exception) -> str:
    """Return what a driver tells those who look on of a command that it does not follow."""
    return json.dumps({"refused": key, "why": str(error)})


def refusals_in(lines: Iterable[str]) -> dict[str, str]:
    """Return which wishes a driver does not follow, and why, of what it has told."""
    found: dict[str, str] = {}
    for line in lines:
        with suppress(InvalidValueError):
            match read_command(line):
                case {"refused": str(key), "why": str(why)}:
                    found[key] = why
                case _:
                    pass
    return found
