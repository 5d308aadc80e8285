"""A model provider on the loopback: one scripted reply for each request that is right."""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal

from wire.checks import ISSUED, Dialect, Kind, Software, Terms, check, dialect_of
from wire.connection import Inbox, Request, send
from wire.replies import Reply, compact, failure, with_length

__all__ = ["ModelServer", "Request"]

GRACE = 5.0
"""How many seconds connections have to end when the server closes."""

OVER = failure(500, {"error": {"message": "the script is over"}})
MALFORMED = (AttributeError, IndexError, KeyError, TypeError, ValueError)


class ModelServer:
    """A server that answers each request with the next reply of its script.

    Each request for a response is checked by the rules of the provider whose dialect it is in
    (`wire.checks`). One that breaks them is refused as the provider would refuse it, and raised
    when the server is left, unless the test expects it.

    With *hangs_up*, a connection is good for one request although keep-alive is announced: it is
    closed right after the reply, or when a second request arrives, which then counts as dropped.

    Attributes:
        window: how many tokens a request may take, at four characters of JSON each.
        binds_thinking: whether thinking may only stand where it was issued, as with the newest
            models of Anthropic; otherwise it only has to be unaltered.
        software: what speaks the dialect of OpenAI, which words its refusals.
        expects: the kinds of refusals that the test expects.
        allows: the kinds of faults that this server does not mind.
        checks: whether it checks requests at all; only tests that measure time do without.
        refusals: how many requests were refused, by kind.
        thinking_dropped: where requests had thinking that did not fit, which they asked to drop.
    """

    def __init__(
        self,
        script: Iterable[Reply] = (),
        *,
        window: int | None = None,
        binds_thinking: bool = True,
        software: Software = "openai",
        expects: Collection[Kind] = (),
        allows: Collection[Kind] = (),
        checks: bool = True,
        hangs_up: Literal["after the reply", "on the next request"] | None = None,
    ) -> None:
        self.window = window
        self.binds_thinking = binds_thinking
        self.software: Software = software
        self.expects = set(expects)
        self.allows = set(allows)
        self.checks = checks
        self.refusals = Counter[Kind]()
        self.thinking_dropped: list[str] = []
        self.requests: list[Request] = []
        self.faults: list[Exception] = []
        self.connections = 0
        self.unexpected = 0
        self.dropped = 0
        self.disconnects = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self.arrived = asyncio.Event()
        self.disconnected = asyncio.Event()
        self.on_request: Callable[[Request], Reply | None] | None = None
        self._script = deque(script)
        self._hangs_up = hangs_up
        self._server: asyncio.Server | None = None
        self._closing = False
        self._open: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}

    @property
    def url(self) -> str:
        """Where the server listens, without a path."""
        assert self._server is not None, "the server has an address inside its async with"
        _, port = self._server.sockets[0].getsockname()
        return f"http://127.0.0.1:{port}"

    @property
    def left(self) -> int:
        """How many replies of the script were not asked for yet."""
        return len(self._script)

    def add(self, *replies: Reply) -> None:
        """Append *replies* to the script."""
        self._script.extend(replies)

    async def __aenter__(self) -> "ModelServer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._closing = True
        self._server.close()
        for writer in self._open.values():
            writer.transport.abort()
        if self._open:
            _, stuck = await asyncio.wait(self._open, timeout=GRACE)
            assert not stuck, f"{len(stuck)} connections did not end when the server closed"
        if not self.faults:
            return
        told = "\n".join(
            str(fault) if isinstance(fault, AssertionError) else repr(fault)
            for fault in self.faults
        )
        if error is None:
            raise AssertionError(told) from self.faults[0]
        error.add_note(f"The server had faults to report, too: {told}")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._closing:
            writer.transport.abort()
            return
        self.connections += 1
        self._open[task] = writer
        writer.transport.set_write_buffer_limits(high=0)  # drained means handed to the system
        inbox = Inbox(reader)
        try:
            while (request := await inbox.request()) is not None:
                if not await self._answer(request, inbox, writer):
                    break
                if self._hangs_up is None:
                    continue
                if self._hangs_up == "on the next request" and await inbox.request() is not None:
                    self.dropped += 1
                break
        except (ConnectionError, EOFError):
            pass  # between requests a client may go as it likes
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            del self._open[task]

    async def _answer(self, request: Request, inbox: Inbox, writer: asyncio.StreamWriter) -> bool:
        """Send the reply to *request*, and return whether the connection is good for another."""
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.requests.append(request)
        self.arrived.set()
        reply = self._reply(request)
        whole = False
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(inbox.watch())
                try:
                    whole = await send(reply, writer)
                finally:
                    self.in_flight -= 1
                watch.cancel()
        except* ConnectionError:
            whole = False
            if not self._closing:
                self.disconnects += 1
                self.disconnected.set()
        return whole and request.headers.get("connection", "").lower() != "close"

    def _reply(self, request: Request) -> Reply:
        """Choose the reply to *request*, once it was checked."""
        dialect = dialect_of(request)
        if dialect is None or not self.checks:
            return self._scripted(request)
        terms = Terms(self.window, self.binds_thinking, self.software, self.allows)
        if fault := check(request, terms):
            self.refusals[fault.kind] += 1
            if fault.kind not in self.expects:
                told = f"A request was refused by the rules of {dialect.name} ({fault.kind}):"
                self.faults.append(AssertionError(f"{told} {fault.message}"))
            return dialect.refusal(fault)
        reply = self._scripted(request)
        with contextlib.suppress(*MALFORMED):
            return self._noted(request, reply, dialect, terms)
        return reply

    def _noted(self, request: Request, reply: Reply, dialect: Dialect, terms: Terms) -> Reply:
        """Note the thinking in *reply*, and add to it what was dropped of the request's."""
        dialect.note(request, reply.body, ISSUED)
        dropped = dialect.dropped(request, ISSUED, terms)
        if not dropped:
            return reply
        self.thinking_dropped += dropped
        reason = {"type": "thinking_dropped", "reason": "prefix_binding_mismatch"}
        told = compact([{**reason, "path": path} for path in dropped])
        start = b'"stop_details":null'
        with_dropped = start + f',"input_transformations":{told}'.encode()
        # The first event tells it, unless the reply is a failure or comes in pieces.
        first, *others = reply.steps or (b"",)
        if not isinstance(first, bytes):
            return reply
        changed = replace(reply, steps=(first.replace(start, with_dropped, 1), *others))
        return with_length(changed) if "content-length" in reply.headers else changed

    def _scripted(self, request: Request) -> Reply:
        try:
            reply = self.on_request(request) if self.on_request is not None else None
        except Exception as fault:  # noqa: BLE001 - raised when the server is left
            self.faults.append(fault)
            return failure(500, {"error": {"message": repr(fault)}})
        if reply is not None:
            return reply
        if self._script:
            return self._script.popleft()
        self.unexpected += 1
        return OVER
