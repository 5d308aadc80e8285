"""Runs the tests of a session in several processes, forked when all of them are collected.

What is imported and collected once serves all workers. Each worker takes a file from a queue when
it comes to the last test of its file, and runs the tests of a file in their order. The process
that collected runs none: it shows the reports, and forks another worker when one has died.
"""

import os
import random
import signal
import sys
from collections.abc import Generator, Iterable, Sequence
from itertools import chain, pairwise
from multiprocessing import Pipe, connection, get_context
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import pytest
from _pytest.config import create_terminal_writer

PATIENCE: Final = 60  # seconds

Reports: TypeAlias = "connection.Connection[Any, Any]"


class ForkedWorkers:
    """A plugin: runs the tests in *count* workers."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._files: list[list[pytest.Item]] = []
        self._queue = -1
        self._workers: dict[Reports, _Worker] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests, instead of pytest's own loop."""
        if session.testsfailed or session.config.option.collectonly or not session.items:
            return None
        by_file: dict[Path, list[pytest.Item]] = {}
        for item in session.items:
            by_file.setdefault(item.path, []).append(item)
        self._files = list(by_file.values())
        self._queue, writing = os.pipe()
        # All of it fits into the pipe. A read takes the number of a file, or nothing at the end.
        os.write(writing, b"".join(_number(at) for at in range(len(self._files))))
        os.close(writing)
        try:
            for _ in range(min(self._count, len(self._files))):
                self._start(session, [])
            while self._workers:
                for reports in connection.wait(list(self._workers)):
                    self._hear(session, cast(Reports, reports))
                    _stop_if_asked(session)
        finally:
            os.close(self._queue)
            for worker in self._workers.values():
                worker.end()
        return True

    def _start(self, session: pytest.Session, first: Sequence[pytest.Item]) -> None:
        """Fork a worker that runs the tests *first*, and then those of the queue."""
        hearing, telling = cast("tuple[Reports, Reports]", Pipe(duplex=False))
        worker = _Worker(session, first)

        def work() -> None:
            hearing.close()
            worker.work(telling, self._taken_items(telling, first))

        worker.process = get_context("fork").Process(target=work)
        worker.process.start()
        telling.close()
        self._workers[hearing] = worker

    def _taken_items(
        self, telling: Reports, first: Sequence[pytest.Item]
    ) -> Generator[pytest.Item, None, None]:
        """Give the tests of a worker; a file is taken from the queue when the one before ends."""
        yield from first
        while number := os.read(self._queue, 2):
            at = int.from_bytes(number)
            telling.send(("took", at))
            yield from self._files[at]

    def _hear(self, session: pytest.Session, reports: Reports) -> None:
        worker, hook = self._workers[reports], session.config.hook
        try:
            what, told = reports.recv()
        except EOFError:
            del self._workers[reports]
            reports.close()
            if left := worker.mourn():
                self._start(session, left)
            return
        match what:
            case "took":
                worker.waiting += self._files[told]
            case "started":
                hook.pytest_runtest_logstart(nodeid=told[0], location=told[1])
            case "reported":
                report = hook.pytest_report_from_serializable(config=session.config, data=told)
                hook.pytest_runtest_logreport(report=report)
            case _:  # finished
                del worker.waiting[0]
                hook.pytest_runtest_logfinish(nodeid=told[0], location=told[1])


class _Worker:
    """A process that runs tests; ``waiting`` are those that it took and has not finished."""

    process: Any

    def __init__(self, session: pytest.Session, first: Iterable[pytest.Item]) -> None:
        self.waiting = list(first)
        self._session = session
        # Before the fork: pytest removes the folder of a session, not that of each worker.
        self._folder = session.config._tmp_path_factory.mktemp("worker")  # pyright: ignore

    def mourn(self) -> list[pytest.Item]:
        """Report the test that the process died of; return those that it has left."""
        self.process.join()
        if not self.waiting and self.process.exitcode == 0:
            return []
        ended = f"has ended with the exit code {self.process.exitcode}"
        if not self.waiting:
            raise RuntimeError(f"a process that ran tests {ended}")
        fault = f"the process that ran it {ended}"
        died_in, *left = self.waiting
        report = pytest.TestReport(
            died_in.nodeid, died_in.location, {}, "failed", fault, when="call"
        )
        self._session.config.hook.pytest_runtest_logreport(report=report)
        return left

    def end(self) -> None:
        """Interrupt what runs, and wait until its fixtures are gone."""
        os.kill(self.process.pid, signal.SIGINT)
        self.process.join(PATIENCE)
        self.process.kill()

    # --- in the process itself

    def work(self, telling: Reports, items: Iterable[pytest.Item]) -> None:
        """Run *items*, and tell how each went."""
        session, plugins = self._session, self._session.config.pluginmanager
        random.seed()
        session.config._tmp_path_factory._basetemp = self._folder  # pyright: ignore
        capture = cast(Any, plugins.get_plugin("capturemanager"))
        capture.stop_global_capturing()  # into files that all workers have
        capture.start_global_capturing()
        plugins.unregister(name="terminalreporter")
        # So that what pytest-timeout writes becomes a part of the report.
        plugins.register(_Captured(session.config), "terminalreporter")
        plugins.register(_Teller(session.config, telling))
        try:
            # Which fixtures stay for the following test is decided when a test ends.
            for item, following in pairwise(chain(items, [None])):
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.shouldfail or session.shouldstop:
                    break
        except KeyboardInterrupt:
            pass  # the process that collected reports it
        finally:
            session._setupstate.teardown_exact(None)  # pyright: ignore


class _Captured:
    """A plugin of a worker: what is written to it becomes a part of the report."""

    def __init__(self, config: pytest.Config) -> None:
        self._tw = create_terminal_writer(config, sys.stderr)


class _Teller:
    """A plugin of a worker: tells the process that collected."""

    def __init__(self, config: pytest.Config, telling: Reports) -> None:
        self._config = config
        self._telling = telling

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self._telling.send(("started", (nodeid, location)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._telling.send(("reported", data))

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        self._telling.send(("finished", (nodeid, location)))


def _number(at: int) -> bytes:
    return at.to_bytes(2)


def _stop_if_asked(session: pytest.Session) -> None:
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
