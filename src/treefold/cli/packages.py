"""Which packages the extras of a distribution need, and which of them are installed.

Knows what installed distributions say of themselves; imports none of them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from typing import Final

_ALL: Final = "all"
_REQUIREMENT: Final = re.compile(
    r"(?P<name>[\w.-]+)\s*(\[(?P<extras>[^]]*)\])?\s*\(?(?P<wanted>[^;()]*)\)?\s*(;(?P<marker>.*))?"
)
_MARKER: Final = re.compile(r"""\s*\(?\s*extra\s*==\s*['"](?P<extra>[\w.-]+)['"]\s*\)?\s*""")
_BOUND: Final = re.compile(r"\s*(?P<sign>>=|<|==)\s*(?P<number>[\d.]+)")
_RELEASE: Final = re.compile(r"\d+(\.\d+)*")


@dataclass(frozen=True, slots=True)
class Package:
    """A package that is needed.

    Attributes:
        wanted: which versions will do, such as ``>=3,<4``; empty if all will.
        version: the one that is installed, if one is.
    """

    name: str
    wanted: str
    version: str | None

    @property
    def will_do(self) -> bool:
        """Whether it is there, in a version that will do."""
        if self.version is None:
            return False
        return all(_fits(self.version, bound) for bound in self.wanted.split(",") if bound)


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra, and the packages that it brings; one without a name is what is always needed."""

    name: str
    packages: tuple[Package, ...]

    @property
    def ready(self) -> bool:
        """Whether all of it is installed."""
        return all(package.will_do for package in self.packages)


def extras_of(distribution: str) -> list[Extra]:
    """Return what *distribution* needs, and each of its extras but the one that is all of them.

    It is empty if *distribution* is not installed, but is run from its sources.
    """
    try:
        names: list[str] = metadata(distribution).get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return []
    found = [Extra("", tuple(_needed(distribution, "")))]
    found += [Extra(name, tuple(_needed(distribution, name))) for name in names if name != _ALL]
    return found


def _needed(distribution: str, extra: str) -> list[Package]:
    """Return what an extra brings, and what the extras that it asks for bring."""
    found: dict[Package, None] = {}
    queue = [(distribution, extra)]
    for owner, asked in queue:  # which grows meanwhile
        for name, extras, wanted in _listed(owner, asked):
            if name not in {distribution, owner}:
                found[Package(name, wanted, _installed(name))] = None
            queue += [(name, more) for more in extras if (name, more) not in queue]
    return list(found)


def _listed(distribution: str, extra: str) -> Iterator[tuple[str, list[str], str]]:
    """Yield the requirements of an extra that go for every system."""
    try:
        listed = requires(distribution) or []
    except PackageNotFoundError:
        return
    for line in listed:
        found = _REQUIREMENT.fullmatch(line)
        if found is None or _extra_of(found["marker"]) != extra:
            continue
        extras = [one.strip() for one in (found["extras"] or "").split(",") if one.strip()]
        yield found["name"], extras, found["wanted"].replace(" ", "")


def _extra_of(marker: str | None) -> str | None:
    """Return the extra that a requirement is for; None if it is for some systems only."""
    if marker is None:
        return ""
    found = _MARKER.fullmatch(marker)
    return found["extra"] if found else None


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _fits(version: str, bound: str) -> bool:
    """Whether a version is within a bound; one that cannot be read is no reason to complain."""
    found, number = _BOUND.fullmatch(bound), _RELEASE.match(version)
    if found is None or number is None:
        return True
    have, limit = _numbers(number[0]), _numbers(found["number"])
    match found["sign"]:
        case ">=":
            return have >= limit
        case "<":
            return have < limit
        case _:
            return have == limit


def _numbers(release: str) -> list[int]:
    numbers = [int(part) for part in release.split(".") if part]
    while numbers and not numbers[-1]:  # 3.0 is 3
        numbers.pop()
    return numbers
