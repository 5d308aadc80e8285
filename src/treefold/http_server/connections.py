"""Connections, of which those that have not sent the token yet are few and short-lived.

uvicorn has no timeout before the first request of a connection, and its ``limit_concurrency``
refuses requests while it keeps every connection open: idle connections would use up the file
descriptors of the process, and shut out clients that have the token.
"""

import asyncio
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from h11 import LocalProtocolError
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

_AUTHENTICATED: Final = "treefold.authenticated"  # an ASGI extension

Scope = MutableMapping[str, Any]


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits for connections on which no request had the token yet.

    Attributes:
        count: how many are open at once; if one more is made, the oldest is closed.
        seconds: how long one stays open, whatever it sends or does not read.
    """

    count: int = 64
    seconds: float = 30.0


def authenticated(scope: Scope) -> None:
    """Lift the limits of the connection that the request in *scope* came on: it has the token."""
    extension = scope.get("extensions", {}).get(_AUTHENTICATED)
    if extension is not None:
        extension()


class Connections(ServerState):
    """The open connections of one server."""

    def __init__(self, limits: ConnectionLimits) -> None:
        super().__init__()
        self._limits = limits
        self._timers: dict[LimitedProtocol, asyncio.TimerHandle] = {}  # oldest first

    def add(self, connection: "LimitedProtocol") -> None:
        """Limit a new connection, and close the oldest limited one if there are too many."""
        if len(self._timers) >= self._limits.count:
            oldest = next(iter(self._timers))
            self.discard(oldest)
            oldest.transport.abort()
        timer = connection.loop.call_later(self._limits.seconds, connection.transport.abort)
        self._timers[connection] = timer

    def discard(self, connection: "LimitedProtocol") -> None:
        """Limit a connection no longer: it has the token, or is closed."""
        timer = self._timers.pop(connection, None)
        if timer is not None:
            timer.cancel()


class LimitedProtocol(H11Protocol):
    """A connection that is limited until one of its requests has the token."""

    def __init__(
        self,
        config: Config,
        server_state: Connections,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limited = server_state
        answer = self.app

        async def app(scope: Any, receive: Any, send: Any) -> None:
            scope.setdefault("extensions", {})[_AUTHENTICATED] = self._authenticated
            await answer(scope, receive, send)

        self.app = app

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - as the base class has it
        super().connection_made(transport)
        self._limited.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._limited.discard(self)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP; if it is the body of a request, the answer may have begun."""
        try:
            super().send_400_response(msg)
        except LocalProtocolError:
            self.transport.close()

    def _authenticated(self) -> None:
        self._limited.discard(self)
