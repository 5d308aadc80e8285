"""What a client follows: server-sent events, for as long as it reads them.

The next message is made when the last one has gone out, so a client that reads slowly is told less
often, and then more at once.
"""

import asyncio
from typing import Final

from anyio import to_thread
from starlette.types import Receive, Scope, Send

from treefold.views.web.lookout import Lookout, Seat
from treefold.views.web.told import Told

_SILENCE: Final = 15.0  # seconds, after which the client is told that it is still connected
_STILL_HERE: Final = b": still here\n\n"
_HEADERS: Final = [(b"content-type", b"text/event-stream; charset=utf-8")]


class Stream:
    """One answer that goes on until the client leaves, the viewer ends, or its tree is gone.

    Args:
        tree: the run to tell of; without one, only the list of runs and questions is told.
        seq: the version that the client has.
    """

    def __init__(self, lookout: Lookout, tree: int | None, seq: int) -> None:
        self._lookout = lookout
        self._tree = tree
        self._seq = seq

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        if scope["method"] != "HEAD":
            with self._lookout.seat(self._tree) as seat:
                async with asyncio.TaskGroup() as group:
                    ends = {
                        group.create_task(_until_gone(receive)),
                        group.create_task(self._tell(seat, send)),
                    }
                    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                    for task in ends:
                        task.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _tell(self, seat: Seat, send: Send) -> None:
        told = Told(self._seq)
        while True:
            try:
                async with asyncio.timeout(_SILENCE):
                    sight = await seat.next()
            except TimeoutError:
                text = _STILL_HERE
            else:
                if sight is None:
                    return
                text = (await to_thread.run_sync(told.news, sight)).encode()
            if text:
                await send({"type": "http.response.body", "body": text, "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
