"""Stores and programs that use the former names of methods."""

import warnings
from typing import Any

import pytest

from treefold import CodeFunction, MemoryStore, RunContext, Runtime, SqliteStore, attach
from treefold.core.errors import InvalidValueError


class FormerStore:
    """A store as users wrote it before the methods were renamed."""

    def __init__(self) -> None:
        self._store = MemoryStore()

    def __getattr__(self, name: str) -> Any:
        if name in {"acquire", "is_owned", "broadcast", "read_broadcasts"}:
            raise AttributeError(name)
        return getattr(self._store, name)

    def drive(self) -> bool:
        return self._store.acquire()

    def is_driven(self) -> bool:
        return self._store.is_owned()

    def tell(self, text: str) -> None:
        self._store.broadcast(text)

    def told(self, after: int = 0) -> tuple[int, list[str]]:
        return self._store.read_broadcasts(after)


def double(ctx: RunContext, n: int) -> int:
    return 2 * n


DOUBLE = CodeFunction(callable=double)


@pytest.mark.parametrize("kind", [MemoryStore, lambda: SqliteStore(":memory:")])
def test_the_former_names_of_methods_work_and_warn(kind: Any):
    with kind() as store:
        with pytest.warns(DeprecationWarning, match=r"Store\.drive is now called acquire"):
            assert store.drive() is False
        with pytest.warns(DeprecationWarning, match="is_driven is now called is_owned"):
            assert store.is_driven() is store.is_owned() is True
        with pytest.warns(DeprecationWarning, match="tell is now called broadcast"):
            store.tell("hello")
        with pytest.warns(DeprecationWarning, match="told is now called read_broadcasts"):
            assert store.told() == store.read_broadcasts()


def test_a_store_that_has_only_the_former_names_is_accepted():
    store: Any = FormerStore()
    with pytest.warns(DeprecationWarning, match="FormerStore .* rename drive to acquire"):
        runtime = Runtime([DOUBLE], store=store)
    with runtime:
        assert runtime.invoke(DOUBLE, {"n": 4}).result() == 8
        with pytest.warns(DeprecationWarning, match="told to read_broadcasts"):
            observer = attach(store)
        with observer:
            assert observer.is_driven
            assert [tree.function for tree in observer.trees()] == ["double"]


def test_the_current_names_do_not_warn():
    with warnings.catch_warnings(), Runtime([DOUBLE], store=MemoryStore()) as runtime:
        warnings.simplefilter("error")
        assert runtime.invoke(DOUBLE, {"n": 4}).result() == 8


def test_what_is_not_a_store_is_refused():
    odd: Any = 7
    for use in (lambda: Runtime(store=odd), lambda: attach(odd)):
        with pytest.raises(InvalidValueError, match="must be the path of a file or a Store, got 7"):
            use()
