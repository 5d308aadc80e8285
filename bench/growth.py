"""How the costs of a store in PostgreSQL grow with the trees in it, for ``cluster.py --growth``.

Trees of three kinds are recorded by a real worker, and copied by SQL, as many as wanted: nine of
ten have ended, the others wait for a person or for a time. Then all that a worker or a person does
is done a few times. Counted are the statements, the pages that the server looks at, and its CPU
time, for each of them: other programs on the machine change none of these much.
"""

import asyncio
import logging
import random
import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, LiteralString, cast

import psycopg

from postgres_server import PostgresServer
from treefold import (
    NodeState,
    RunContext,
    Runtime,
    ToolResult,
    ToolUse,
    UserText,
    WorkerPhase,
    WorkerSettings,
    agent,
    attach,
    tool,
)
from treefold.cli.journal import node_id
from treefold.core.cluster import Load, WorkerInfo
from treefold.core.fact import replace
from treefold.core.store import Batch, Store
from treefold.core.work_engine import Ticket
from treefold.engines import Procrastinate
from treefold.stores.postgres import PostgresStore
from treefold.testing import ScriptedModel, ScriptedRequest
from treefold.testing.cluster_suite import cluster_of
from treefold.testing.store_suite import called, changed

SETTINGS: Final = {
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "top",
    "shared_buffers": "256MB",
    # Nothing here waits for the disk: no time is measured.
    "synchronous_commit": "off",
    "max_connections": "300",
    "autovacuum_naptime": "10s",
    "max_wal_size": "8GB",
}
SIZES: Final = (100, 10_000, 200_000)
PATIENCE: Final = 60.0  # seconds
STEPS: Final = 3  # of an agent
MORE: Final = 10  # of one that is compared with it
RESULT: Final = 1000  # bytes that each of its calls returns
PAGE: Final = 50  # trees
ASKED: Final = 5  # questions: as many as the smallest store has
OWED: Final = 50  # drives
IDLE: Final = 10.0  # seconds
OTHERS: Final = 8  # workers beside the one that runs a tree
TIMES: Final = 50  # that something quick is done
TREES: Final = 20  # that are run
FEW: Final = 4

# Statements and pages of one thing in the largest store, as a multiple of those in the one before.
# In a store of a hundred trees the server reads whole tables, which are a page each.
GOAL: Final = 2.0


@tool(repeatable=True)
async def look(step: int) -> str:
    """Look something up."""
    return f"{random.Random(step).getrandbits(RESULT * 4):0{RESULT}x}"


@agent(uses=[look])
def report(steps: int) -> str:
    """Write a report."""
    return f"Write in {steps} steps."


@tool(repeatable=True)
async def ask(ctx: RunContext) -> str:
    """Ask a person."""
    return await ctx.ask("Go on?", ["yes", "no"])


@tool(repeatable=True)
async def sleep(ctx: RunContext) -> str:
    """Sleep for long."""
    await ctx.sleep(timedelta(days=30))
    return "awake"


def reply(request: ScriptedRequest) -> Any:
    """Ask for a call in each request but the last."""
    done = sum(isinstance(part, ToolResult) for part in request.transcript)
    asked = request.transcript[0]
    assert isinstance(asked, UserText)
    last = int(asked.text.split()[2]) - 1
    return [ToolUse(str(done), "look", {"step": done})] if done < last else "A report."


_FIRST: Final = 10_000_000  # the id of the first copy; those of real trees are below
FUNCTIONS: Final = (report, ask, sleep)
KINDS: Final = {"report": 90, "ask": 8, "sleep": 2}  # of a hundred trees


# Copies

# What is copied are the rows of one tree; every id is moved by $move. The checksums are those of
# treefold.stores.checksums: numbers are little-endian there.
_INT: Final = "reverse(int8send({}))"
_FLOAT: Final = "reverse(float8send(coalesce({}, -1)))"
_MOVES: Final = """
    generate_series(%(first)s::bigint, %(first)s + (%(count)s - 1) * %(span)s, %(span)s)
"""


