"""The ``Sessions`` protocol: the conversations of chats, saved in a store.

A session is a name for the end of a linked list of exchanges. Saving the next exchange costs one
entry, whatever came before; a fork is a second name for the same end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from treefold.core.exchange import Exchange
from treefold.core.transcript import ToolResult


@dataclass(slots=True, frozen=True)
class SessionInfo:
    """Chat: one row of the list of saved chats.

    It is not the conversation: that is a SavedSession, once it is opened.

    Attributes:
        name: the name that it is opened by.
        model: the model that was used last.
        exchanges: how many requests were answered.
        preview: the beginning of the user's first message.
        created_at: when it was created.
        updated_at: when it was last written.

    Example:
        >>> from treefold import MemoryStore
        >>> sessions = MemoryStore().sessions
        >>> _ = sessions.open("trip", model="local", preview="Where to?")
        >>> [info] = sessions.list()
        >>> (info.name, info.model, info.exchanges, info.preview)
        ('trip', 'local', 0, 'Where to?')
    """

    name: str
    model: str
    exchanges: int
    preview: str
    created_at: datetime
    updated_at: datetime


@dataclass(slots=True, frozen=True)
class SavedSession:
    """Chat: the conversation of a client, as it was saved.

    It is no conversation with a model: that is a Session, which continues its exchanges.

    Attributes:
        name: the name that it is opened by.
        head: its newest entry, to be passed as ``after`` with the next write.
        exchanges: the whole conversation.
        unsent: results of tool calls that are to be sent with the next request.

    Example:
        >>> from treefold import MemoryStore
        >>> MemoryStore().sessions.open("trip")
        SavedSession(name='trip', head=None, exchanges=(), unsent=())
    """

    name: str
    head: int | None
    exchanges: tuple[Exchange, ...]
    unsent: tuple[ToolResult, ...]


class Sessions(Protocol):
    """The saved sessions of a store; every method may be called from any thread and process.

    Writing needs no ownership of the store. A writer passes the head that it knows as *after*; if
    another client has moved the head since, nothing is written.

    Every method raises StoreError if the medium fails; then nothing of the call was kept.
    ``treefold.testing.StoreSuite`` tests the sessions of a store that has the attribute.

    Example:
        >>> from treefold import MemoryStore
        >>> sessions = MemoryStore().sessions
        >>> _ = sessions.open("trip")
        >>> _ = sessions.fork("trip", "trip by train")
        >>> sessions.delete("trip")
        >>> [info.name for info in sessions.list()]
        ['trip by train']
    """

    def find(self, name: str) -> SavedSession | None:
        """Return the session with this name, if there is one."""
        ...

    def open(self, name: str, *, model: str = "", preview: str = "") -> SavedSession:
        """Return the session with this name, and create it if it does not exist."""
        ...

    def append(
        self,
        name: str,
        exchange: Exchange,
        *,
        after: int | None,
        model: str = "",
        preview: str = "",
    ) -> int:
        """Add *exchange* after the head *after*; return the new head.

        The unsent results are removed: *exchange* is expected to contain them.

        Raises:
            SessionConflictError: another client has moved the head.
            UnknownSessionError: the session does not exist any more.
        """
        ...

    def keep(self, name: str, results: Sequence[ToolResult], *, after: int | None) -> None:
        """Replace the unsent results of the session.

        Raises:
            SessionConflictError: another client has moved the head.
            UnknownSessionError: the session does not exist any more.
        """
        ...

    def replace(self, name: str, exchanges: Sequence[Exchange], *, after: int | None) -> int | None:
        """Replace the conversation by *exchanges*; return the new head.

        Exchanges that are equal to the saved ones, up to the first difference, are not written
        again. A session that becomes empty loses its preview.

        Raises:
            SessionConflictError: another client has moved the head.
            UnknownSessionError: the session does not exist any more.
        """
        ...

    def fork(self, name: str, new_name: str) -> SavedSession:
        """Return a new session that continues from the head of *name*; nothing is copied.

        Raises:
            DuplicateNameError: *new_name* is taken (a ValueError).
            UnknownSessionError: there is no session *name* (a KeyError).
        """
        ...

    def check_free(self, name: str) -> None:
        """Raise DuplicateNameError if there is a session with this name."""
        ...

    def list(self) -> list[SessionInfo]:
        """Return all sessions, the last updated first."""
        ...

    def delete(self, name: str) -> None:
        """Delete the session, and those of its exchanges that no other session shares.

        Raises:
            UnknownSessionError: there is no session with this name (a KeyError).
        """
        ...
