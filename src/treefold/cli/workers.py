"""``treefold workers``: list the workers of a store, and ask one to stop."""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

import click

from treefold.cli.exit_codes import DONE
from treefold.cli.journal import shared_journal
from treefold.cli.options import command, json_option, shared_store_option
from treefold.cli.output import aligned, columns, duration, print_json
from treefold.core.cluster import Cluster, Drives, WorkerRow
from treefold.core.errors import InvalidValueError
from treefold.core.suggestions import did_you_mean
from treefold.core.truncation import truncate
from treefold.views.text import readable

_HEAD = (
    "ID", "NAME", "STATE", "HOST", "PROCESS", "QUEUES", "FUNCTIONS", "RUNNING", "WAITING", "SLOTS",
    "SEEN",
)  # fmt: skip


@command(
    "workers",
    exit_codes="0 they were listed, or it was asked to stop, 2 there is no such store or worker",
)
@click.argument(
    "action",
    type=click.Choice(["list", "drain"]),
    default="list",
    help="list them, or ask one to stop as SIGTERM would",
)
@click.argument("worker", metavar="[NAME]", required=False, help="the name or the id of a worker")
@shared_store_option
@json_option
def workers(action: str, worker: str | None, store: str | None, *, json: bool) -> int:
    """List the workers that share a store, or ask one of them to stop.

    example: treefold workers --store postgresql://localhost/app

    A worker is 'alive', 'draining' if it gives up what it runs because it is to stop, or 'dead' if
    it was last seen longer ago than its lease; then others take over what it ran. WAITING are runs
    that only wait, for a person or for calls that others run; they take none of the SLOTS. A
    program that only submits calls, or runs its own, is listed as long as it is connected, without
    queues. Below are the runs of all queues that wait for a worker, and the calls in doubt.
    """
    with _cluster(store) as cluster:
        rows = sorted(cluster.members.workers(), key=lambda row: row.id)
        if action == "drain":
            found = _named(rows, worker)
            cluster.members.drain(found.id)
            print(readable(f"{found.info.name} was asked to stop"))
        elif worker is not None:
            raise InvalidValueError(f"list takes no name, got {worker!r}; drain does")
        elif json:
            print_json([_data(row) for row in rows])
        else:
            _print([*_table(rows), *_waiting(cluster.drives)])
    return DONE


@contextmanager
def _cluster(store: str | None) -> Generator[Cluster]:
    """Open the store that workers share."""
    from treefold.stores.opening import open_store  # noqa: PLC0415 - --help needs none

    opened = open_store(shared_journal(store), create=False)
    try:
        assert opened.cluster is not None  # as that of every store with a URL
        yield opened.cluster
    finally:
        opened.close()


def _print(lines: Iterable[str]) -> None:
    room = columns()
    for line in lines:
        print(truncate(readable(line), room))


def _table(rows: Sequence[WorkerRow]) -> Iterable[str]:
    return aligned([_HEAD, *(_cells(row) for row in rows)]) if rows else ["no workers"]


def _waiting(drives: Drives) -> Iterable[str]:
    """Yield what waits, for a worker and for a person, if anything does."""
    owed, doubts = drives.depth(), drives.doubts()
    if owed.count:
        oldest = duration(owed.oldest)
        yield f"{_counted(owed.count, 'run')} for a worker, the first for {oldest}"
    if doubts:
        yield f"{_counted(doubts, 'call')} in doubt for a person: treefold questions"


def _counted(count: int, noun: str) -> str:
    return f"1 {noun} waits" if count == 1 else f"{count:,} {noun}s wait"


def _cells(row: WorkerRow) -> Sequence[str]:
    found = _data(row)
    return (
        str(found["id"]),
        found["name"],
        found["state"],
        found["host"],
        str(found["process"]),
        ", ".join(found["queues"]) or "-",
        str(len(found["functions"])),
        *(str(found[one]) for one in ("running", "waiting", "slots")),
        f"{duration(found['seen'])} ago",
    )


def _data(row: WorkerRow) -> dict[str, Any]:
    info, load = row.info, row.load
    return {
        "id": row.id,
        "name": info.name,
        "state": _state(row),
        "host": info.host,
        "process": info.process,
        # One that takes no work serves no queue.
        "queues": sorted(info.queues) if load.slots else [],
        "functions": sorted(info.functions),
        "running": load.running,
        "waiting": load.waiting,
        "slots": load.slots,
        "owned": row.drives,
        "seen": round(row.seen, 3),
    }


def _state(row: WorkerRow) -> str:
    if not row.alive:
        return "dead"
    return "draining" if row.load.draining else "alive"


def _named(rows: Iterable[WorkerRow], name: str | None) -> WorkerRow:
    """Return the living worker of that name, or with that id.

    Raises:
        InvalidValueError: there is none, or there are several.
    """
    if name is None:
        raise InvalidValueError("drain which? Give the name or the id of a worker")
    alive = [row for row in rows if row.alive]
    found = [row for row in alive if name in {row.info.name, str(row.id)}]
    if len(found) > 1:
        ids = ", ".join(str(row.id) for row in found)
        raise InvalidValueError(f"several workers are called {name!r}; give an id: {ids}")
    if not found and any(row.info.name == name for row in rows):
        raise InvalidValueError(f"{name!r} is dead: others take over what it ran")
    if not found:
        hint = did_you_mean(name, [row.info.name for row in alive], then=" ")
        raise InvalidValueError(f"there is no worker {name!r}; {hint}'treefold workers' lists them")
    return found[0]