def _crc(numbers: Sequence[str], text: str) -> str:
    return f"crc32({' || '.join(numbers)} || convert_to({text}, 'UTF8'))"


def _ints(*columns: str) -> list[str]:
    return [_INT.format(f"({column})::bigint") for column in columns]


_QUESTION: Final = "replace(question, '\"' || tree || '-', '\"' || (tree + move) || '-')"
_EVENT: Final = f"replace({_QUESTION}, '\"node\":' || tree, '\"node\":' || (tree + move))"
_EVENT_CRC: Final = _crc(
    [*_ints("0", "tree + move", "node + move", "n"), _FLOAT.format("at")],
    f"kind || ' ' || coalesce(state, 'None') || ' ' || coalesce(settled, 'None') || ' '"
    f" || coalesce({_EVENT}, 'None') || ' ' || body",
)
_PARENT: Final = "CASE WHEN parent = 0 THEN 0 ELSE parent + move END"
_NUMBER: Final = "CASE WHEN parent = 0 THEN tree + move ELSE number END"
_KEY: Final = "CASE WHEN parent = 0 THEN '#' || (tree + move) ELSE call_key END"
_CALL_CRC: Final = _crc(
    _ints("id + move", "tree + move", "drive + move", _PARENT, _NUMBER, "idles::int", "0", "0"),
    f"function || ' ' || {_KEY}",
)
_STATE_CRC: Final = _crc([*_ints("id + move"), _FLOAT.format("ended")], "state")
_START_CRC: Final = f"crc32({_ints('id + move')[0]} || {_FLOAT.format('started')})"
_ASKED_CRC: Final = _crc(
    [*_ints("node + move"), _FLOAT.format("due")],
    "(tree + move) || ' ' || asks::int || ' ' || (tree + move) || '-' || split_part(id, '-', 2)",
)
_COPIES: Final = {
    "drives": """
        INSERT INTO drives (node, tree, epoch, written, last, wanted, wake_at, queue, priority)
        SELECT node + move, tree + move, epoch, written, last, wanted, wake_at, queue, priority
        FROM drives
    """,
    "nodes": f"""
        INSERT INTO nodes
        SELECT id + move, tree + move, drive + move, {_PARENT}, {_KEY}, {_NUMBER}, function, idles,
            0, 0, state, open, started, ended, {_CALL_CRC}, {_STATE_CRC}, {_START_CRC}
        FROM nodes
    """,
    "events": f"""
        INSERT INTO events
        SELECT tree + move, place, node + move, n, kind, body, at, state, {_EVENT}, settled,
            {_EVENT_CRC}
        FROM events
    """,
    "texts": """
        INSERT INTO texts SELECT tree + move, hash, text, crc FROM texts
    """,
    "questions": f"""
        INSERT INTO questions (id, node, tree, place, asks, in_doubt, due, crc)
        SELECT (tree + move) || '-' || split_part(id, '-', 2), node + move, tree + move, place,
            asks, in_doubt, due, {_ASKED_CRC}
        FROM questions
    """,
}


@dataclass(frozen=True)
class Template:
    """A tree that is copied: its id, and how many ids it has."""

    tree: int
    span: int


