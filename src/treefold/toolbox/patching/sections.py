"""What is in a patch, file by file; and around it, which is left out.

Takes what people and models write: diffs in Markdown with words around them, wrong or no counts of
lines, blank lines without their space. Does not know the file that the patch is for.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

from treefold.toolbox.patching.hunk import Hunk
from treefold.toolbox.patching.hunk_reader import is_hunk_header, read_hunk
from treefold.toolbox.patching.rows import bare, split_rows

_NOTHING: Final = "/dev/null"

_FENCE: Final = re.compile(rb"`{3,}|~{3,}")
_GIT_HEADER: Final = b"diff --git "
_PREFIX: Final = re.compile(r"[abciow]/")


@dataclass(frozen=True, slots=True)
class Section:
    """The part of a patch that is for one file; without names if the patch has none."""

    old: str
    new: str
    hunks: tuple[Hunk, ...]

    @property
    def creates(self) -> bool:
        """Whether there is to be no file before."""
        return self.old == _NOTHING

    @property
    def deletes(self) -> bool:
        """Whether there is to be no file after."""
        return self.new == _NOTHING

    @property
    def name(self) -> str:
        """The name of the file, as the patch has it."""
        return _PREFIX.sub("", self.old if self.deletes else self.new, count=1)


def read_sections(text: bytes) -> list[Section]:
    """Return the parts of the patch that *text* holds; those with the same name are one."""
    if b"\n" not in text:
        text = text.replace(b"\r", b"\n")
    found: dict[str, Section] = {}
    for section in _sections(_unfenced(split_rows(text))):
        earlier = found.get(section.name)
        hunks = (*earlier.hunks, *section.hunks) if earlier else section.hunks
        first = earlier or section
        found[section.name] = Section(first.old, first.new, hunks)
    return list(found.values())


def _unfenced(rows: list[bytes]) -> list[bytes]:
    """Return the lines of the blocks of code that hold hunks; all lines if there are none."""
    blocks: list[list[bytes]] = []
    fence = b""
    for row in rows:
        mark = _FENCE.match(row)
        if not fence and mark:
            fence = mark.group()
            blocks.append([])
        elif fence and mark and mark.group().startswith(fence) and not row[mark.end() :].strip():
            fence = b""
        elif fence:
            blocks[-1].append(row)
    return [row for block in blocks if any(map(is_hunk_header, block)) for row in block] or rows


def _sections(rows: list[bytes]) -> Iterator[Section]:
    """Give each stretch of hunks with the names that were last said before it."""
    names = ("", "")
    hunks: list[Hunk] = []
    numbers = count(1)
    at = 0
    while at < len(rows):
        if is_hunk_header(rows[at]):
            hunk, at = read_hunk(rows, at, next(numbers))
            hunks.append(hunk)
            continue
        told = _names(rows, at)
        if told and hunks:
            yield Section(*names, tuple(hunks))
            hunks = []
        names = told or names
        at += 1
    if hunks:
        yield Section(*names, tuple(hunks))


def _names(rows: list[bytes], at: int) -> tuple[str, str] | None:
    after = rows[at + 1] if at + 1 < len(rows) else b""
    if rows[at].startswith(b"--- ") and after.startswith(b"+++ "):
        return _name(rows[at][4:]), _name(after[4:])
    if rows[at].startswith(_GIT_HEADER):
        old, _, new = rows[at].removeprefix(_GIT_HEADER).partition(b" b/")
        return _name(old), _name(new)
    return None


def _name(written: bytes) -> str:
    """Return a name without the time that may follow it after a tab, and without quotes."""
    return bare(written).split(b"\t")[0].strip().strip(b'"').decode(errors="replace")
