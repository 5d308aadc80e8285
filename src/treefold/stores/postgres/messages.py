"""Messages for the owners of drives."""

import uuid
from collections.abc import Collection

from treefold.core.errors import StoreError, UnknownNodeError, UsageError
from treefold.core.store import Message
from treefold.stores.postgres.faults import UNKNOWN_NODE
from treefold.stores.postgres.pool import Pool, Refused
from treefold.stores.postgres.rows import decode_text, encode_text


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
        rows = self._pool.fetch("SELECT id, body FROM inbox ORDER BY id")
        return [Message(id, decode_text(body)) for id, body in rows]

    def of(self, drives: Collection[int]) -> dict[int, list[Message]]:
        found: dict[int, list[Message]] = {}
        rows = self._pool.fetch(
            "SELECT drive, id, body FROM inbox WHERE drive = ANY (%s::bigint[]) ORDER BY id",
            (list(drives),),
        )
        for drive, id, body in rows:
            found.setdefault(drive, []).append(Message(id, decode_text(body)))
        return found

    def done(self, worker: int, message: int) -> None:
        self._pool.fetch("SELECT done(%s::bigint, %s::bigint)", (worker, message))


def unaddressed_error(name: str) -> UsageError:
    """Return the error for a message that no drive can be found for."""
    return UsageError(
        f"a message for {name} needs an owner: call post_to(node, ...), or give question=..."
    )