class Copies:
    """Fills a store with copies of a few trees."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True, options="-c search_path=treefold")
        self._count = 0
        self._next = _FIRST
        self._templates = _record(url, self._connection)

    def fill(self, wanted: int) -> None:
        """Add trees until so many are there, as evenly mixed as possible."""
        # Those that were run since then have ids, too.
        [(used,)] = _fetch(self._connection, "SELECT greatest(node, number) FROM journal")
        self._next = max(self._next, used + 1)
        while self._count < wanted:
            # In portions, so that the newest trees are not all of one kind.
            portion = min(wanted - self._count, 20_000)
            for kind, share in KINDS.items():
                self._copy(self._templates[kind], portion * share // 100)
            self._count += portion
            print(f"  {self._count:,} trees", flush=True)
        self._connection.execute(
            "UPDATE journal SET node = %(last)s, number = %(last)s", {"last": self._next}
        )
        self._connection.execute("VACUUM ANALYZE")
        self._connection.execute("CHECKPOINT")

    def _copy(self, template: Template, count: int) -> None:
        if not count:
            return
        first = self._next - template.tree
        values = {"first": first, "count": count, "span": template.span, "tree": template.tree}
        for copy in _COPIES.values():
            text = f"{copy} CROSS JOIN {_MOVES} AS move WHERE tree = %(tree)s"
            self._connection.execute(cast("LiteralString", text), values)
        self._next += count * template.span

    def some(self, function: str, count: int) -> list[int]:
        """Return some of the copies of one function, from anywhere among them."""
        search = """
            SELECT id FROM nodes
            WHERE parent = 0 AND number = id AND function = %s AND open = (function <> 'report')
                AND NOT EXISTS (
                    SELECT 1 FROM drives WHERE node = id AND wanted IS NOT NULL AND wake_at IS NULL
                )
            ORDER BY hashint8(id) LIMIT %s
        """
        found = self._connection.execute(search, (function, count)).fetchall()
        return [id for (id,) in found]

    def close(self) -> None:
        self._connection.close()


def _record(url: str, connection: "psycopg.Connection[Any]") -> Mapping[str, Template]:
    """Run one tree of each kind, and return them as they are when nothing is left to do."""
    with working(url) as runtime:
        nodes = [
            runtime.invoke(one, {"steps": STEPS} if one is report else {}) for one in FUNCTIONS
        ]
        nodes[0].result(PATIENCE)
        search = "SELECT count(*) FROM treefold.drives WHERE owner IS NOT NULL"
        until(lambda: len(_fetch(connection, "SELECT 1 FROM treefold.questions")) == 2)
        until(lambda: _fetch(connection, search) == [(0,)])
    spans = "SELECT tree, max(id) - tree + 1 FROM nodes GROUP BY tree ORDER BY tree"
    found = [Template(tree, span) for tree, span in _fetch(connection, spans)]
    return dict(zip(KINDS, found, strict=True))


def _fetch(connection: "psycopg.Connection[Any]", text: str) -> list[tuple[Any, ...]]:
    return connection.execute(cast("LiteralString", text)).fetchall()


def until(holds: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError("it did not happen in time")
        time.sleep(0.01)


@contextmanager
def working(url: str, **settings: Any) -> Generator[Runtime]:
    """Have a worker in this process run what procrastinate delivers."""
    runtime = Runtime(
        FUNCTIONS,
        models=ScriptedModel(reply),
        store=url,
        engine=Procrastinate(url),
        worker=WorkerSettings(**settings),
    )
    stop, begun = asyncio.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def work() -> None:
        loops.append(asyncio.get_running_loop())
        begun.set()
        async with runtime:
            await runtime.work(stop=stop, drain=PATIENCE)

    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(asyncio.run, work())
        try:
            until(lambda: ended.done() or runtime.worker_status().phase is WorkerPhase.Ready)
            yield runtime
        finally:
            if not ended.done():
                loops[0].call_soon_threadsafe(stop.set)
            ended.result(PATIENCE)


# What is counted


@dataclass(frozen=True)
class Cost:
    """What one thing costs the server.

    Attributes:
        statements: that a client sends; what functions execute inside is a part of theirs.
        pages: that the server looked at, in its memory or elsewhere.
        cpu: milliseconds of CPU time.
        wal: bytes of the write-ahead log.
        notices: statements that only notify, which are among the statements.
        client: milliseconds of CPU time of this process, which is the worker and its caller.
        transactions: that have written something.
    """

    statements: float
    pages: float
    cpu: float
    wal: float
    notices: float
    client: float
    transactions: float


class Meter:
    """Counts what a server does."""

    def __init__(self, server: PostgresServer) -> None:
        # In a database of its own, so that its own statements are not counted.
        self._connection = psycopg.connect(server.url("template1"), autocommit=True)
        self._connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")

    def cost(self, act: Callable[[], int]) -> Cost:
        """Return what each of the things costs that *act* does and counts."""
        self._connection.execute("SELECT pg_stat_statements_reset()")
        before, first = self._cpu(), self._transactions()
        begun = time.process_time()
        count = act()
        client = (time.process_time() - begun) * 1e3
        after, last = self._cpu(), self._transactions()
        search = """
            SELECT coalesce(sum(calls), 0), coalesce(sum(shared_blks_hit + shared_blks_read), 0),
                coalesce(sum(wal_bytes), 0),
                coalesce(sum(calls) FILTER (WHERE query LIKE 'SELECT pg_notify%'), 0)
            FROM pg_stat_statements
            WHERE dbid = (SELECT oid FROM pg_database WHERE datname = 'postgres')
        """
        [(statements, pages, wal, notices)] = _fetch(self._connection, search)
        # What a session has run that was closed meanwhile is not known.
        cpu = sum(ran - before.get(pid, 0) for pid, ran in after.items()) / 1e6
        values = (statements, pages, cpu, wal, notices, client, last - first)
        return Cost(*(float(one) / count for one in values))

    def _cpu(self) -> dict[int, int]:
        """Return the nanoseconds that each session has run."""
        return {pid: int(text.split()[0]) for pid, text in self._about("schedstat").items()}

    def _transactions(self) -> int:
        search = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
        return _fetch(self._connection, search)[0][0]

    def memory(self) -> list[int]:
        """Return the bytes of each session that no other process shares."""
        texts = self._about("smaps_rollup").values()
        kept = [re.findall(r"^Private_\w+: +(\d+) kB$", text, re.MULTILINE) for text in texts]
        return [1024 * sum(map(int, sizes)) for sizes in kept]

    def _about(self, file: str) -> dict[int, str]:
        """Return what the system says about each session of the store, if it says anything."""
        found: dict[int, str] = {}
        search = "SELECT pid FROM pg_stat_activity WHERE application_name = 'treefold'"
        for (pid,) in _fetch(self._connection, search):
            with suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/{file}").read_text("ascii")
        return found

    def close(self) -> None:
        self._connection.close()


# What is done


class Doing:
    """Does what is measured, on a store that is filled; each method returns how often it did it."""

    def __init__(self, url: str, copies: Copies, stack: ExitStack) -> None:
        self._url = url
        self._store = stack.enter_context(PostgresStore(url))
        self._store.join(WorkerInfo(name="bench", host="here", process=1), lease=3600)
        self._observer = stack.enter_context(attach(url))
        self._ended = copies.some("report", 40)
        self._asking = copies.some("ask", 2 * FEW)
        # Not the last ones: there is a whole page after each.
        self._paged = sorted(self._ended)[: len(self._ended) // 2]
        first, number = self._store.cluster.drives.reserve(OWED, OWED)
        self._owed = range(first, first + OWED)
        for place, node in enumerate(self._owed):
            entry, ticket = called(node, index=number + place), Ticket(node=node, queue="bench")
            self._store.append([Batch(ownership=None, entries=[entry], tickets=[ticket])])

    def all(self) -> Mapping[str, Callable[[], int]]:
        """Return what is done without a worker, by its name."""
        return {
            "adopt and release": self.adopt,
            "read an adopted tree": self.load,
            "sweep": self.sweep,
            "heartbeat": self.beat,
            "how much is owed": self.depth,
            "list a page of trees": self.page,
            "list a page of questions": self.questions,
            "find a tree by its number": self.find,
            "answer": self.answer,
            "delete a tree": self.delete,
        }

    def adopt(self) -> int:
        for node in self._owed:
            owned = self._store.cluster.drives.adopt(node)
            assert owned is not None  # no other worker serves its queue
            self._store.cluster.drives.release(owned, parked=False)
        return len(self._owed)

    def load(self) -> int:
        for tree in self._ended:
            self._store.entries(tree)
            self._store.texts(tree)
        return len(self._ended)

    def sweep(self) -> int:
        for _ in range(TIMES):
            self._store.cluster.drives.owed(200, older_than=0.0, queues=["bench"])
            self._store.cluster.drives.owed(200, older_than=0.0, after=0)
        return TIMES

    def page(self) -> int:
        for tree in self._paged:
            self._store.trees(after=tree - 1, limit=PAGE)
        return len(self._paged)

    def questions(self) -> int:
        for _ in range(TIMES):
            self._store.questions(limit=ASKED)
        return TIMES

    def find(self) -> int:
        for tree in self._ended[:FEW]:
            node_id(self._observer, str(tree))
        return FEW

    def answer(self) -> int:
        count = min(FEW, len(self._asking))
        for _ in range(count):
            [question] = self._observer.questions(node=self._asking.pop())
            self._observer.answer(question.id, "yes")
        return count

    def beat(self) -> int:
        for _ in range(TIMES):
            self._store.cluster.members.beat(Load())
        return TIMES

    def depth(self) -> int:
        for _ in range(TIMES):
            self._store.cluster.drives.depth(["bench"])
        return TIMES

    def delete(self) -> int:
        for _ in range(FEW):
            self._store.delete(self._ended.pop())
        return FEW

    def close(self) -> None:
        """End what is owed."""
        for node in self._owed:
            owned = self._store.cluster.drives.adopt(node)
            assert owned is not None  # as above
            end = replace(changed(node, 2, NodeState.Canceled), kind="CallEnded")
            self._store.append([Batch(ownership=owned, entries=[end], written=1)])
            self._store.cluster.drives.release(owned, parked=False)


def start(url: str) -> int:
    """Start a worker until it is ready, and stop it."""
    with working(url, queues=["start"]):
        return 1


def run(runtime: Runtime, steps: int = STEPS) -> int:
    """Run agents, one after the other."""
    for _ in range(TREES):
        runtime.invoke(report, {"steps": steps}).result(PATIENCE)
    return TREES


def park(runtime: Runtime) -> int:
    """Run trees that ask a person, answer them when they are parked, and wait for their ends."""
    nodes = [runtime.invoke(ask) for _ in range(TREES)]
    store = _store_of(runtime)
    until(lambda: all(store.questions(node=node.id) for node in nodes))
    for node in nodes:
        [question] = store.questions(node=node.id)
        runtime.answer(question.id, "yes")
    for node in nodes:
        node.result(PATIENCE)
    return TREES


def _store_of(runtime: Runtime) -> Store:
    store = runtime.store
    assert store is not None
    return store


def idle() -> int:
    """Let a worker do nothing; the cost is for a second."""
    time.sleep(IDLE)
    return round(IDLE)


def _values(cost: Cost) -> list[float]:
    return list(asdict(cost).values())


def measure(url: str, copies: Copies, meter: Meter) -> dict[str, Cost]:
    """Do everything once to warm up, and then measure it."""
    found: dict[str, Cost] = {}

    def note(name: str, act: Callable[[], int]) -> None:
        act()
        found[name] = meter.cost(act)
        one = found[name]
        print(f"  {name:28}{one.statements:10.1f}{one.pages:10.1f}{one.cpu:10.2f}", flush=True)

    print(f"  {'':28}{'statements':>10}{'pages':>10}{'CPU ms':>10}", flush=True)
    note("start and stop a worker", partial(start, url))
    with working(url, queues=["default"]) as runtime:
        note("a tree of three steps", partial(run, runtime))
        note("ten steps more", partial(run, runtime, STEPS + MORE))
        longer, least = found["ten steps more"], found["a tree of three steps"]
        found["ten steps more"] = Cost(
            *(more - less for more, less in zip(_values(longer), _values(least), strict=True))
        )
        note("a tree that asks", partial(park, runtime))
        note("a second of an idle worker", idle)
    with ExitStack() as stack:
        doing = Doing(url, copies, stack)
        for name, act in doing.all().items():
            note(name, act)
        doing.close()
    # What was answered is run, so that the next store is as quiet as this one was.
    with working(url, queues=["default"]) as runtime:
        drives = cluster_of(_store_of(runtime)).drives
        until(lambda: drives.depth().count == 0)
    return found


# Workers beside the one that runs a tree


def measure_crowds(url: str, meter: Meter) -> dict[str, dict[str, float]]:
    """Measure what each further worker costs that has nothing to do, and print it."""
    alone = _beside(url, meter, 0, "")
    found: dict[str, dict[str, float]] = {}
    for name, queue in {"serves the same queue": "default", "serves another": "other"}.items():
        more = _beside(url, meter, OTHERS, queue)
        found[name] = {what: (more[what] - alone[what]) / OTHERS for what in alone}
    print("\nwhat each further worker adds that has nothing to do and")
    print(f"{'':28}" + "".join(f"{name:>24}" for name in found))
    for what in alone:
        print(f"{what:28}" + "".join(f"{one[what]:24.2f}" for one in found.values()))
    return found


def _beside(url: str, meter: Meter, others: int, queue: str) -> dict[str, float]:
    with ExitStack() as stack:
        runtime = stack.enter_context(working(url, queues=["default"]))
        for _ in range(others):
            stack.enter_context(working(url, queues=[queue]))
        run(runtime)
        begun = time.monotonic()
        tree = meter.cost(partial(run, runtime))
        seconds = (time.monotonic() - begun) / TREES
        second = meter.cost(idle)
        kept = meter.memory()
    net = {what: getattr(tree, what) - seconds * getattr(second, what) for what in _ADDED}
    return {
        **{f"{told} of a tree": net[what] for what, told in _ADDED.items()},
        **{f"{told} in a second": getattr(second, what) for what, told in _ADDED.items()},
        "sessions": len(kept),
        "MB that they do not share": sum(kept) / 1e6,
    }


_ADDED: Final = {"statements": "statements", "cpu": "server ms", "client": "client ms"}

# Space, and what the server has to clean up

_SPACE: Final = """
    SELECT relname, n_live_tup, pg_relation_size(relid), indexes, toast
    FROM pg_stat_user_tables
    CROSS JOIN LATERAL (
        SELECT pg_indexes_size(relid) AS indexes,
            pg_table_size(relid) - pg_relation_size(relid) AS toast
    ) AS sizes
    WHERE schemaname = 'treefold' AND n_live_tup >= %s ORDER BY pg_total_relation_size(relid) DESC
