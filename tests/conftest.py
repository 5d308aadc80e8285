"""What every test gets: asyncio, and registries of its own."""

from collections.abc import Iterator

import pytest

from ramify import registries


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def own_registries() -> Iterator[None]:
    with registries():
        yield
