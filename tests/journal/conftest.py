"""Programs of a test module that are killed, and the folder that they share with the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.nursery import Nursery
from journal.processes import Lives, World


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery(tmp_path_factory.mktemp("nursery"), "journal.processes") as nursery:
        yield nursery


@pytest.fixture
def lives(nursery: Nursery) -> Lives:
    return Lives(nursery)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a journal will be."""
    return tmp_path / "run.db"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
