"""What every test gets, the examples in docstrings included: registries of its own."""

from collections.abc import Iterator

import pytest

from treefold import registries


@pytest.fixture(autouse=True)
def own_registries() -> Iterator[None]:
    """Forget afterwards what the test has registered."""
    with registries():
        yield
