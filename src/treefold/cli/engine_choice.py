"""The work engine that ``--engine`` names, or the one that goes with a store."""

import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final, cast

from treefold.cli.loading import load_object
from treefold.core.errors import InvalidValueError
from treefold.core.work_engine import WorkEngine
from treefold.engines import InProcess, Procrastinate, Temporal

KEY_VARIABLE: Final = "TEMPORAL_API_KEY"
_NAMES: Final = "procrastinate, temporal:HOST:PORT, in-process or MODULE:NAME"


@dataclass(frozen=True, slots=True)
class ChosenEngine:
    """A work engine, and what it is for people.

    *is_given* says whether it is an object of a program.
    """

    engine: WorkEngine
    about: str
    is_given: bool = False


def choose_engine(name: str | None, store: str) -> ChosenEngine:
    """Return the engine of that name, for the store at that URL.

    Raises:
        InvalidValueError: there is no such engine.
    """
    kind, _, where = (name or "").partition(":")
    if name is None:
        return _default(store)
    if name == "in-process":
        return ChosenEngine(InProcess(), "each worker looks for work in the store")
    if kind == "procrastinate":
        return _procrastinate(where or store, "that database" if where else "the same database")
    if kind == "temporal":
        return _temporal(where)
    if where:
        return _loaded(name)
    raise InvalidValueError(f"--engine {name!r} is not known; give {_NAMES}")


def _default(store: str) -> ChosenEngine:
    if find_spec("procrastinate") is not None:
        return _procrastinate(store, "the same database")
    missing = "procrastinate is not installed, so each worker looks for work in the store"
    return ChosenEngine(InProcess(), missing)


def _procrastinate(url: str, where: str) -> ChosenEngine:
    from treefold.stores.postgres.address import connection_string  # noqa: PLC0415 - needs psycopg

    return ChosenEngine(
        Procrastinate(connection_string(url)), f"placed by procrastinate in {where}"
    )


def _temporal(where: str) -> ChosenEngine:
    target, _, namespace = where.partition("/")
    host, _, port = target.rpartition(":")
    if not host or not port.isdigit():
        raise InvalidValueError(
            f"--engine temporal:{where} is not temporal:HOST:PORT, such as temporal:localhost:7233"
        )
    key = os.environ.get(KEY_VARIABLE)
    engine = Temporal(target, namespace=namespace or "default", api_key=key)
    return ChosenEngine(engine, f"placed by Temporal at {target}")


def _loaded(name: str) -> ChosenEngine:
    place, _, attribute = name.rpartition(":")
    found = load_object(place, attribute)
    if isinstance(found, type) or not all(hasattr(found, one) for one in ("submit", "work")):
        raise InvalidValueError(
            f"--engine {name}: {place} has no {attribute!r} that is a work engine, such as"
            f" {attribute} = Procrastinate(...)"
        )
    return ChosenEngine(cast("WorkEngine", found), f"placed by {name}", is_given=True)
