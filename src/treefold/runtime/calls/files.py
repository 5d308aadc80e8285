"""Arguments whose value is the content of a file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treefold.core.errors import InvalidArgumentsError
from treefold.core.from_file import FromFile
from treefold.runtime.loops.threads import in_thread


async def read_files(args: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """Return *args* with each FromFile replaced by the text of its file.

    Raises:
        InvalidArgumentsError: a file cannot be read.
    """
    result = dict(args)
    for name, value in args.items():
        if isinstance(value, FromFile):
            result[name] = await read_file(value, f"{owner}: argument {name!r}")
    return result


async def read_file(file: FromFile, what: str) -> str:
    """Return the text of *file*.

    Raises:
        InvalidArgumentsError: it cannot be read; the message begins with *what*.
    """
    try:
        return await in_thread(Path(file.path).read_text, encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise InvalidArgumentsError(f"{what}: cannot read {file.path}: {error}") from None
