"""What a journal in PostgreSQL costs, next to the same rows written by hand, and to DBOS.

    python bench/cluster.py [--rounds 5] [--dbos] [--out bench/results/cluster.json]

The rows are those of real runs: steps of an agent with 4,000 bytes in the result of each call. They
are recorded once, in memory, and written as the runtime would: two batches for each step. The
server is started here, and waits for the disk. Machines and disks differ and are noisy, so read the
ratios, which are the medians over the rounds of one run.

The CPU time of whole trees, of the server and of a worker, is that of whole_trees.py.

With --dbos, DBOS is installed into an environment of its own (build/dbos).

    python bench/cluster.py --growth 100,10000,200000

measures instead how all costs grow with the number of trees (growth.py). The last size takes some
minutes, and 3 GB; 100,10000 take one minute.
"""

import argparse
import asyncio
import json
import platform
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, Final, LiteralString, ParamSpec

import psycopg
import whole_trees
from durable import PAYLOAD, worker

from treefold import MemoryStore, Runtime
from treefold.core.cluster import Ownership, WorkerInfo
from treefold.core.errors import FencedError
from treefold.core.fact import replace
from treefold.core.store import Batch
from treefold.stores import Entry, SqliteStore
from treefold.stores.node_status import NodeStatus
from treefold.stores.postgres import PostgresStore
from treefold.stores.postgres.rows import pack_hash
from treefold.testing.store_suite import write as write_entries

ROOT: Final = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from postgres_server import PostgresServer, with_query  # noqa: E402 - it is beside the tests

STEPS: Final = 50
DRIVES: Final = 50
GOALS: Final = {
    "append / by hand": ("at most", 1.5),
    "50 drives batched / single": ("at most", 0.6),
    "notifying / not": ("at most", 1.2),
    "DBOS step / append": ("at least", 3.0),
    "CPU of a step / SQLite's": ("at most", 2.0),
}

_EVENT: Final = """
    INSERT INTO events (tree, place, node, n, kind, body, at, state, crc)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, 0)
"""
_NODE: Final = """
    INSERT INTO nodes VALUES (
        %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, 0, 0, 0
    )
"""
_CHANGE: Final = """
    UPDATE nodes SET state = %s, open = %s, started = coalesce(started, %s), ended = %s,
        state_crc = 0, started_crc = coalesce(started_crc, 0)
    WHERE id = %s
"""
_TEXT: Final = "INSERT INTO texts VALUES (%s, %s, %s, 0) ON CONFLICT DO NOTHING"


