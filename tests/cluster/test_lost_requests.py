"""A worker that is cut off from the database, and requests to models that others make meanwhile."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from agent_scripts import StagedModel
from cluster.conftest import Workers
from cluster.leases import connect
from cluster.quick import QUICK
from cluster.test_shared_runtime import PATIENCE, eventually
from tcp_proxy import TcpProxy
from treefold import AgentFunction, FencedError, Limits, ModelText, Runtime, StoreError, attach
from treefold.core.cluster import Load, Members, Orders
from treefold.core.store import Entry
from treefold.models import OpenAIModel
from treefold.models.retry import Retry
from treefold.stores.postgres import PostgresStore
from treefold.testing import ScriptedModel, ScriptedRequest
from wire import openai_wire
from wire.protocols import KEY
from wire.replies import Reply, failure
from wire.server import ModelServer, Request
from wrapped_part import WrappedPart

ANSWER = AgentFunction("answer", "Answer.", user_prompt_template="Answer.")
COUNT = AgentFunction("count", "Count.", user_prompt_template="Count.", returns=int)


class Provider:
    """A model server in a thread of its own; counts the requests for each response."""

    def __init__(self, reply: Callable[[int], Reply]) -> None:
        self.asked: Counter[int] = Counter()  # by the number of the response
        self.url = ""
        self._reply = reply
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._thread = ThreadPoolExecutor(1)
        ready = threading.Event()
        self._served = self._thread.submit(self._loop.run_until_complete, self._serve(ready))
        assert ready.wait(PATIENCE)

    async def _serve(self, ready: threading.Event) -> None:
        async with ModelServer() as server:
            server.on_request = self._answer
            self.url = server.url
            ready.set()
            await self._ended.wait()

    def _answer(self, request: Request) -> Reply:
        messages = json.loads(request.body)["messages"]
        step = 1 + sum(message["role"] == "assistant" for message in messages)
        self.asked[step] += 1
        return self._reply(self.asked[step])

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._served.result(PATIENCE)
        self._thread.shutdown()
        self._loop.close()


class Waiting:
    """The pause before another attempt; it lasts until the test ends it."""

    def __init__(self) -> None:
        self.begun, self.over = threading.Event(), threading.Event()

    async def sleep(self, _: float) -> None:
        self.begun.set()
        assert await asyncio.to_thread(self.over.wait, 2 * PATIENCE)


@pytest.fixture
def proxy(url: str) -> Iterator[TcpProxy]:
    with TcpProxy(urlsplit(url).port or 5432, spare=b"treefold_") as proxy:
        yield proxy


def through(proxy: TcpProxy, url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{parts.username}@127.0.0.1:{proxy.port}").geturl()


@pytest.mark.parametrize("limits", [None, Limits(cluster_requests=1)])
def test_an_attempt_is_not_repeated_by_a_worker_that_has_lost_the_tree(
    workers: Workers, proxy: TcpProxy, limits: Limits | None
):
    busy = failure(503, {"error": {"message": "try again"}})
    provider = Provider(lambda time: busy if time == 1 else openai_wire.text("Yes."))
    waiting = Waiting()
    options: dict[str, Any] = {} if limits is None else {"limits": limits}
    try:
        slow = OpenAIModel(
            "m", base_url=provider.url, api_key=KEY, retry=Retry((1.0,), sleep=waiting.sleep)
        )
        quick = OpenAIModel("m", base_url=provider.url, api_key=KEY)
        first = workers.add(
            Runtime(
                [ANSWER], store=through(proxy, workers.url), models=slow, worker=QUICK, **options
            )
        )
        node = first.invoke(ANSWER)
        assert waiting.begun.wait(PATIENCE)
        proxy.is_away = True
        proxy.cut_all()
        workers(ANSWER, models=quick, **options)
        with attach(workers.url) as observer:
            eventually(lambda: observer.get_view(node.id).outputs == "Yes.", "the answer")
        waiting.over.set()
        proxy.is_away = False
        with suppress(FencedError):
            node.result(PATIENCE)
        workers.close()
    finally:
        provider.close()
    assert provider.asked == {1: 2}


def test_a_request_that_follows_at_once_is_not_sent_by_a_worker_that_has_lost_the_tree(
    workers: Workers, proxy: TcpProxy
):
    asked: Counter[int] = Counter()

    loops: list[asyncio.AbstractEventLoop] = []

    def reply(request: ScriptedRequest) -> str:
        step = 1 + sum(isinstance(part, ModelText) for part in request.transcript)
        asked[step] += 1
        loops.append(asyncio.get_running_loop())
        # It is asked once more for a number.
        return "None at all." if step == 1 else "7"

    held = StagedModel(ScriptedModel(reply))
    held.rest.clear()
    first = workers.add(
        Runtime([COUNT], store=through(proxy, workers.url), models=held, worker=QUICK)
    )
    node = first.invoke(COUNT)
    eventually(lambda: asked[1], "the first request")
    proxy.is_away = True
    proxy.cut_all()
    workers(COUNT, models=ScriptedModel(reply))
    with attach(workers.url) as observer:
        eventually(lambda: observer.get_view(node.id).outputs == 7, "the answer")
    # The rest of the first answer comes late.
    loops[0].call_soon_threadsafe(held.rest.set)
    eventually(lambda: not held.in_flight, "its end")
    proxy.is_away = False
    with suppress(FencedError):
        node.result(PATIENCE)
    workers.close()
    assert asked == {1: 2, 2: 1}


class LateMembers(WrappedPart):
    """Sends no heartbeats while the store of a late reader is cut off, and counts the others."""

    def __init__(self, members: Members, store: "LateReader") -> None:
        super().__init__(members)
        self.store = store
        self.beats = 0

    def beat(self, load: Load) -> Orders:
        if self.store.has_read.is_set() and not self.store.is_back.is_set():
            raise StoreError("a database", "it is cut off")
        orders = self.inner.beat(load)
        self.beats += 1
        return orders


class LateReader(PostgresStore):
    """Reads a tree for as long as the test wants, and is cut off meanwhile."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.has_read, self.is_back, self.may_go_on = (threading.Event() for _ in range(3))
        self.members = LateMembers(self.cluster.members, self)
        self.cluster = replace(self.cluster, members=self.members)

    def entries(self, tree: int, *, after: int = 0) -> list[Entry]:
        found = super().entries(tree, after=after)
        self.has_read.set()
        assert self.may_go_on.wait(PATIENCE)
        return found


