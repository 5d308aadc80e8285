"""Messages for the owners of drives."""

import logging
import uuid
from collections.abc import Collection
from hashlib import sha256
from typing import Any, Final

from treefold.core.errors import StoreError, UnknownNodeError, UsageError
from treefold.core.store import Message
from treefold.stores.postgres.faults import UNKNOWN_NODE
from treefold.stores.postgres.pool import Pool, Refused
from treefold.stores.postgres.rows import decode_text, encode_text

log = logging.getLogger(__name__)

_MESSAGE: Final = "drive, id, body, question, hash"


class Mailbox:
    """Posts messages, and reads them; safe to use from any thread."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._damaged = set[int]()  # messages that were left out

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
        return [message for row in rows if (message := self._message(row)) is not None]

    def of(self, drives: Collection[int]) -> dict[int, list[Message]]:
        found: dict[int, list[Message]] = {}
        rows = self._pool.fetch(
            f"SELECT {_MESSAGE} FROM inbox WHERE drive = ANY (%s::bigint[]) ORDER BY id",
            (list(drives),),
        )
        for row in rows:
            if (message := self._message(row)) is not None:
                found.setdefault(row[0], []).append(message)
        return found

    def _message(self, row: tuple[Any, ...]) -> Message | None:
        """Return the message in *row*; None, with a warning for each once, if it is damaged."""
        drive, id, body, question, hash = row
        said = f"{drive} {question or ''} {body}"
        # An exception would keep all other messages, for any drive, from being read as well.
        if sha256(said.encode()).digest() == hash:
            return Message(id, decode_text(body))
        if id not in self._damaged:
            self._damaged.add(id)
            log.warning(
                "%s: message %d for node:%d has a wrong checksum; it is damaged, and left out;"
                " restore a copy of the database, or delete it from the table inbox",
                self._pool.address.name,
                id,
                drive,
            )
        return None

    def done(self, worker: int, message: int) -> None:
        self._pool.fetch("SELECT done(%s::bigint, %s::bigint)", (worker, message))


def unaddressed_error(name: str) -> UsageError:
    """Return the error for a message that no drive can be found for."""
    return UsageError(
        f"a message for {name} needs an owner: call post_to(node, ...), or give question=..."
    )