class RecordingStore(MemoryStore):
    """Keeps the batches that a runtime writes, with their texts."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[Entry]] = []

    def append(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        self.batches += [[*batch.entries] for batch in batches]
        return super().append(batches)


async def record() -> list[list[Entry]]:
    """Return the batches of one run."""
    agent, store = worker(STEPS, "result"), RecordingStore()
    async with Runtime([agent], store=store) as runtime:
        assert await runtime.invoke(agent) == "done"
    return store.batches


class Renumbered:
    """Gives out the batches of a run again and again, each time as another tree."""

    def __init__(self, batches: list[list[Entry]]) -> None:
        self._batches = batches
        self._span = 1 + max(entry.node for batch in batches for entry in batch)
        self._next = 0

    def tree(self) -> tuple[int, list[list[Entry]]]:
        """Return the id of a new tree, and its batches."""
        shift = self._next
        self._next += self._span
        return 1 + shift, [[self._moved(entry, shift) for entry in one] for one in self._batches]

    def _moved(self, entry: Entry, shift: int) -> Entry:
        call = entry.call
        if call is not None:
            parent = call.parent + shift if call.parent else 0
            call = replace(call, parent=parent, key=call.key if parent else f"#{1 + shift}")
        return replace(entry, tree=1 + shift, node=entry.node + shift, call=call)


class Tree:
    """One tree that is written to a store, batch after batch."""

    def __init__(self, renumbered: Renumbered) -> None:
        self.id, self._rest = renumbered.tree()
        self._written = 0

    def next(self) -> Batch:
        entries = self._rest.pop(0)
        owned = Ownership(self.id, self.id, 1)
        batch = Batch(ownership=owned, entries=entries, written=self._written)
        self._written += len(entries)
        return batch

    def __len__(self) -> int:
        return len(self._rest)


def write(store: PostgresStore, *batches: Batch) -> None:
    """Write batches, none of which may be refused."""
    for outcome in store.append(batches):
        assert not isinstance(outcome, FencedError)


def append_singly(store: PostgresStore, tree: Tree) -> int:
    """Write one tree; return the number of batches."""
    count = len(tree)
    while tree:
        write(store, tree.next())
    return count


class ByHand:
    """The same rows as plain statements, each batch in one pipelined transaction."""

    def __init__(self, url: str, schema: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(f"SET search_path = {schema}".encode())

    def write_tree(self, batches: Sequence[Sequence[Entry]]) -> int:
        """Write one tree; return the number of batches."""
        place = 0
        for batch in batches:
            with self._connection.pipeline(), self._connection.transaction():
                self._write(batch, place)
            place += len(batch)
        return len(batches)

    def _write(self, entries: Sequence[Entry], place: int) -> None:
        new: dict[int, NodeStatus] = {}
        changed: dict[int, NodeStatus] = {}
        for number, entry in enumerate(entries, place + 1):
            state = None if entry.state is None else entry.state.value
            values = (entry.node, entry.number, entry.kind, entry.body, entry.at, state)
            self._execute(_EVENT, (entry.tree, number, *values))
            if entry.call is not None:
                new[entry.node] = NodeStatus()
            if entry.state is not None:
                status = new.get(entry.node) or changed.setdefault(entry.node, NodeStatus())
                status.update(entry.state, entry.at)
            for hash, text in entry.texts.items():
                self._execute(_TEXT, (entry.tree, pack_hash(hash), text.encode()))
        for entry in entries:
            if (call := entry.call) is not None:
                found = (entry.node, entry.tree, entry.tree, call.parent, call.key, call.index)
                kind = (call.function, call.idles, call.source, call.inherited)
                self._execute(_NODE, (*found, *kind, *_status(new[entry.node])))
        for node, status in changed.items():
            self._execute(_CHANGE, (*_status(status), node))

    def _execute(self, statement: LiteralString, values: Sequence[Any]) -> None:
        self._connection.execute(statement, values, prepare=True)

    def close(self) -> None:
        self._connection.close()


def _status(status: NodeStatus) -> tuple[str, bool, float | None, float | None]:
    return status.state.value, not status.state.final, status.started, status.ended


P = ParamSpec("P")


def timed(act: Callable[P, int], *args: P.args, **options: P.kwargs) -> float:
    """Return the milliseconds of each of the things that *act* counts."""
    begun = time.perf_counter()
    count = act(*args, **options)
    return (time.perf_counter() - begun) * 1e3 / count


def cpu_of(act: Callable[P, int], *args: P.args, **options: P.kwargs) -> float:
    """Return the milliseconds of CPU time of this process for each."""
    begun = time.process_time()
    count = act(*args, **options)
    return (time.process_time() - begun) * 1e3 / count


def measure_appends(url: str, recorded: list[list[Entry]], rounds: int) -> dict[str, list[float]]:
    """Measure single appends, the same by hand, many drives at once, and notifications."""
    found: dict[str, list[float]] = {}
    trees, other = Renumbered(recorded), Renumbered(recorded)
    with (
        PostgresStore(with_query(url, schema="bench")) as store,
        PostgresStore(with_query(url, schema="by_hand")),
        closing(ByHand(url, "by_hand")) as by_hand,
    ):
        store.join(WorkerInfo(name="bench", host="here", process=1), lease=3600)
        append_singly(store, Tree(trees))
        by_hand.write_tree(other.tree()[1])
        for _ in range(rounds):
            one = {
                "by hand": timed(by_hand.write_tree, other.tree()[1]),
                "append": timed(append_singly, store, Tree(trees)),
                "append cpu": cpu_of(append_singly, store, Tree(trees)),
                "single": timed(write_singly, store, [Tree(trees) for _ in range(DRIVES)]),
                "batched": timed(write_batched, store, [Tree(trees) for _ in range(DRIVES)]),
            }
            with PostgresStore(with_query(url, schema="bench")) as listener:
                listener.cluster.listen(lambda _trees: None)
                one["notifying"] = timed(append_singly, store, Tree(trees))
            one["ids, 8 processes"] = timed(reserve_at_once, with_query(url, schema="bench"))
            one["silent"] = without_notifier(store, partial(append_singly, store, Tree(trees)))
            for name, value in one.items():
                found.setdefault(name, []).append(value)
    return found


def write_singly(store: PostgresStore, trees: Sequence[Tree]) -> int:
    """Write a few batches of many drives, with one call for each."""
    for _ in range(4):
        for tree in trees:
            write(store, tree.next())
    return 4 * len(trees)


def write_batched(store: PostgresStore, trees: Sequence[Tree]) -> int:
    """Write the same with one call for all."""
    for _ in range(4):
        write(store, *[tree.next() for tree in trees])
    return 4 * len(trees)


def reserve_at_once(url: str) -> int:
    """Reserve ids in several stores at once; they take turns at one row."""

    def reserve(store: PostgresStore) -> None:
        for _ in range(20):
            store.cluster.drives.reserve(64, 1)

    with ExitStack() as stack:
        stores = [stack.enter_context(PostgresStore(url)) for _ in range(8)]
        with ThreadPoolExecutor(len(stores)) as threads:
            list(threads.map(reserve, stores))
    return 20 * len(stores)


def _send_nothing(_trees: Iterable[int]) -> None:
    pass


def without_notifier(store: PostgresStore, act: Callable[[], int]) -> float:
    """Measure what no notification is sent of."""
    notifier: Any = vars(store)["_notifier"]
    notify, notifier.notify = notifier.notify, _send_nothing
    try:
        return timed(act)
    finally:
        notifier.notify = notify


def measure_sqlite(recorded: list[list[Entry]], rounds: int, folder: Path) -> list[float]:
    """Return the CPU time of a batch in a SQLite file."""
    renumbered = Renumbered(recorded)
    with SqliteStore(folder / "bench.db") as store:
        store.join()

        def write_tree(batches: Sequence[Sequence[Entry]]) -> int:
            for batch in batches:
                write_entries(store, batch)
            return len(batches)

        write_tree(renumbered.tree()[1])
        return [cpu_of(write_tree, renumbered.tree()[1]) for _ in range(rounds)]


# DBOS

_DBOS_PROGRAM: Final = """
import json, random, sys, time
from dbos import DBOS
url, payload, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})

