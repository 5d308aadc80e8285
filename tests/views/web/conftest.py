"""A viewer of a small journal for each test."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from small_journal import write_small_journal
from treefold.views.web import Viewer, view
from viewing import client_of


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("written") / "run.db"
    write_small_journal(path)
    return path


@pytest.fixture
def journal(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(written, tmp_path / "run.db"))


@pytest.fixture
def viewer(journal: Path) -> Iterator[Viewer]:
    with view(journal, port=0) as made:
        yield made


@pytest.fixture
def client(viewer: Viewer) -> Iterator[httpx.Client]:
    with client_of(viewer) as made:
        yield made
