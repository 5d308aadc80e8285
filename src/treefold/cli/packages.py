"""The packages that the extras of a distribution need, and which of them are installed.

Reads the metadata of installed distributions, and imports none of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from typing import Final

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

_ALL: Final = "all"


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
        try:
            return SpecifierSet(self.wanted).contains(Version(self.version), prereleases=True)
        except InvalidVersion:
            # It cannot be compared, so it is not called wrong.
            return True


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
        for needed in _listed(owner, asked):
            if needed.name not in {distribution, owner}:
                wanted = ",".join(sorted(map(str, needed.specifier), reverse=True))  # >= before <
                found[Package(needed.name, wanted, _installed(needed.name))] = None
            more = ((needed.name, each) for each in sorted(needed.extras))
            queue += [each for each in more if each not in queue]
    return list(found)


def _listed(distribution: str, extra: str) -> Iterator[Requirement]:
    """Yield the requirements of an extra on this system, without those of the base."""
    try:
        lines = requires(distribution) or []
    except PackageNotFoundError:
        return
    for needed in map(Requirement, lines):
        if _applies(needed, extra) and not (extra and _applies(needed, "")):
            yield needed


def _applies(needed: Requirement, extra: str) -> bool:
    return needed.marker is None or needed.marker.evaluate({"extra": extra})


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
