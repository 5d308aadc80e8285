"""What is in a folder, two levels deep."""

import os
from collections.abc import Iterator
from typing import Final

from treefold.toolbox.editing.file_error import in_words
from treefold.toolbox.editing.folders import open_folder, scan
from treefold.toolbox.editing.places import Place

_LEVELS: Final = 2


def list_folder(place: Place, max_chars: int) -> str:
    """Return the entries that are not hidden; folders end in ``/``, and links say where to."""
    rows: list[str] = []
    room = max_chars
    left_out = 0
    with in_words(place.shown), open_folder(place.base, place.parts) as folder:
        for row in _entries(folder, os.curdir, "", _LEVELS):
            room -= len(row) + 1
            if room >= 0:
                rows.append(row)
            else:
                left_out += 1
    if not rows and not left_out:
        return f"{place.shown} is a folder in which nothing can be seen; hidden names are not shown"
    if left_out:
        rows.append(f"[{left_out} more are not shown; to see more, view the folders in it]")
    return "\n".join([f"{place.shown} has, up to 2 levels deep and without hidden names:", *rows])


def _entries(folder: int, name: str, above: str, levels: int) -> Iterator[str]:
    with scan(folder, name) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            path = above + entry.name
            if entry.is_dir(follow_symlinks=False):
                yield f"{path}/"
                if levels > 1:
                    yield from _inside(folder, os.path.join(name, entry.name), f"{path}/")
            else:
                yield f"{path}@" if entry.is_symlink() else path


def _inside(folder: int, name: str, above: str) -> Iterator[str]:
    try:
        yield from _entries(folder, name, above, 1)
    except OSError:
        yield f"{above} [cannot be looked into]"
