"""The suite for stores, on ours."""

from pathlib import Path

import pytest

from treefold import MemoryStore, SqliteStore
from treefold.stores import Store
from treefold.testing import StoreSuite


class TestMemoryStore(StoreSuite):
    def make_store(self) -> Store:
        return MemoryStore()

    def reopen(self, store: Store) -> Store:
        return store


class TestSqliteStore(StoreSuite):
    @pytest.fixture(autouse=True)
    def in_folder(self, tmp_path: Path) -> None:
        self.paths = (tmp_path / f"{n}.db" for n in range(10))

    def make_store(self) -> Store:
        return SqliteStore(next(self.paths), synchronous="NORMAL")

    def reopen(self, store: Store) -> Store:
        return SqliteStore(store.name)


class TestSqliteStoreWithoutFile(StoreSuite):
    def make_store(self) -> Store:
        return SqliteStore(":memory:")

    def reopen(self, store: Store) -> Store:
        if repr(store).endswith("closed>"):
            pytest.skip("what was in memory is gone")
        return store
