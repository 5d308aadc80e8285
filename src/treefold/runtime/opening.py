"""Opens the journal of a runtime, and decides once which backend it has."""

import os
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from treefold.core.cluster import WorkerInfo
from treefold.core.errors import UsageError
from treefold.core.function import Function
from treefold.core.store import Store
from treefold.core.work_engine import WorkEngine
from treefold.runtime.backend import Backend
from treefold.runtime.driver import Driver
from treefold.runtime.durable.inbox import Execute
from treefold.runtime.durable.journal_writer import JournalWriter
from treefold.runtime.durable.loader import Loader
from treefold.runtime.durable.new_code import OnNewCode
from treefold.runtime.durable.shared_trees import SharedTrees
from treefold.runtime.durable.tree_source import CountedTrees
from treefold.runtime.durable.worker_settings import WorkerSettings
from treefold.runtime.engine import Engine
from treefold.runtime.guarding import Guarding
from treefold.runtime.services import SharedAllowances
from treefold.stores.opening import open_store


@dataclass(frozen=True, slots=True)
class Journal:
    """A journal that this process may write.

    Attributes:
        loader: reads its trees; it knows the store, and what writes the journal.
        allowances: what all workers may do together, if there are several.
        connect: makes the backend of an engine from the function that executes commands.
    """

    loader: Loader
    allowances: SharedAllowances | None
    connect: Callable[[Execute, Engine], Backend]


def open_journal(
    store: Store | str | os.PathLike[str],
    *,
    redact: Callable[[str], str] | None,
    functions: Mapping[str, Function],
    guarding: Guarding,
    on_new_code: OnNewCode,
    work_engine: WorkEngine | None,
    settings: WorkerSettings,
) -> Journal:
    """Acquire a store as its driver, or join one that several processes share.

    Raises:
        StoreOwnedError: another runtime owns it.
        StoreError: it cannot be opened.
        UsageError: there is a work engine, and the store is for one process.
    """
    opened = open_store(store)
    try:
        if opened.cluster is None:
            _refuse_engine(work_engine)
        was_killed = opened.join(_worker_info(settings, functions), lease=settings.lease)
        writer = JournalWriter(opened, redact)
        if opened.cluster is not None:
            queue, lease = min(settings.queues), settings.lease
            shared = SharedTrees(opened.cluster, writer, queue=queue, lease=lease)
            loader = Loader(writer, shared, functions, guarding, on_new_code)
            return _shared(loader, shared, work_engine, settings)
        id, number = opened.highest()
        counted = CountedTrees(writer, id=id, number=number)
        loader = Loader(writer, counted, functions, guarding, on_new_code)
    except BaseException:
        # A store that the caller has opened stays open.
        if isinstance(store, str | os.PathLike):
            opened.close()
        raise
    return Journal(loader, None, partial(Driver, loader, was_killed=was_killed))


def _refuse_engine(work_engine: WorkEngine | None) -> None:
    if work_engine is not None:
        raise UsageError(
            "engine= needs a store that several processes share: give store='postgresql://...'"
        )


def _shared(
    loader: Loader,
    source: SharedTrees,
    work_engine: WorkEngine | None,
    settings: WorkerSettings,
) -> Journal:
    from treefold.runtime.cluster.cluster_allowances import (  # noqa: PLC0415 - only shared stores
        ClusterAllowances,
    )
    from treefold.runtime.cluster.worker import Worker  # noqa: PLC0415 - as above

    allowances = ClusterAllowances(loader.store.name, source)
    connect = partial(Worker, loader, source, allowances, work_engine, settings)
    return Journal(loader, allowances, connect)


def _worker_info(settings: WorkerSettings, functions: Iterable[str]) -> WorkerInfo:
    """Return what this process tells other processes about itself."""
    return WorkerInfo(
        name=settings.known_as,
        host=platform.node(),
        process=os.getpid(),
        functions=sorted(functions),
        queues=sorted(settings.queues),
    )
