"""The description of a function, taken from its docstring.

The text about each parameter goes into the schema (``core.schema``); it is removed from the
description, so that the model reads it only once.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from treefold.core.fact import Fact

# As texts, which are compiled on first use: that takes longer than importing the module.
_TITLES: Final = "Args|Arguments|Parameters|Params"
_ANY_STYLE: Final = rf"(?m)^(?:(?:{_TITLES})\b|[:@](?:param|arg|key|type))"
_GOOGLE: Final = rf"(?:{_TITLES}):\s*"
_NUMPY: Final = rf"(?:{_TITLES})\s*"
_FIELD: Final = r"[:@](?:param|parameter|arg|argument|key|keyword|type)\s([^:]*):"
_BLANKS: Final = r"\n{3,}"


class _Section(Fact, frozen=True):
    """A section of a docstring: the lines of its title, and name and lines of each parameter."""

    title: range
    entries: Sequence[tuple[str, range]]


def without_parameters(docstring: str, names: Collection[str]) -> str:
    """Return *docstring* without its entries for the parameters in *names*.

    Entries for other names stay. A docstring that mixes styles is returned unchanged, because
    only one of them is read for the schema.
    """
    if not re.search(_ANY_STYLE, docstring):
        return docstring
    lines = docstring.splitlines()
    styles = [list(_google(lines)), list(_numpy(lines)), *(list(_fields(lines, m)) for m in ":@")]
    found = [sections for sections in styles if sections]
    if len(found) != 1:
        return docstring
    cut: set[int] = set()
    for section in found[0]:
        known = [entry for entry in section.entries if entry[0] in names]
        cut.update(*(entry_lines for _, entry_lines in known))
        if len(known) == len(section.entries):
            cut.update(section.title)
    left = "\n".join(line for number, line in enumerate(lines) if number not in cut)
    return re.sub(_BLANKS, "\n\n", left).strip()


def _google(lines: Sequence[str]) -> Iterator[_Section]:
    for start, line in enumerate(lines):
        if not re.fullmatch(_GOOGLE, line):
            continue
        stop = next((n for n in range(start + 1, len(lines)) if lines[n][:1].strip()), len(lines))
        body = range(start + 1, stop)
        depth = next((_depth(lines[n]) for n in body if lines[n].strip()), 0)
        starts = [n for n in body if lines[n].strip() and _depth(lines[n]) == depth]
        if starts and all(":" in lines[n] for n in starts):
            names = [lines[n].partition(":")[0].partition("(")[0].strip() for n in starts]
            yield _Section(range(start, starts[0]), _entries(names, starts, stop))


def _numpy(lines: Sequence[str]) -> Iterator[_Section]:
    for start, line in enumerate(lines[:-1]):
        if not re.fullmatch(_NUMPY, line) or lines[start + 1].rstrip() != "-" * len(line.rstrip()):
            continue
        stop = len(lines)
        for number in range(start + 3, len(lines)):
            if lines[number].strip() and not lines[number].strip("- "):
                stop = number - 1
                break
        starts = [n for n in range(start + 2, stop) if lines[n][:1].strip()]
        names = [lines[n].partition(":")[0].strip() for n in starts]
        if starts:
            yield _Section(range(start, starts[0]), _entries(names, starts, stop))


def _fields(lines: Sequence[str], marker: str) -> Iterator[_Section]:
    for start, line in enumerate(lines):
        field = re.match(_FIELD, line) if line.startswith(marker) else None
        if field is None:
            continue
        stop = start + 1
        while stop < len(lines) and not lines[stop].startswith(marker):
            if not lines[stop - 1].strip() and lines[stop][:1].strip():
                # A line at the left margin after a blank line begins a paragraph of its own.
                break
            stop += 1
        # Sphinx allows a type before the name, Epydoc does not.
        name = field[1].strip() if marker == "@" else " ".join(field[1].split()[-1:])
        yield _Section(range(0), [(name, range(start, stop))])


def _entries(names: Sequence[str], starts: Sequence[int], stop: int) -> list[tuple[str, range]]:
    stops = [*starts[1:], stop]
    ranges = (range(start, end) for start, end in zip(starts, stops, strict=True))
    return list(zip(names, ranges, strict=True))


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
