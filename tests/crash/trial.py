"""Kill the program, again and again if need be, until it has ended by itself; then judge."""

import signal
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crash.effects import Line, read
from crash.nursery import Life, Nursery


@dataclass(frozen=True)
class Death:
    """What there was when a process had been killed.

    Attributes:
        lines: how many lines of effects there were.
        found: what the journal held.
    """

    lines: int
    found: dict[str, Any]


@dataclass
class Trial:
    """All that was seen."""

    kills: list[str] = field(default_factory=list[str])
    deaths: list[Death] = field(default_factory=list[Death])
    effects: list[Line] = field(default_factory=list[Line])
    finished: dict[str, Any] = field(default_factory=dict[str, Any])
    later: dict[str, Any] = field(default_factory=dict[str, Any])  # seen by one more process


class BrokenLifeError(AssertionError):
    """A process ended in another way than it was to."""


def try_kills(nursery: Nursery, folder: Path, kills: Iterable[str]) -> Trial:
    """Let lives be killed as *kills* say, and the last go on to its end."""
    folder.mkdir(parents=True)
    file, effects = folder / "run.db", folder / "effects"
    trial = Trial()

    def live(*options: str) -> Life:
        life = nursery.live(str(file), str(effects), *options)
        if life.status not in {0, -signal.SIGKILL}:
            raise BrokenLifeError(f"{trial.kills} {options}: {life.status}\n{life.complaints}")
        return life

    for run, kill in enumerate([*kills, ""]):
        life = live("--run", str(run), "--kill", kill)
        if life.status == 0:
            trial.finished = life.found
            break
        trial.kills.append(kill)
        trial.deaths.append(Death(len(read(effects)), live("--look").found))
    trial.later = live("--run", str(len(trial.kills) + 1)).found
    trial.effects = read(effects)
    return trial
