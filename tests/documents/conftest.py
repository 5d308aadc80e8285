from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.nursery import Nursery
from documents import seeing_stage
from documents.journal_stage import Lives, World
from documents.seeing_stage import Journal, driving
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


@pytest.fixture(scope="module", params=["live", "finished"])
def survey(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Journal]:
    """One survey, once under way in another process and once long over."""
    folder = tmp_path_factory.mktemp("survey")
    if request.param == "finished":
        yield seeing_stage.finished(folder)
        return
    with driving(folder) as driver:
        yield Journal(driver.file, (driver.survey(key="nightly"),), live=True)
