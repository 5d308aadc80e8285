"""Which part of a patch is for the file that it is applied to."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from treefold.core.errors import InvalidArgumentsError
from treefold.toolbox.editing.file_error import short_repr
from treefold.toolbox.patching.sections import Section

_MOST_TOLD: Final = 10  # names in a message


def part_for(path: str, sections: Sequence[Section]) -> Section:
    """Return the part for the file at *path*, with the hunks that change something, from 1 on.

    A patch of one file is for this one, whatever name it says.

    Raises:
        InvalidArgumentsError: there are none, or those of several files and none, or more than
            one, has its name.
    """
    if not sections:
        raise InvalidArgumentsError(
            "there is no hunk in the patch; give a unified diff, in which each hunk begins with a"
            " line such as '@@ -1,3 +1,4 @@'"
        )
    section = sections[0] if len(sections) == 1 else _named(path, sections)
    if section.deletes:
        raise InvalidArgumentsError(
            f"the patch deletes {short_repr(path)}, and this function only writes new versions of"
            " files; delete it by other means"
        )
    changing = [hunk for hunk in section.hunks if hunk.affected]
    if not changing:
        raise InvalidArgumentsError(
            "the patch adds and removes nothing; its lines must begin with '+', '-' or a space"
        )
    numbered = [replace(hunk, number=number) for number, hunk in enumerate(changing, 1)]
    return replace(section, hunks=tuple(numbered))


def _named(path: str, sections: Sequence[Section]) -> Section:
    """Return the part whose name has most in common with the end of *path*."""
    likeness = [_common_end(path, section.name) for section in sections]
    best = max(likeness)
    if best and likeness.count(best) == 1:
        return sections[likeness.index(best)]
    names = ", ".join(short_repr(section.name, 100) for section in sections[:_MOST_TOLD])
    more = ", …" * (len(sections) > _MOST_TOLD)
    raise InvalidArgumentsError(
        f"the patch is for {len(sections)} files ({names}{more}), and"
        f" {'more than one' if best else 'none'} of them has the name {short_repr(path)}; give only"
        " the part for this file"
    )


def _common_end(path: str, name: str) -> int:
    """Return how many parts two paths have in common, from the last one on."""
    ours, theirs = path.split(os.sep), name.split("/")
    same = [a == b for a, b in zip(reversed(ours), reversed(theirs), strict=False)]
    return [*same, False].index(False)
