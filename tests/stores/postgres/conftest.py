"""A server of its own, for tests that stop it; and workers."""

from collections.abc import Generator

import pytest

from postgres_server import GIVEN, PostgresServer


@pytest.fixture(scope="module")
def own_server() -> Generator[PostgresServer]:
    """A server that a test may stop and kill, and starts again."""
    if GIVEN:
        pytest.skip("the given server must not be stopped")
    with PostgresServer() as server:
        yield server
