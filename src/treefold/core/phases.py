"""``Phase``: a stretch of time in which a call waited for something, or for its model.

The rest of the time of a call is its own code and the calls that it made; ``views.timing`` tells
them apart.
"""

from enum import StrEnum
from typing import NamedTuple


class PhaseKind(StrEnum):
    """What a call waited for."""

    Queued = "queued"  # to be started, a lease, a slot, a rate, the next attempt, a time
    Model = "model"  # a request was under way
    Person = "person"  # it was paused, or had an open question
    Down = "down"  # no process ran it, nor any call below it


class Phase(NamedTuple):
    """A stretch of time, in seconds since the epoch; *end* is None while it lasts."""

    kind: PhaseKind
    start: float
    end: float | None


def open_phase(phases: list[Phase], kind: PhaseKind, at: float) -> None:
    """Let a phase begin that excludes the one before it, which ends."""
    close_phase(phases, at)
    phases.append(Phase(kind, at, None))


def close_phase(phases: list[Phase], at: float) -> None:
    """End the last phase, unless it has ended or waits for a person."""
    if phases and phases[-1].end is None and phases[-1].kind is not PhaseKind.Person:
        kind, start, _ = phases[-1]
        phases[-1] = Phase(kind, start, max(start, at))


def end_person(phases: list[Phase], at: float) -> None:
    """End every phase in which the call waited for a person."""
    for place, (kind, start, end) in enumerate(phases):
        if kind is PhaseKind.Person and end is None:
            phases[place] = Phase(kind, start, max(start, at))
