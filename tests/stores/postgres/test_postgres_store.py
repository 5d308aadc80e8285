"""The suites for stores, on PostgreSQL."""

from collections.abc import Generator
from contextlib import ExitStack

import pytest

from postgres_server import empty_journal
from treefold.stores import Store
from treefold.stores.postgres import PostgresStore
from treefold.testing import ClusterSuite, StoreSuite


class TestPostgresStore(StoreSuite, ClusterSuite):
    @pytest.fixture(autouse=True)
    def in_schemas(self) -> Generator[None]:
        self.urls: dict[str, str] = {}  # by journal
        with ExitStack() as self.schemas:
            yield

    def make_store(self) -> Store:
        url = self.schemas.enter_context(empty_journal())
        store = PostgresStore(url)
        self.urls[store.id] = url
        return store

    def reopen(self, store: Store) -> Store:
        return PostgresStore(self.urls[store.id])