def test_a_tree_that_is_lost_while_it_is_read_is_not_run(workers: Workers):
    asked: list[str] = []

    def model(name: str) -> StagedModel:
        def reply(request: ScriptedRequest) -> str:
            asked.append(name)
            return "Yes."

        return StagedModel(ScriptedModel(reply))

    first = model("first")
    first.rest.clear()
    runtime = workers(ANSWER, models=first)
    node = runtime.invoke(ANSWER)
    eventually(lambda: asked, "the first request")
    workers.close(runtime)
    store = LateReader(workers.url)
    late = workers(ANSWER, store=store, models=model("late"), worker=replace(QUICK, name="late"))
    assert store.has_read.wait(PATIENCE)
    with connect(workers.url) as connection:
        connection.execute("UPDATE workers SET lease = interval '0' WHERE name = 'late'")
        workers(ANSWER, models=model("other"))
        with attach(workers.url) as observer:
            eventually(lambda: observer.get_view(node.id).outputs == "Yes.", "the answer")
        store.members.beats = 0
        store.is_back.set()
        eventually(lambda: store.members.beats > 1, "a heartbeat that was answered")
        connection.execute("UPDATE workers SET lease = interval '1 hour'")
    store.may_go_on.set()
    eventually(lambda: late.worker_status().lost, "the loss")
    assert asked == ["first", "other"]
