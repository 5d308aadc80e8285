"""Exchanges to save, and a look at what is in the file that they were saved in."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from treefold import SessionStore, TokenUsage
from treefold.models import Exchange, Finish


def exchange(text: str) -> Exchange:
    return Exchange(
        dialect="openai-chat",
        sent=(f'{{"role":"user","content":"{text}"}}',),
        received=(f'{{"role":"assistant","content":"{text}!"}}',),
        finish=Finish.ANSWERED,
        usage=TokenUsage(input=8, output=1),
    )


def said(exchanges: Sequence[Exchange]) -> list[str]:
    """What the exchanges of a session were made with."""
    return [one.sent[0].split('"')[-2] for one in exchanges]


def save(store: SessionStore, name: str, *texts: str) -> int | None:
    """Go on with a session; return its head."""
    head = store.open(name).head
    for text in texts:
        head = store.append(name, exchange(text), after=head)
    return head


def entries(path: Path) -> set[int]:
    """Every entry in the file."""
    with closing(sqlite3.connect(path)) as rows:
        return {entry for (entry,) in rows.execute("SELECT id FROM entries")}


def reached(path: Path) -> set[int]:
    """Every entry that some session leads to."""
    with closing(sqlite3.connect(path)) as rows:
        previous = dict(rows.execute("SELECT id, previous FROM entries"))
        found: set[int] = set()
        for (entry,) in rows.execute("SELECT head FROM sessions"):
            while entry is not None:
                found.add(entry)
                entry = previous[entry]
        return found