"""
_INDEXES: Final = """
    SELECT indexrelname, pg_relation_size(indexrelid) FROM pg_stat_user_indexes
    WHERE schemaname = 'treefold' AND pg_relation_size(indexrelid) >= %s
    ORDER BY pg_relation_size(indexrelid) DESC
"""
_CHANGES: Final = """
    SELECT schemaname || '.' || relname, n_tup_ins, n_tup_upd, n_tup_hot_upd, n_tup_del
    FROM pg_stat_user_tables WHERE schemaname IN ('treefold', 'treefold_jobs')
"""
_OTHERS: Final = """
    SELECT count(*) FROM pg_stat_activity
    WHERE application_name = 'treefold' AND datname = 'postgres'
"""


def space(connection: "psycopg.Connection[Any]", trees: int) -> dict[str, tuple[float, ...]]:
    """Return for each table with a row per tree: rows, bytes of rows and of indexes, of a tree."""
    rows = connection.execute(cast("LiteralString", _SPACE), (trees // 20,)).fetchall()
    found = {name: (live, heap + toast, index) for name, live, heap, index, toast in rows}
    return {name: tuple(one / trees for one in values) for name, values in found.items()}


def index_space(connection: "psycopg.Connection[Any]", trees: int) -> dict[str, float]:
    """Return the bytes of a tree in each index, if that is one byte at least."""
    rows = connection.execute(cast("LiteralString", _INDEXES), (trees,)).fetchall()
    return {name: size / trees for name, size in rows}


def changes(
    url: str, connection: "psycopg.Connection[Any]", act: Callable[[Runtime], int]
) -> dict[str, tuple[float, ...]]:
    """Return how many rows each thing inserts, updates, updates in place (HOT) and deletes."""

    def counted() -> dict[str, tuple[int, ...]]:
        return {name: tuple(values) for name, *values in _fetch(connection, _CHANGES)}

    before = counted()
    # A session reports all that it did when it ends.
    with working(url, queues=["default"]) as runtime:
        count = act(runtime)
    until(lambda: _fetch(connection, _OTHERS) == [(0,)])
    after = counted()
    found: dict[str, tuple[float, ...]] = {}
    for name, values in after.items():
        was = before.get(name, (0,) * len(values))
        if any(delta := [now - then for now, then in zip(values, was, strict=True)]):
            found[name] = tuple(one / count for one in delta)
    return found


# All of it

_TOLD: Final = {
    "statements": "statements",
    "pages": "pages that the server looks at",
    "cpu": "CPU ms of the server",
    "client": "CPU ms of the client",
    "wal": "bytes of the write-ahead log",
    "notices": "notifications",
    "transactions": "transactions that write",
}


def grow(sizes: Sequence[int]) -> dict[str, Any]:
    """Measure stores of these sizes, print tables, and return what was measured."""
    # What waits for a person is no news here.
    logging.getLogger("treefold").setLevel(logging.ERROR)
    found: dict[int, dict[str, Cost]] = {}
    with PostgresServer(SETTINGS) as server, ExitStack() as stack:
        url = server.url()
        meter = stack.enter_context(closing(Meter(server)))
        PostgresStore(url).close()  # creates the tables
        copies = stack.enter_context(closing(Copies(url)))
        connection = stack.enter_context(psycopg.connect(url, autocommit=True))
        crowds = measure_crowds(url, meter)
        for size in sizes:
            begun = time.monotonic()
            print(f"\n{size:,} trees:", flush=True)
            copies.fill(size)
            print(f"  filled in {time.monotonic() - begun:.0f} s", flush=True)
            found[size] = measure(url, copies, meter)
        tables, indexes = space(connection, sizes[-1]), index_space(connection, sizes[-1])
        changed_by = {
            "a tree of three steps": changes(url, connection, run),
            "a tree that asks": changes(url, connection, park),
        }
    _print_growth(found)
    _print_space(tables, indexes)
    _print_changes(changed_by)
    return {
        "costs": {
            size: {name: asdict(one) for name, one in costs.items()}
            for size, costs in found.items()
        },
        "each further worker": crowds,
        "bytes of a tree": tables,
        "bytes of a tree in indexes": indexes,
        "rows of a tree": changed_by,
    }


def _print_growth(found: Mapping[int, Mapping[str, Cost]]) -> None:
    sizes = list(found)
    for what, told_as in _TOLD.items():
        print(f"\n{told_as}, in stores of so many trees")
        print(f"{'':28}" + "".join(f"{size:>12,}" for size in sizes) + f"{'ratio':>10}")
        for name in found[sizes[0]]:
            values = [getattr(found[size][name], what) for size in sizes]
            ratio = values[-1] / values[0] if values[0] else 1.0
            grown = values[-1] / max(values[-2], 1) if len(values) > 1 else 1.0
            told = "  grows" if what in {"statements", "pages"} and grown > GOAL else ""
            print(f"{name:28}" + "".join(f"{one:12.2f}" for one in values) + f"{ratio:10.2f}{told}")


def _print_space(tables: Mapping[str, Sequence[float]], indexes: Mapping[str, float]) -> None:
    print("\nbytes of a tree: 90 of 100 are agents of three steps, 10 wait")
    print(f"{'':28}{'rows':>10}{'bytes':>10}{'indexes':>10}")
    for name, (rows, heap, index) in tables.items():
        print(f"{name:28}{rows:10.2f}{heap:10.0f}{index:10.0f}")
    total = sum(heap + index for _, heap, index in tables.values())
    print(f"{'all':28}{'':10}{total:10.0f}\n")
    for name, size in indexes.items():
        print(f"{name:28}{size:10.0f}")


def _print_changes(changed_by: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    for what, tables in changed_by.items():
        print(f"\nrows that {what} changes")
        print(f"{'':32}{'inserted':>10}{'updated':>10}{'in place':>10}{'deleted':>10}{'dead':>10}")
        for name, (inserted, updated, hot, deleted) in sorted(tables.items()):
            values = (inserted, updated, hot, deleted, updated - hot + deleted)
            print(f"{name:32}" + "".join(f"{one:10.2f}" for one in values))
