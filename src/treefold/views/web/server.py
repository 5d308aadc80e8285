"""Start and close a viewer: in the current thread, or in a background thread beside a run."""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from importlib import import_module
from socket import socket
from typing import Final, Self

from treefold.core.errors import InvalidValueError, UsageError
from treefold.core.store import Store
from treefold.http_server.address import is_loopback
from treefold.http_server.tokens import new_token
from treefold.runtime.observe.observer import Observer, attach
from treefold.runtime.runtime import Runtime

LOOPBACK: Final = "127.0.0.1"
EVERYWHERE: Final = "0.0.0.0"
PORT: Final = 4747

_PORTS: Final = 20  # how many are tried, from PORT on
_LOCAL_NAME: Final = {EVERYWHERE: LOOPBACK, "::": "::1"}  # for a browser on this machine
_STREAMS_TIMEOUT: Final = 1.0  # seconds for streams to end


def view(
    source: Runtime | Store | str | os.PathLike[str],
    *,
    host: str = LOOPBACK,
    port: int | None = None,
    public: bool = False,
) -> "Viewer":
    """Serve the viewer for a journal from a background thread, until it is closed.

    Args:
        source: a runtime that has a store, a store, or the path of a journal.
        host: the address to listen on.
        port: 0 for any free port; None for 4747 or the next free one.
        public: whether other machines may reach it.

    Raises:
        UsageError: the address is not available, the runtime has no store, or a package is missing.
        InvalidValueError: other machines could reach the address, and *public* is false.
        StoreError: there is no such journal.

    Example:
        >>> import treefold
        >>> from treefold.views.web import view
        >>> def add(ctx, a: int, b: int) -> int:
        ...     return a + b
        >>> function = treefold.CodeFunction(callable=add)
        >>> with treefold.Runtime([function], store=treefold.MemoryStore()) as runtime:
        ...     with view(runtime, port=0) as viewer:
        ...         viewer.url.partition("#")[2][:6]  # open it in a browser
        ...         runtime.invoke(function, {"a": 1, "b": 2}).result()
        'token='
        3
    """
    if isinstance(source, Runtime):
        if source.store is None:
            raise UsageError(
                "the viewer needs a runtime with a store: pass Runtime(store='run.db'), or"
                " Runtime(store=MemoryStore()) to keep the journal in memory"
            )
        source = source.store
    observer = attach(source)
    try:
        viewer = Viewer(observer, host, port, public=public, closing=observer)
        return viewer.start()
    except BaseException:
        observer.close()
        raise


class Viewer:
    """Serves the page for one journal, to clients that have the token.

    Args:
        observer: of the journal; the caller closes it.
        host: the address to listen on.
        port: 0 for any free port; None for 4747 or the next free one.
        public: whether other machines may reach it.
        closing: an observer to close with the viewer.

    Attributes:
        token: every request for data must have it.

    Raises:
        InvalidValueError: other machines could reach the address, and *public* is false.
    """

    def __init__(
        self,
        observer: Observer,
        host: str = LOOPBACK,
        port: int | None = None,
        *,
        public: bool = False,
        closing: Observer | None = None,
    ) -> None:
        if not public and not is_loopback(host):
            raise InvalidValueError(
                f"other machines could reach {host}, and a client that has the token may read the"
                " whole journal, and answer, cancel and fork; pass public=True (--public) if that"
                " is intended"
            )
        self.token = new_token()
        self._observer = observer
        self._host = host
        self._port = port
        self._closing = closing
        self._address = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<Viewer of {self._observer.name} at {self._address or 'no address yet'}>"

    @property
    def address(self) -> str:
        """The base URL, as seen from this machine; empty before it is served."""
        return self._address

    @property
    def is_public(self) -> bool:
        """Whether other machines may reach it."""
        return not is_loopback(self._host)

    @property
    def url(self) -> str:
        """The URL to open in a browser; it contains the token, which allows everything."""
        return f"{self._address}/#token={self.token}"

    def serve(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve in the current thread until interrupted or closed; *on_ready* is called first.

        Raises:
            UsageError: the address is not available, or a package is missing.
        """
        with self._listen() as listening:
            asyncio.run(self._serve(listening, on_ready))

    def start(self) -> Self:
        """Serve in a background thread until closed.

        Raises:
            UsageError: the address is not available, or a package is missing.
        """
        listening = self._listen()
        ready: Future[None] = Future()

        def serve() -> None:
            with listening:
                try:
                    asyncio.run(self._serve(listening, lambda: ready.set_result(None)))
                except BaseException as error:
                    if ready.done():
                        raise
                    ready.set_exception(error)

        self._thread = threading.Thread(target=serve, name="treefold viewer", daemon=True)
        self._thread.start()
        ready.result()
        return self

    def close(self) -> None:
        """Stop serving, and end all streams; closing twice is fine."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed already
                self._loop.call_soon_threadsafe(self._stopping.set)
        if self._thread is not None:
            self._thread.join()
        if self._closing is not None:
            self._closing.close()

    def __enter__(self) -> Self:
        return self if self._thread is not None else self.start()

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _listen(self) -> socket:
        if self._loop is not None:
            raise UsageError(f"{self!r} has been started before; create another")
        try:
            import_module("treefold.views.web.app")
            from treefold.http_server.serving import listen, url_of  # noqa: PLC0415 - needs the extra
        except ModuleNotFoundError as error:
            raise _not_installed(error) from None
        ports = range(PORT, PORT + _PORTS) if self._port is None else [self._port]
        for port in ports:
            try:
                listening = listen(self._host, port)
            except UsageError:
                if port == ports[-1]:
                    raise
                continue
            self._address = url_of(listening, _LOCAL_NAME.get(self._host, self._host))
            return listening
        raise AssertionError("there is a last port")

    async def _serve(self, listening: socket, on_ready: Callable[[], None]) -> None:
        from treefold.http_server.serving import serve_on  # noqa: PLC0415 - slow
        from treefold.views.web.app import application  # noqa: PLC0415 - slow
        from treefold.views.web.page import page_files  # noqa: PLC0415 - slow
        from treefold.views.web.poller import Poller  # noqa: PLC0415 - slow

        self._loop = asyncio.get_running_loop()
        poller = Poller(self._observer)
        app = application(
            self._observer, poller, token=self.token, host=self._host, files=page_files()
        )
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(poller.run()),
                group.create_task(serve_on(listening, app, on_ready)),
            ]
            try:
                await self._stopping.wait()
            finally:
                await poller.close(_STREAMS_TIMEOUT)
                for task in tasks:
                    task.cancel()


def _not_installed(error: ModuleNotFoundError) -> UsageError:
    missing = str(error.name).partition(".")[0]
    return UsageError(
        f"the viewer needs a package that is not installed ({missing}): pip install 'treefold[web]'"
    )
