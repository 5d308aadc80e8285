"""Commands that observers post to the driver of a journal: one JSON object per message."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, cast

from treefold.core.errors import InvalidValueError
from treefold.core.events import StopCause
from treefold.core.truncation import truncated_repr


def read_command(body: str) -> dict[str, Any]:
    """Return the command in the body of a message.

    Raises:
        InvalidValueError: *body* is not a JSON object.
    """
    try:
        command: Any = json.loads(body)
    except (ValueError, RecursionError):
        command = None
    if not isinstance(command, dict):
        raise InvalidValueError(f"a command must be a JSON object, got {truncated_repr(body, 100)}")
    return cast("dict[str, Any]", command)


def write_command(command: Mapping[str, Any], what: str) -> str:
    """Return the body of a message with *command*.

    Raises:
        InvalidValueError: *command* has a value without a JSON form; the message names *what*.
    """
    try:
        return json.dumps(command)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValueError(f"{what} has to be JSON: {error}") from error


def cause_of(command: Mapping[str, Any]) -> StopCause:
    """Return why a command cancels a call: a caller on another worker may have abandoned it."""
    is_abandoned = command.get("cause") == StopCause.Abandoned
    return StopCause.Abandoned if is_abandoned else StopCause.Cancelled


def refusal_of(key: str, error: Exception) -> str:
    """Return the broadcast by which a driver reports that it refused the command with *key*."""
    return json.dumps({"refused": key, "why": str(error)})


def refusals_in(lines: Iterable[str]) -> dict[str, str]:
    """Return the refused commands in the broadcasts of a driver: their keys, and why."""
    found: dict[str, str] = {}
    for line in lines:
        with suppress(InvalidValueError):
            match read_command(line):
                case {"refused": str(key), "why": str(why)}:
                    found[key] = why
                case _:
                    pass
    return found
