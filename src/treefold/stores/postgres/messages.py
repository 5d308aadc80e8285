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

    def post(self, body: str, node: int | None, question: str | None) -> bool:
        about = None if question is None else encode_text(question)
        # The same in each attempt, so that a lost reply does not make two messages.
        once = uuid.uuid4()
        name = self._pool.address.name
        if node is None:
            if question is None:
                raise UsageError(f"a message for {name} needs an owner: give node= or question=")
            values = (about, encode_text(body), once)
            return self._pool.fetch("SELECT answer(%s, %s, %s)", values)[0][0]
        values = (node, encode_text(body), about, once)
        try:
            return self._pool.fetch("SELECT post(%s::bigint, %s, %s, %s)", values)[0][0]
        except Refused as error:
            if error.code != UNKNOWN_NODE:
                raise StoreError(name, str(error)) from None
            raise UnknownNodeError(f"{name} has no node:{node}") from None

    def read(self, drives: Collection[int] | None, owner: int | None) -> list[Message]:
        """Return the messages for these *drives*, or all, those of drives of an *owner* only."""
        search, values = f"SELECT {_MESSAGE} FROM inbox", list[Any]()
        if owner is not None:
            # A worker that has not heard yet that it has lost a drive must not get its commands.
            search += " JOIN drives ON drives.node = inbox.drive AND drives.owner = %s"
            values.append(owner)
        if drives is not None:
            search += " WHERE drive = ANY (%s::bigint[])"
            values.append(list(drives))
        rows = self._pool.fetch(f"{search} ORDER BY id", values)
        return [message for row in rows if (message := self._message(row)) is not None]

    def _message(self, row: tuple[Any, ...]) -> Message | None:
        """Return the message in *row*; None, with a warning for each once, if it is damaged."""
        drive, id, body, question, hash = row
        said = f"{drive} {question or ''} {body}"
        # An exception would keep all other messages, for any drive, from being read as well.
        if sha256(said.encode()).digest() == hash:
            return Message(id, decode_text(body), drive)
        if id not in self._damaged:
            self._damaged.add(id)
            log.warning(
                "%s: message %d for node:%d has a wrong checksum; it is damaged, and left out: send"
                " again what was asked for, and delete it from the table inbox",
                self._pool.address.name,
                id,
                drive,
            )
        return None

    def done(self, worker: int, message: int) -> None:
        self._pool.fetch("SELECT done(%s::bigint, %s::bigint)", (worker, message))
