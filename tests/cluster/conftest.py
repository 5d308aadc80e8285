"""An empty journal in a real PostgreSQL for each test, and workers on it."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from cluster.quick import QUICK
from cluster.serving import Serving
from postgres_server import empty_journal
from treefold import Function, Runtime
from work_engines import EXHAUSTIVE, KINDS, engine_name, make_engine

# Where engines differ: in what they deliver, and in the rights they need.
ON_ALL_ENGINES: Final = ("test_random_deliveries", "test_roles")


def on(*kinds: str) -> pytest.MarkDecorator:
    """Run a test on these kinds of engine; ``make cluster`` runs it on all."""
    return pytest.mark.parametrize("engine", KINDS if EXHAUSTIVE else kinds, indirect=True)


@pytest.fixture
def url() -> Iterator[str]:
    """The URL of a store in which there is nothing."""
    with empty_journal() as url:
        yield url


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on one kind of engine, of which the next test has another; or on all kinds.

    All keep the contract that ``EngineSuite`` checks, and most tests here rely on nothing else.
    A test that runs without an engine as well has that as one more kind.
    """
    tests = [name for name in vars(metafunc.module) if name.startswith("test_")]
    place = tests.index(metafunc.function.__name__)
    is_for_all = EXHAUSTIVE or metafunc.definition.path.stem in ON_ALL_ENGINES
    given = {
        name
        for mark in metafunc.definition.iter_markers("parametrize")
        for name in ([mark.args[0]] if isinstance(mark.args[0], str) else mark.args[0])
    }
    for fixture, kinds in {"engine": KINDS, "any_engine": (*KINDS, "none")}.items():
        if fixture in metafunc.fixturenames and fixture not in given:
            tried = kinds if is_for_all else (kinds[place % len(kinds)],)
            metafunc.parametrize(fixture, tried, indirect=True)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    """The name of an engine."""
    return engine_name(request.param)


@pytest.fixture
def any_engine(request: pytest.FixtureRequest) -> str:
    """The name of an engine, or nothing: then each process runs what it starts."""
    return "" if request.param == "none" else engine_name(request.param)


class Workers:
    """Runtimes on one store, each as another process would have it.

    Args:
        engine: the name of their engine, "" for none.
    """

    def __init__(self, url: str, engine: str = "") -> None:
        self.url = url
        self.engine = engine
        self._closing: dict[Runtime, Callable[[], None]] = {}

    def __call__(self, *functions: Function, **options: Any) -> Runtime:
        """Open one more runtime with these functions, which runs what no other runs."""
        options = {"store": self.url, "worker": QUICK, **options}
        if not self.engine:
            runtime = self.add(Runtime(functions, **options))
            runtime.recover()
            return runtime
        return self.serve(Runtime(functions, engine=make_engine(self.engine, self.url), **options))

    def serve(self, runtime: Runtime) -> Runtime:
        """Have a runtime run what its engine delivers."""
        self._closing[runtime] = Serving(runtime).close
        return runtime

    def submitter(self, *functions: Function, **options: Any) -> Runtime:
        """Open a runtime that only submits: the workers run what it starts."""
        engine = make_engine(self.engine, self.url)
        options = {"store": self.url, "worker": QUICK, **options}
        runtime = self.add(Runtime(functions, engine=engine, **options))
        runtime.recover()
        return runtime

    def add(self, runtime: Runtime) -> Runtime:
        """Have *runtime* closed after the test."""
        # Not as a context manager, which would wait for what still runs.
        self._closing[runtime] = runtime.close
        return runtime

    def close(self, *runtimes: Runtime) -> None:
        """Close some runtimes, or all; what they run stays open for others."""
        for runtime in runtimes or tuple(self._closing):
            self._closing.pop(runtime)()


@pytest.fixture
def workers(url: str) -> Iterator[Workers]:
    """Open runtimes, each of which runs what it starts."""
    workers = Workers(url)
    yield workers
    workers.close()


@pytest.fixture
def placed(url: str, engine: str) -> Iterator[Workers]:
    """Open runtimes that run what an engine delivers."""
    workers = Workers(url, engine)
    yield workers
    workers.close()


@pytest.fixture
def any_workers(url: str, any_engine: str) -> Iterator[Workers]:
    """Open runtimes that run what an engine delivers, or what they start."""
    workers = Workers(url, any_engine)
    yield workers
    workers.close()
