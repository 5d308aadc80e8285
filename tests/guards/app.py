"""A program with a Runtime for each guard, which command lines name: ``app.py:hook``.

Its journal is in the folder that GUARDED names; that of a worker where TREEFOLD_STORE says.
"""

import os
from pathlib import Path
from typing import Final

from guards.guarded import approve, guarded_write, model_for, options_of, other, plan, write
from treefold import Runtime, WorkerSettings

# The leases of killed workers are ended by those who killed them.
SETTINGS: Final = WorkerSettings(lease=60.0, beat=0.3, sweep=0.1, poll=0.1)


def _runtime(guard: str) -> Runtime:
    functions = [plan, write, guarded_write, other]
    store = Path(os.environ["GUARDED"]) / "run.db"
    return Runtime(functions, models=model_for(guard), store=store, **options_of(guard))


def worker() -> Runtime:
    """Return a worker that has the hook for runs that it guards."""
    from work_engines import make_engine  # noqa: PLC0415 - only workers need one

    url = os.environ["TREEFOLD_STORE"]
    return Runtime(
        [plan, other],
        models=model_for(""),
        store=url,
        engine=make_engine(os.environ["GUARDED_ENGINE"], url),
        worker=SETTINGS,
        guards=[approve],
    )


def function() -> Runtime:
    return _runtime("function")


def hook() -> Runtime:
    return _runtime("hook")


def allowed() -> Runtime:
    return _runtime("allowed")


def disallowed() -> Runtime:
    return _runtime("disallowed")


def budget() -> Runtime:
    return _runtime("budget")


def nothing() -> Runtime:
    return _runtime("nothing")
