"""The packages that the extras of a distribution need, and which of them are installed.

Reads the metadata of installed distributions, and imports none of them.
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
    """A package that is required.

    Attributes:
        wanted: the versions that are accepted, such as ``>=3,<4``; empty if all are.
        version: the installed version, None if it is not installed.
    """

    name: str
    wanted: str
    version: str | None

    @property
    def will_do(self) -> bool:
        """Whether it is installed in a version that is accepted."""
        if self.version is None:
            return False
        return all(_fits(self.version, bound) for bound in self.wanted.split(",") if bound)


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra and its packages; those of the one without a name are always required."""

    name: str
    packages: tuple[Package, ...]

    @property
    def ready(self) -> bool:
        """Whether all of it is installed."""
        return all(package.will_do for package in self.packages)


def extras_of(distribution: str) -> list[Extra]:
    """Return what *distribution* requires, and its extras, except for ``all``.

    The list is empty if *distribution* is not installed, but runs from its sources.
    """
    try:
        names: list[str] = metadata(distribution).get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return []
    found = [Extra("", tuple(_needed(distribution, "")))]
    found += [Extra(name, tuple(_needed(distribution, name))) for name in names if name != _ALL]
    return found


def _needed(distribution: str, extra: str) -> list[Package]:
    """Return the packages of an extra, and those of the extras that it requires."""
    found: dict[Package, None] = {}
    queue = [(distribution, extra)]
    for owner, asked in queue:  # the list grows while it is iterated
        for name, extras, wanted in _listed(owner, asked):
            if name not in {distribution, owner}:
                found[Package(name, wanted, _installed(name))] = None
            queue += [(name, more) for more in extras if (name, more) not in queue]
    return list(found)


def _listed(distribution: str, extra: str) -> Iterator[tuple[str, list[str], str]]:
    """Yield the requirements of an extra that apply on every system."""
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
    """Return the extra that a requirement belongs to; None if it applies on some systems only."""
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
    """Return whether a version is within a bound; what cannot be parsed is accepted."""
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
    while numbers and not numbers[-1]:  # 3.0 equals 3
        numbers.pop()
    return numbers
