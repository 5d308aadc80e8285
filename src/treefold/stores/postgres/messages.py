"""Messages for the owners of drives."""

import uuid
from collections.abc import Collection
from hashlib import sha256
from typing import Any, Final

from treefold.core.errors import StoreError, UnknownNodeError, UsageError
from treefold.core.store import Message
from treefold.stores.postgres.faults import UNKNOWN_NODE
from treefold.stores.postgres.pool import Pool, Refused
from treefold.stores.postgres.rows import decode_text, encode_text

_MESSAGE: Final = "drive, id, body, question, hash"


class Mailbox:
    """Posts messages, and reads them; safe to use from any thread."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def answer(self, body: str, question: str) -> bool:
        values = (encode_text(question), encode_text(body), uuid.uuid4())
        return self._pool.fetch("SELECT answer(%s, %s, %s)", values)[0][0]

    def post_to(self, node: int, body: str, question: str | None) -> bool:
        about = None if question is None else encode_text(question)
        # The same in each attempt, so that a lost reply does not make two messages.
        values = (node, encode_text(body), about, uuid.uuid4())
        try:
            return self._pool.fetch("SELECT post(%s::bigint, %s, %s, %s)", values)[0][0]
        except Refused as error:
            if error.code != UNKNOWN_NODE:
                raise StoreError(self._pool.address.name, str(error)) from None
            raise UnknownNodeError(f"{self._pool.address.name} has no node:{node}") from None

    def all(self) -> list[Message]:
        rows = self._pool.fetch(f"SELECT {_MESSAGE} FROM inbox ORDER BY id")
        return [self._message(row) for row in rows]

    def of(self, drives: Collection[int]) -> dict[int, list[Message]]:
        found: dict[int, list[Message]] = {}
        rows = self._pool.fetch(
            f"SELECT {_MESSAGE} FROM inbox WHERE drive = ANY (%s::bigint[]) ORDER BY id",
            (list(drives),),
        )
        for row in rows:
            found.setdefault(row[0], []).append(self._message(row))
        return found

    def _message(self, row: tuple[Any, ...]) -> Message:
        drive, id, body, question, hash = row
        said = f"{drive} {question or ''} {body}"
        if sha256(said.encode()).digest() != hash:
            raise StoreError(
                self._pool.address.name,
                f"message {id} has a wrong checksum; it is damaged; restore a copy of the database",
            )
        return Message(id, decode_text(body))

    def done(self, worker: int, message: int) -> None:
        self._pool.fetch("SELECT done(%s::bigint, %s::bigint)", (worker, message))


def unaddressed_error(name: str) -> UsageError:
    """Return the error for a message that no drive can be found for."""
    return UsageError(
        f"a message for {name} needs an owner: call post_to(node, ...), or give question=..."
    )
