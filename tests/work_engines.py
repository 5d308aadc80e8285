"""The work engines that clusters are tested on, by the names that ``--engine`` takes.

Programs that the tests start get the name of their engine, and make it with ``make_engine``.
"""

import os
from typing import Any, Final

from hostile_engine import HostileEngine
from temporal_server import shared_target
from treefold.engines import InProcess, Procrastinate, Temporal, WorkEngine

KINDS: Final = ("procrastinate", "temporal", "hostile")

# Whether every case is tried, as ``make cluster`` does, instead of some of each kind.
EXHAUSTIVE: Final = os.environ.get("TREEFOLD_CLUSTER") == "exhaustive"

# A drive that one worker cannot run may be delivered to it again and again before another has it.
_DELAYS: Final[dict[str, Any]] = {"first_delay": 0.1, "longest_delay": 0.5}


def engine_name(kind: str) -> str:
    """Return the name of an engine of this kind; its server is started if it does not run."""
    match kind:
        case "temporal":
            return f"temporal:{shared_target()}"
        case "hostile":
            return "hostile_engine:ENGINE"
        case _:
            return kind


def make_engine(name: str, url: str) -> WorkEngine:
    """Return a new engine for the store at *url*, with short times."""
    kind, _, where = name.partition(":")
    match kind:
        case "procrastinate":
            return Procrastinate(url, poll=0.2, beat=0.5, **_DELAYS)
        case "temporal":
            return Temporal(where, beat=0.5, **_DELAYS)
        case "hostile_engine":
            return HostileEngine()
        case _:
            return InProcess(**_DELAYS)
