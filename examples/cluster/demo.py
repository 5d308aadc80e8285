"""Forty runs on three workers, one of which is killed in the middle. ``make cluster-demo`` runs it.

python examples/cluster/demo.py                      # a database of its own, a scripted model
python examples/cluster/demo.py --store postgresql://localhost/app --model local

At the end it checks that every run returned what it should, and compares what the model was asked
with the journal: a reply that was recorded must not have been asked for again. Only requests that
were under way in the killed worker may be repeated.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from database import temporary_database
from model_server import ModelServer
from weather import measure_now, report

from treefold import ModelText, Node, NodeView, Runtime, ToolUse, attach
from treefold.engines import Procrastinate
from treefold.stores import WorkerRow
from treefold.stores.postgres import PostgresStore

HERE = Path(__file__).parent
PATIENCE = 300.0  # seconds for everything
LOOK = 0.2  # seconds between two looks
CITIES = ("Lyon", "Oslo")
REPLIES_EACH = 2  # of the model, for each city: it calls a function, and then answers


@dataclass
class Worker:
    """One ``treefold worker``."""

    name: str
    process: "subprocess.Popen[bytes]"


def main() -> int:
    """Run the demonstration; return its exit code."""
    options = read_options()
    # So that the servers are stopped, too.
    signal.signal(signal.SIGTERM, end)
    with ExitStack() as stack:
        url: str = options.store or stack.enter_context(temporary_database())
        server = None
        model: str = options.model
        if model == "scripted":
            # However quick the workers are, half of the work is left when one of them is killed.
            half = options.runs * len(CITIES) * REPLIES_EACH // 2
            server = stack.enter_context(ModelServer(options.seconds, pause_after=half))
            model = f"openai:scripted@{server.url}"
        workers = stack.enter_context(working(url, model, options))
        viewer = stack.enter_context(viewing(url))
        engine = Procrastinate(url)
        runtime = stack.enter_context(Runtime([report], store=url, engine=engine))
        say(f"look at it: {viewer}")
        cities = [[f"{one} {run}" for one in CITIES] for run in range(1, options.runs + 1)]
        nodes = [runtime.invoke(report, {"cities": some}) for some in cities]
        say(f"submitted {len(nodes)} runs to {len(workers)} workers")
        taken_over = follow(nodes, url, workers, server)
        faults = [
            fault
            for node, some in zip(nodes, cities, strict=True)
            if (fault := check_result(node, some, exact=server is not None)) is not None
        ]
        say(f"{len(nodes) - len(faults)} of {len(nodes)} runs ended right")
        say(f"{taken_over} of them were taken over from the worker that was killed")
        if server is not None:
            faults += check_requests(server, url, nodes)
        for fault in faults:
            say(f"WRONG: {fault}")
        if sys.stdin.isatty():
            say("Enter ends the viewer and the database")
            sys.stdin.readline()
    return 1 if faults else 0


def end(_number: int, _frame: FrameType | None) -> NoReturn:
    """End the program by an exception, as Ctrl-C does."""
    sys.exit(143)


def read_options() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description="Forty runs on three workers.")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--slots", type=int, default=5, help="runs at once on each worker")
    parser.add_argument("--lease", type=float, default=12, help="until a worker counts as dead")
    parser.add_argument("--seconds", type=float, default=0.5, help="that the scripted model thinks")
    parser.add_argument("--model", default="scripted", help="another model, such as local")
    parser.add_argument("--store", help="the URL of a database, instead of a temporary one")
    return parser.parse_args()


@contextmanager
def working(url: str, model: str, options: argparse.Namespace) -> Generator[list[Worker]]:
    """Start workers; at the end ask them to stop, as a deployment would."""
    command = [sys.executable, "-m", "treefold", "worker", str(HERE / "weather.py")]
    command += ["--model", model, "--slots", str(options.slots), "--lease", str(options.lease)]
    env = os.environ | {"TREEFOLD_STORE": url, "OPENAI_API_KEY": "none"}
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / f"worker-{number + 1}" for number in range(options.workers)]
        workers = [
            Worker(
                log.name,
                subprocess.Popen([*command, "--name", log.name], stderr=log.open("wb"), env=env),
            )
            for log in logs
        ]
        try:
            for worker, log in zip(workers, logs, strict=True):
                wait_for_line(worker, log)
            yield workers
        finally:
            for worker in workers:
                worker.process.terminate()
            for worker in workers:
                worker.process.wait(30)


def wait_for_line(worker: Worker, log: Path) -> None:
    """Print the line by which a worker says that it is ready."""
    end = time.monotonic() + PATIENCE
    while " is ready " not in log.read_text():
        if worker.process.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"{worker.name} has not started: {log.read_text()}")
        time.sleep(LOOK)
    say(log.read_text().strip().removeprefix("treefold worker: "))


@contextmanager
def viewing(url: str) -> Generator[str]:
    """Start ``treefold view``; yield the address of the page."""
    command = [sys.executable, "-m", "treefold", "view", "--no-browser", "--port", "0"]
    env = os.environ | {"TREEFOLD_STORE": url}
    viewer = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, text=True
    )
    assert viewer.stdout is not None
    try:
        yield viewer.stdout.readline().strip()
    finally:
        viewer.send_signal(signal.SIGINT)
        viewer.wait(30)


def follow(nodes: list[Node], url: str, workers: list[Worker], server: ModelServer | None) -> int:
    """Show the progress, and kill a worker in the middle; return how many runs it had."""
    end, taken_over, is_killed = time.monotonic() + PATIENCE, 0, False
    with PostgresStore(url) as store:
        while not all(node.state.final for node in nodes):
            if time.monotonic() > end:
                raise SystemExit(f"not all runs have ended after {PATIENCE:g} s")
            ended = sum(node.state.final for node in nodes)
            rows = list_workers(store)
            progress(f"{ended:3} of {len(nodes)} ended; {', '.join(map(describe, rows))}")
            is_halfway = ended >= len(nodes) // 4 or (server is not None and server.paused.is_set())
            victim = max(rows, key=lambda row: row.drives)
            if not is_killed and is_halfway and victim.drives:
                process = next(one.process for one in workers if one.name == victim.info.name)
                process.kill()
                process.wait()
                is_killed = True
                (taken_over,) = [row.drives for row in list_workers(store) if row.id == victim.id]
                say(f"killed {victim.info.name} with SIGKILL, which ran {taken_over} of them")
                if server is not None:
                    server.go_on()
            time.sleep(LOOK)
    say(f"all {len(nodes)} have ended")
    return taken_over


def list_workers(store: PostgresStore) -> list[WorkerRow]:
    """Return what ``treefold workers`` lists, without programs that only submit."""
    return sorted(
        (row for row in store.cluster.members.workers() if row.load.slots),
        key=lambda row: row.info.name,
    )


def describe(worker: WorkerRow) -> str:
    """Say what a worker does."""
    return f"{worker.info.name} " + (f"runs {worker.drives}" if worker.alive else "is dead")


def check_result(node: Node, cities: list[str], *, exact: bool) -> str | None:
    """Return what is wrong with the result of a run, None if it is right."""
    if node.exception is not None:
        return f"{node!r} failed: {node.exception}"
    found: dict[str, str] = node.outputs
    if list(found) != cities:
        return f"{node!r} returned {found!r}"
    for city, text in found.items():
        week = measure_now(city)
        right = f"{city}: {sum(week) / len(week):.1f} degrees on average "
        if exact and not text.startswith(right):
            return f"{node!r} says {text!r} of {city}"
    return None


def check_requests(server: ModelServer, url: str, nodes: list[Node]) -> list[str]:
    """Compare what the model was asked with what is recorded; return what is wrong."""
    recorded: set[int] = set()
    with attach(url) as observer:
        for node in nodes:
            recorded |= replies_in(observer.get_view(node.id))
    last = {one.question: one.reply for one in server.asked}
    again = [
        one.question
        for one in server.asked
        if one.reply in recorded and last[one.question] != one.reply
    ]
    asked = len(server.asked)
    say(
        f"the model was asked {asked} times for {len(recorded)} recorded replies: "
        f"{asked - len(recorded)} requests were lost with the worker, and {len(again)} recorded"
        " replies were asked for again"
    )
    return [f"asked again although the reply was recorded: {question}" for question in again]


def replies_in(view: NodeView) -> set[int]:
    """Return the numbers of the replies that are recorded in a call and below it."""
    texts = [part.text for part in view.transcript if isinstance(part, ModelText)]
    texts += [part.id for part in view.transcript if isinstance(part, ToolUse)]
    found = {int(number) for text in texts for number in re.findall(r"reply-(\d+)", text)}
    return found.union(*(replies_in(child) for child in view.children))


def progress(text: str) -> None:
    """Show the last line anew on a terminal; elsewhere say nothing."""
    if sys.stdout.isatty():
        print(f"\r\x1b[K==> {text}", end="", flush=True)


def say(text: str) -> None:
    """Print a line that stays."""
    if sys.stdout.isatty():
        print("\r\x1b[K", end="")
    print(f"==> {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
