"""A server of its own, for tests that stop it; and journals in which there is nothing."""

from collections.abc import Generator

import pytest

from postgres_server import GIVEN, PostgresServer, empty_journal


@pytest.fixture(scope="module")
def own_server() -> Generator[PostgresServer]:
    """A server that a test may stop and kill, and starts again."""
    if GIVEN:
        pytest.skip("the given server must not be stopped")
    with PostgresServer() as server:
        yield server


@pytest.fixture
def journal_url() -> Generator[str]:
    """The URL of an empty journal, whose tables tests before may have used."""
    with empty_journal() as url:
        yield url
