"""Parse a patch into the diffs of its files, and select the one for a file.

Accepts what people and models write: diffs in Markdown with text around them, wrong or missing
line counts, blank lines without their leading space.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from treefold.core.errors import InvalidArgumentsError
from treefold.toolbox.editing.file_error import short_repr
from treefold.toolbox.patching.hunk import Hunk, split_rows, strip_line_end
from treefold.toolbox.patching.hunk_parser import is_hunk_header, parse_hunk

_DEV_NULL: Final = "/dev/null"
_MAX_LISTED: Final = 10  # names in a message

_FENCE: Final = re.compile(rb"`{3,}|~{3,}")
_GIT_HEADER: Final = b"diff --git "
_PREFIX: Final = re.compile(r"[abciow]/")


@dataclass(frozen=True, slots=True)
class FileDiff:
    """The hunks of one file; the names are empty if the patch has none."""

    old: str
    new: str
    hunks: tuple[Hunk, ...]

    @property
    def creates(self) -> bool:
        """Whether the patch creates the file."""
        return self.old == _DEV_NULL

    @property
    def deletes(self) -> bool:
        """Whether the patch deletes the file."""
        return self.new == _DEV_NULL

    @property
    def name(self) -> str:
        """The name of the file in the patch, without the prefix of git."""
        return _PREFIX.sub("", self.old if self.deletes else self.new, count=1)


def parse_patch(text: bytes) -> list[FileDiff]:
    """Return the file diffs in *text*; those with the same name are merged."""
    if b"\n" not in text:
        text = text.replace(b"\r", b"\n")
    found: dict[str, FileDiff] = {}
    for file_diff in _iter_file_diffs(_strip_markdown(split_rows(text))):
        earlier = found.get(file_diff.name)
        hunks = (*earlier.hunks, *file_diff.hunks) if earlier else file_diff.hunks
        first = earlier or file_diff
        found[file_diff.name] = FileDiff(first.old, first.new, hunks)
    return list(found.values())


def _strip_markdown(rows: list[bytes]) -> list[bytes]:
    """Return the lines of the code blocks that contain hunks; all lines if there are none."""
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


def _iter_file_diffs(rows: list[bytes]) -> Iterator[FileDiff]:
    """Yield each run of hunks with the file names that precede it."""
    names = ("", "")
    hunks: list[Hunk] = []
    counter = count(1)
    at = 0
    while at < len(rows):
        if is_hunk_header(rows[at]):
            hunk, at = parse_hunk(rows, at, next(counter))
            hunks.append(hunk)
            continue
        found = _names(rows, at)
        if found and hunks:
            yield FileDiff(*names, tuple(hunks))
            hunks = []
        names = found or names
        at += 1
    if hunks:
        yield FileDiff(*names, tuple(hunks))


def _names(rows: list[bytes], at: int) -> tuple[str, str] | None:
    after = rows[at + 1] if at + 1 < len(rows) else b""
    if rows[at].startswith(b"--- ") and after.startswith(b"+++ "):
        return _name(rows[at][4:]), _name(after[4:])
    if rows[at].startswith(_GIT_HEADER):
        old, _, new = rows[at].removeprefix(_GIT_HEADER).partition(b" b/")
        return _name(old), _name(new)
    return None


def _name(written: bytes) -> str:
    """Return a name without quotes and without the timestamp that may follow after a tab."""
    return strip_line_end(written).split(b"\t")[0].strip().strip(b'"').decode(errors="replace")


def select_file_diff(path: str, file_diffs: Sequence[FileDiff]) -> FileDiff:
    """Return the diff for the file at *path*, with the hunks that change something, renumbered.

    A patch of a single file is used whatever its name.

    Raises:
        InvalidArgumentsError: there is no such hunk; or the patch is for several files, and not
            exactly one of them has the name of this file.
    """
    if not file_diffs:
        raise InvalidArgumentsError(
            "there is no hunk in the patch; give a unified diff, in which each hunk begins with a"
            " line such as '@@ -1,3 +1,4 @@'"
        )
    file_diff = file_diffs[0] if len(file_diffs) == 1 else _best_match(path, file_diffs)
    if file_diff.deletes:
        raise InvalidArgumentsError(
            f"the patch deletes {short_repr(path)}, and this function only writes new versions of"
            " files; delete it with another tool"
        )
    changing = [hunk for hunk in file_diff.hunks if hunk.affected_lines]
    if not changing:
        raise InvalidArgumentsError(
            "the patch adds and removes nothing; its lines must begin with '+', '-' or a space"
        )
    numbered = [replace(hunk, number=number) for number, hunk in enumerate(changing, 1)]
    return replace(file_diff, hunks=tuple(numbered))


def _best_match(path: str, file_diffs: Sequence[FileDiff]) -> FileDiff:
    """Return the diff whose name shares the most trailing parts with *path*."""
    scores = [_common_suffix(path, file_diff.name) for file_diff in file_diffs]
    best = max(scores)
    if best and scores.count(best) == 1:
        return file_diffs[scores.index(best)]
    names = ", ".join(short_repr(file_diff.name, 100) for file_diff in file_diffs[:_MAX_LISTED])
    more = ", …" * (len(file_diffs) > _MAX_LISTED)
    raise InvalidArgumentsError(
        f"the patch is for {len(file_diffs)} files ({names}{more}), and"
        f" {'more than one' if best else 'none'} of them has the name {short_repr(path)}; give only"
        " the part for this file"
    )


def _common_suffix(path: str, name: str) -> int:
    """Return how many trailing parts two paths have in common."""
    ours, theirs = path.split(os.sep), name.split("/")
    same = [a == b for a, b in zip(reversed(ours), reversed(theirs), strict=False)]
    return [*same, False].index(False)