@DBOS.step()
def step(number):
    return f"{random.Random(number).getrandbits(payload * 4):0{payload}x}"

@DBOS.workflow()
def work(count):
    for number in range(count):
        step(number)

DBOS.launch()
work(20)
found = []
for _ in range(rounds):
    begun = time.perf_counter()
    work(100)
    found.append((time.perf_counter() - begun) * 1e3 / 100)
print("RESULT" + json.dumps(found))
sys.stdout.flush()
DBOS.destroy()
"""


def measure_dbos(server: PostgresServer, rounds: int) -> list[float] | None:
    """Return the milliseconds of a DBOS step; None if it cannot be installed."""
    folder = ROOT / "build" / "dbos"
    python = folder / "bin" / "python"
    if not python.exists():
        print("installing DBOS ...", flush=True)
        venv.create(folder, with_pip=True)
    install = [python, "-m", "pip", "install", "--quiet", "dbos==3.3.0", "psycopg[binary]"]
    if subprocess.run(install, check=False, capture_output=True).returncode:
        print("DBOS cannot be installed here, so it is not compared")
        return None
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE dbos")
    command = [python, "-c", _DBOS_PROGRAM, server.url("dbos"), str(PAYLOAD), str(rounds)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    if "RESULT" not in done.stdout:
        print(f"DBOS failed, so it is not compared: {done.stderr[-500:]}")
        return None
    return json.loads(done.stdout.rpartition("RESULT")[2].strip())


def ratios(found: dict[str, list[float]]) -> dict[str, float]:
    """Return what was measured as ratios, each the median over the rounds."""

    def ratio(above: str, below: str) -> float:
        pairs = zip(found[above], found[below], strict=True)
        return statistics.median(one / other for one, other in pairs)

    result = {
        "append / by hand": ratio("append", "by hand"),
        "50 drives batched / single": ratio("batched", "single"),
        "notifying / not": ratio("notifying", "silent"),
        "CPU of a step / SQLite's": ratio("append cpu", "sqlite cpu"),
    }
    if "dbos" in found:
        # A step of DBOS is one commit, as one append is.
        result["DBOS step / append"] = ratio("dbos", "append")
    return result


def report(found: dict[str, list[float]]) -> None:
    """Print what was measured."""
    for name, values in found.items():
        middle, span = statistics.median(values), f"{min(values):.3f} to {max(values):.3f}"
        print(f"{name:28}{middle:10.3f} ms  ({span})")
    print()
    for name, value in ratios(found).items():
        word, goal = GOALS[name]
        print(f"{name:28}{value:10.2f}     (goal: {word} {goal:g})")


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dbos", action="store_true", help="install DBOS, and compare with it")
    parser.add_argument(
        "--growth", metavar="TREES,...", help="measure how costs grow in stores of these sizes"
    )
    results = Path(__file__).parent / "results"
    parser.add_argument("--out", type=Path, help="bench/results/cluster.json or growth.json")
    options = parser.parse_args()
    if options.growth is not None:
        from growth import grow  # noqa: PLC0415 - it finds what is beside the tests

        sizes = sorted(int(size) for size in options.growth.split(","))
        write_results(options.out or results / "growth.json", grow(sizes))
        return
    print(f"Python {platform.python_version()}, {options.rounds} rounds\n")
    recorded = asyncio.run(record())
    settings = {"fsync": "on", "full_page_writes": "on", "shared_buffers": "256MB"}
    with PostgresServer(settings) as server:
        of_trees = asyncio.run(whole_trees.measure(server, trees=200, together=8))
        found = measure_appends(server.url(), recorded, options.rounds)
        found["sqlite cpu"] = measure_sqlite(recorded, options.rounds, server.folder)
        dbos = measure_dbos(server, options.rounds) if options.dbos else None
        if dbos is not None:
            found["dbos"] = dbos
        elif not options.dbos:
            print("DBOS is not compared; --dbos installs it\n")
    report(found)
    whole_trees.report(of_trees)
    write_results(
        options.out or results / "cluster.json",
        {"ms": found, "ratios": ratios(found), "trees": of_trees},
    )


def write_results(path: Path, found: object) -> None:
    """Write JSON to *path*."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1))
    print(f"written to {path}")


if __name__ == "__main__":
    main()
