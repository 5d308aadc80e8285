from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.nursery import Nursery
from documents.journal_stage import Lives, World
from wire.protocols import PROTOCOLS, Protocol


@pytest.fixture(params=PROTOCOLS, ids=str)
def protocol(request: pytest.FixtureRequest) -> Protocol:
    return request.param


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery(tmp_path_factory.mktemp("nursery"), "documents.journal_stage") as nursery:
        yield nursery


@pytest.fixture
def lives(nursery: Nursery) -> Lives:
    return Lives(nursery)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
