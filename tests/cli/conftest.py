"""A journal that the tests of commands look at."""

from pathlib import Path

import pytest

from small_journal import write_small_journal


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a small journal, for tests that only read it."""
    path = tmp_path_factory.mktemp("journal") / "run.db"
    write_small_journal(path)
    return path
