"""A response of server-sent events, for as long as the client reads them.

The next events are made when the last ones have been sent, so a client that reads slowly receives
fewer and larger messages.
"""

import asyncio
from typing import Final

from anyio import to_thread
from starlette.types import Receive, Scope, Send

from treefold.views.web.client_state import ClientState
from treefold.views.web.poller import Poller, Subscriber
from treefold.views.web.run_query import RunQuery

_KEEP_ALIVE_INTERVAL: Final = 15.0  # seconds
_KEEP_ALIVE: Final = b": still here\n\n"
_HEADERS: Final = [(b"content-type", b"text/event-stream; charset=utf-8")]


class Stream:
    """A response that ends when the client disconnects, the viewer closes, or its tree is deleted.

    Args:
        tree: the run to follow; None for the list of runs and the questions alone.
        seq: the version of the tree that the client has.
        query: which runs to list.
    """

    def __init__(self, poller: Poller, tree: int | None, seq: int, query: RunQuery) -> None:
        self._poller = poller
        self._tree = tree
        self._seq = seq
        self._query = query

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        if scope["method"] != "HEAD":
            with self._poller.subscribe(self._tree, self._query) as subscriber:
                async with asyncio.TaskGroup() as group:
                    tasks = {
                        group.create_task(_wait_for_disconnect(receive)),
                        group.create_task(self._send_events(subscriber, send)),
                    }
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    for task in tasks:
                        task.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_events(self, subscriber: Subscriber, send: Send) -> None:
        client = ClientState(self._seq)
        while True:
            try:
                async with asyncio.timeout(_KEEP_ALIVE_INTERVAL):
                    snapshot = await subscriber.next()
            except TimeoutError:
                text = _KEEP_ALIVE
            else:
                if snapshot is None:
                    return
                text = (await to_thread.run_sync(client.update, snapshot)).encode()
            if text:
                await send({"type": "http.response.body", "body": text, "more_body": True})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
