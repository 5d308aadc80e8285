"""Answers for the model of ``random_program``, and notes each request."""

import asyncio
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, Self

_MOMENT = 0.3  # seconds in which this server notices that a client has gone


@dataclass(kw_only=True)
class Request:
    """A request that came.

    Attributes:
        id: of its response, which is in the ids of the calls that it asks for, and in its text.
        step: which response of the agent it asks for, from 1.
        seen: the ids of the responses that it repeats.
        torn: what is wrong with its pairs of calls and results, empty if nothing is.
        ended: when it was answered, or its client had gone.
    """

    id: str
    worker: str
    pid: int
    label: str
    step: int
    seen: tuple[str, ...]
    torn: str
    begun: float
    ended: float | None = None
    answered: bool = False

    def __str__(self) -> str:
        ended = "under way" if self.ended is None else f"{self.ended:.3f}"
        how = "answered" if self.answered else "left"
        return (
            f"{self.begun:.3f} request {self.id} of {self.worker} ({self.pid}) for response"
            f" {self.step} of {self.label}, after {list(self.seen)}; {how} {ended}"
        )


class ModelServer:
    """A server on loopback, in a thread of its own; use it in a ``with`` block."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._numbers = count(1)
        self._asked: Counter[tuple[str, int]] = Counter()
        self._serving: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self.requests: list[Request] = []
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)

    def _run(self) -> None:
        async def main() -> None:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 22)
            self.port = server.sockets[0].getsockname()[1]
            self._ready.set()
            await self._stop.wait()
            server.close()
            for task in self._serving:
                task.cancel()
            if self._serving:
                await asyncio.wait(self._serving)

        try:
            self._loop.run_until_complete(main())
        finally:
            self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            with suppress(ConnectionError):
                if line := await reader.readline():
                    await self._answer(json.loads(line), reader, writer)
        finally:
            self._serving.discard(task)
            writer.close()

    async def _answer(
        self, told: Mapping[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        said = told["said"]
        prompt = json.loads(said[0]["text"])
        seen = tuple(dict.fromkeys(one["use"].partition("-")[0] for one in said if "use" in one))
        request = Request(
            id=f"r{next(self._numbers)}",
            worker=told["worker"],
            pid=told["pid"],
            label=prompt["label"],
            step=len(seen) + 1,
            seen=seen,
            torn=_torn(said),
            begun=time.monotonic(),
        )
        self.requests.append(request)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._latency(request)):
                    await reader.read()
                    return
            request.answered = True
            reply = _reply(request, prompt, said)
        finally:
            # Before the client has the answer, and gives its slot to somebody else.
            request.ended = time.monotonic()
        writer.write(json.dumps(reply).encode() + b"\n")
        await writer.drain()

    def _latency(self, request: Request) -> float:
        asked = request.label, request.step
        self._asked[asked] += 1
        source = random.Random(f"{self._seed} {asked} {self._asked[asked]}")
        return source.uniform(0.02, 0.2) if source.random() < 0.9 else source.uniform(0.2, 0.8)


def _torn(said: Sequence[Any]) -> str:
    """Return what a provider would refuse: calls and results that are no pairs."""
    waiting: list[str] = []
    seen = set[str]()
    answering = False
    for one in said:
        if "result" in one:
            if one["result"] not in waiting:
                return f"the result of {one['result']} comes where nobody waits for it"
            waiting.remove(one["result"])
            answering = True
            continue
        if waiting and (answering or "use" not in one):
            return f"something comes before the results of {waiting}"
        answering = False
        if "use" in one:
            if one["use"] in seen:
                return f"the call {one['use']} is there twice"
            seen.add(one["use"])
            waiting.append(one["use"])
    return f"it ends without the results of {waiting}" if waiting else ""


def _reply(request: Request, prompt: Mapping[str, Any], said: Sequence[Any]) -> Mapping[str, Any]:
    script = prompt["script"]
    if request.step <= len(script):
        uses = enumerate(script[request.step - 1])
        return {"uses": [{"id": f"{request.id}-{n}", **use} for n, use in uses]}
    results = {one["result"]: one["text"] for one in said if "result" in one}
    asked = [one["use"] for one in said if "use" in one]
    text = {
        "label": request.label,
        "response": request.id,
        "results": [results.get(use) for use in asked],
    }
    return {"text": json.dumps(text)}
