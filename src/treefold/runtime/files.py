"""Arguments that stand in files."""

from collections.abc import Mapping
from typing import Any

from treefold.core.errors import InvalidArgumentsError
from treefold.core.from_file import FromFile
from treefold.runtime.threads import in_thread


async def read_files(args: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """Return *args* with what the files hold in place of each FromFile.

    Raises:
        InvalidArgumentsError: one cannot be read.
    """
    found = dict(args)
    for name, value in args.items():
        if isinstance(value, FromFile):
            found[name] = await read_file(value, f"{owner}: argument {name!r}")
    return found


async def read_file(file: FromFile, what: str) -> str:
    """Return the text of *file*.

    Raises:
        InvalidArgumentsError: it cannot be read; *what* says in the message what it was for.
    """
    from pathlib import Path  # noqa: PLC0415 - slow to load, and seldom needed

    try:
        return await in_thread(Path(file.path).read_text, encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise InvalidArgumentsError(f"{what}: cannot read {file.path}: {error}") from None
