"""The text that ``view`` shows: lines of a file with their numbers, or the entries of a folder."""

import os
from collections.abc import Iterator
from typing import Final

from treefold.toolbox.editing.document import Document
from treefold.toolbox.editing.file_error import translate_os_errors
from treefold.toolbox.editing.lines import LINE_END, line_start
from treefold.toolbox.editing.paths import ResolvedPath, open_folder, scan

_LEVELS: Final = 2


def show_lines(document: Document, first: int, last: int, max_chars: int) -> str:
    """Return the lines from *first* to *last*, and a notice of those that did not fit."""
    rows: list[str] = []
    room = max_chars
    start = line_start(document.body, first)
    for number in range(first, last + 1):
        end = LINE_END.search(document.body, start)
        stop = end.start() if end else len(document.body)
        row = f"{number:6}\t{document.decode(document.body[start : min(stop, start + 4 * room)])}"
        if len(row) > room and rows:
            return _join(rows, _not_shown(number, last))
        if len(row) > room:
            rows.append(row[:room])
            notice = f"[line {number} has {stop - start:,} bytes and was cut off here]"
            return _join(rows, notice, _not_shown(number + 1, last))
        rows.append(row)
        room -= len(row) + 1
        start = end.end() if end else stop
    return "\n".join(rows)


def _not_shown(first: int, last: int) -> str:
    if first > last:
        return ""
    which = f"line {first} is" if first == last else f"lines {first} to {last} are"
    return f"[{which} not shown; to see more, view with view_range [{first}, {last}]]"


def _join(rows: list[str], *notices: str) -> str:
    return "\n".join([*rows, *filter(None, notices)])


def list_folder(path: ResolvedPath, max_chars: int) -> str:
    """Return the entries that are not hidden; folders end in ``/`` and links in ``@``."""
    rows: list[str] = []
    room = max_chars
    left_out = 0
    with translate_os_errors(path.given), open_folder(path.base, path.parts) as folder:
        for row in _entries(folder, os.curdir, "", _LEVELS):
            room -= len(row) + 1
            if room >= 0:
                rows.append(row)
            else:
                left_out += 1
    if not rows and not left_out:
        return f"{path.given} is a folder without visible entries; hidden names are not shown"
    if left_out:
        rows.append(f"[{left_out} more are not shown; to see more, view the folders in it]")
    return "\n".join([f"{path.given} has, up to 2 levels deep and without hidden names:", *rows])


def _entries(folder: int, name: str, above: str, levels: int) -> Iterator[str]:
    with scan(folder, name) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            path = above + entry.name
            if entry.is_dir(follow_symlinks=False):
                yield f"{path}/"
                if levels > 1:
                    yield from _entries_below(folder, os.path.join(name, entry.name), f"{path}/")
            else:
                yield f"{path}@" if entry.is_symlink() else path


def _entries_below(folder: int, name: str, above: str) -> Iterator[str]:
    try:
        yield from _entries(folder, name, above, 1)
    except OSError:
        yield f"{above} [cannot be listed]"
