"""A fresh schema in a real PostgreSQL for each test, and workers on it."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest

from postgres_server import new_name, shared_url, with_query
from treefold import Function, Runtime, WorkerSettings

# Whether every case is tried, as ``make cluster`` does, instead of some of each kind.
EXHAUSTIVE: Final = os.environ.get("TREEFOLD_CLUSTER") == "exhaustive"

# Short times, so that the tests need not wait; each heartbeat may be late by a second.
QUICK = WorkerSettings(lease=3.0, beat=0.3, sweep=0.1, poll=0.1)


@pytest.fixture
def url() -> str:
    """The URL of a new schema."""
    return with_query(shared_url(), schema=new_name())


class Workers:
    """Runtimes on one store, each as another process would have it."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self.url = url
        self._stack = stack

    def __call__(self, *functions: Function, **options: Any) -> Runtime:
        """Open one more runtime with these functions."""
        options.setdefault("worker", QUICK)
        runtime = self.add(Runtime(functions, store=self.url, **options))
        runtime.recover()
        return runtime

    def add(self, runtime: Runtime) -> Runtime:
        """Have *runtime* closed after the test."""
        # Not as a context manager, which would wait for what still runs.
        self._stack.callback(runtime.close)
        return runtime


@pytest.fixture
def workers(url: str) -> Iterator[Workers]:
    """Open runtimes, which are closed after the test."""
    with ExitStack() as stack:
        yield Workers(url, stack)
