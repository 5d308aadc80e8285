"""What every test gets, the examples in docstrings included: registries of its own."""

from collections.abc import Iterator
from doctest import DocTestFinder
from types import ModuleType
from typing import Any

import pytest

import treefold.errors
from treefold import registries
from treefold.exports import homes

_is_from_module: Any = vars(DocTestFinder)["_from_module"]


def _is_defined_in(finder: DocTestFinder, module: ModuleType, found: object) -> bool:
    """Have the examples of an error found beside its code, though its module is the public one."""
    if isinstance(found, type) and found.__module__ == treefold.errors.__name__:
        return homes(treefold.errors.__name__).get(found.__name__) == module.__name__
    return _is_from_module(finder, module, found)


DocTestFinder._from_module = _is_defined_in  # pyright: ignore


@pytest.fixture(autouse=True)
def own_registries() -> Iterator[None]:
    """Forget afterwards what the test has registered."""
    with registries():
        yield
