"""A viewer over a journal, and clients that ask it and follow it over real HTTP."""

import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from typing import Any, Final, TypeVar

import httpx

from treefold.views.web import Viewer

T = TypeVar("T")

PATIENCE: Final = 60
# For clients of http addresses: they need no certificates, and to load them takes 20 ms each.
UNENCRYPTED: Final = SSLContext(PROTOCOL_TLS_CLIENT)


@contextmanager
def client_of(viewer: Viewer) -> Generator[httpx.Client, None, None]:
    """Give a client that has the token."""
    headers = {"authorization": f"Bearer {viewer.token}"}
    with httpx.Client(
        base_url=viewer.address, headers=headers, timeout=PATIENCE, verify=UNENCRYPTED
    ) as client:
        yield client


@dataclass(frozen=True)
class Message:
    """One message of a stream."""

    event: str
    data: Any
    id: str | None = None


def messages(lines: Iterable[str]) -> Iterator[Message]:
    """Read *lines* of a stream; what is not complete is no message."""
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            yield Message(fields["event"], json.loads(fields["data"]), fields.get("id"))
            fields = {}


@dataclass
class Follower:
    """What somebody knows who follows a tree: its rows by their ids, and what else was told."""

    tree: int
    seq: int = 0
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    trees: list[dict[str, Any]] = field(default_factory=list)
    questions: list[dict[str, Any]] = field(default_factory=list)

    def take(self, message: Message) -> None:
        data = message.data
        match message.event:
            case "rows":
                assert (data["tree"], int(message.id or -1)) == (self.tree, data["seq"])
                assert data["seq"] > self.seq, "it was told before"
                self.check_parents(data["rows"])
                for row in data["rows"]:
                    assert row["seq"] > self.seq, "it was told before"
                    self.rows[row["id"]] = row
                self.seq = data["seq"]
            case "text":
                kept = self.texts.get(data["node"], "")[: data["from"]]
                self.texts[data["node"]] = kept + data["text"]
            case "trees":
                self.trees = data["trees"]
            case "questions":
                self.questions = data["questions"]
            case _:
                raise AssertionError(message)

    def check_parents(self, rows: list[dict[str, Any]]) -> None:
        known = set(self.rows)
        for row in rows:
            assert row["parent"] is None or row["parent"] in known, "a caller has to come first"
            known.add(row["id"])

    def url(self) -> str:
        return f"/api/stream?tree={self.tree}&seq={self.seq}"

    def follow(self, client: httpx.Client, until: "Callable[[Follower], object]") -> None:
        """Follow the stream from what is known until *until* says so, then leave it."""
        if until(self):
            return
        with client.stream("GET", self.url()) as response:
            assert response.status_code == 200, response.read()
            for message in messages(response.iter_lines()):
                self.take(message)
                if until(self):
                    return
        raise AssertionError("the stream has ended before")


def all_rows(client: httpx.Client, tree: int) -> Follower:
    """Return how a tree stands, from a stream that begins anew."""
    fresh = Follower(tree)
    fresh.follow(client, lambda one: one.rows)
    return fresh
