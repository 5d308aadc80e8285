"""The event stream: complete and without duplicates, wherever the connection breaks."""

import asyncio
import os
import random
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

import treefold
import warm_python
from support import wait
from treefold import AgentFunction, CodeFunction, MemoryStore, RunContext, Runtime, SqliteStore
from treefold.models import OpenAIModel
from treefold.stores import Store
from treefold.views.web import Viewer, view
from viewing import (
    PATIENCE,
    UNENCRYPTED,
    Follower,
    Message,
    all_rows,
    client_of,
    messages,
)
from wire import openai_wire
from wire.replies import Wait
from wire.server import ModelServer


class Garden:
    """A run that grows by as many steps as it is allowed; some calls are tied, some fail."""

    def __init__(self) -> None:
        self._allowed = asyncio.Semaphore(0)
        self._loop: asyncio.AbstractEventLoop | None = None
        leaf = CodeFunction(callable=self._leaf, name="leaf")
        branch = CodeFunction(callable=self._branch, name="branch", uses=[leaf])
        self.top = CodeFunction(callable=self._top, name="top", uses=[branch])
        self._leaf_function, self._branch_function = leaf, branch

    def allow(self, steps: int) -> None:
        loop = wait(lambda: self._loop)
        assert loop is not None
        for _ in range(steps):
            loop.call_soon_threadsafe(self._allowed.release)

    async def _leaf(self, ctx: RunContext, n: int) -> int:
        self._loop = asyncio.get_running_loop()
        await self._allowed.acquire()
        if n % 5 == 3:
            raise ValueError(f"no leaf {n}")
        return n

    async def _branch(self, ctx: RunContext, n: int) -> list[int]:
        first = ctx.invoke(self._leaf_function, {"n": n})
        await self._allowed.acquire()
        other = ctx.invoke(self._leaf_function, {"n": n + 1}, tied_with=first)
        found: list[int] = []
        for node in first, other:
            try:
                found.append(await node)
            except ValueError:
                found.append(-1)
        return found

    async def _top(self, ctx: RunContext) -> list[list[int]]:
        found: list[list[int]] = []
        for n in range(0, 16, 4):
            nodes = [ctx.invoke(self._branch_function, {"n": n + more}) for more in range(2)]
            found += [await node for node in nodes]
        return found

    STEPS = 24


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = SqliteStore(tmp_path / "run.db") if request.param == "file" else MemoryStore()
    yield made
    made.close()


@pytest.fixture
def garden() -> Garden:
    return Garden()


@pytest.fixture
def runtime(store: Store, garden: Garden) -> Iterator[Runtime]:
    made = Runtime([garden.top], store=store)
    yield made
    made.close()  # and not wait until all has grown


@pytest.fixture
def viewer(runtime: Runtime) -> Iterator[Viewer]:
    with view(runtime, port=0) as made:
        yield made


def begun(runtime: Runtime, garden: Garden, client: httpx.Client) -> int:
    """Begin to grow, and wait until that is to be seen."""
    node = runtime.invoke(garden.top)
    wait(lambda: client.get(f"/api/nodes/{node.id}").status_code == 200)
    return node.id


def is_over(follower: Follower) -> bool:
    return follower.rows.get(follower.tree, {}).get("ended") is not None


def first_messages(client: httpx.Client, path: str) -> list[Message]:
    """Return the first events."""
    with client.stream("GET", path) as response:
        assert response.status_code == 200
        return list(messages(next(response.iter_text()).split("\n")))


def test_all_is_told_at_first_and_then_what_changes(
    runtime: Runtime, garden: Garden, client: httpx.Client
):
    tree = begun(runtime, garden, client)
    follower = Follower(tree)
    for _ in range(Garden.STEPS):
        garden.allow(1)
        seq = follower.seq
        follower.follow(client, lambda one: one.seq > seq)  # noqa: B023 - it is called at once
    follower.follow(client, is_over)
    assert follower.rows == all_rows(client, tree).rows
    assert {row["state"] for row in follower.rows.values()} == {"success", "error"}
    assert follower.rows[tree]["result"] is not None
    wait(lambda: [row["state"] for row in client.get("/api/trees").json()["trees"]] == ["success"])


def test_a_client_that_reconnects_receives_exactly_what_is_new(
    runtime: Runtime, garden: Garden, client: httpx.Client
):
    tree = begun(runtime, garden, client)
    watcher = Follower(tree)
    states: list[Follower] = []  # what was known after each message

    def note(one: Follower) -> bool:
        if one.rows and (not states or states[-1].seq != one.seq):
            states.append(Follower(tree, one.seq, dict(one.rows)))
            garden.allow(1)
        return is_over(one)

    watcher.follow(client, note)
    fresh = all_rows(client, tree)
    assert watcher.rows == fresh.rows
    assert len(states) > 10
    for state in states[:-1]:  # from each state that a client can have
        state.follow(client, lambda one: one.seq == fresh.seq)
        assert state.rows == fresh.rows
    for seq in range(fresh.seq):  # and from each that there could be
        *_, last = first_messages(client, f"/api/stream?tree={tree}&seq={seq}")
        told = [row for row in fresh.rows.values() if row["seq"] > seq]
        assert last == Message(
            "rows", {"tree": tree, "seq": fresh.seq, "rows": told}, str(fresh.seq)
        )
    kinds = [
        one.event for one in first_messages(client, f"/api/stream?tree={tree}&seq={fresh.seq}")
    ]
    assert kinds == ["trees", "questions"]


def cut(client: httpx.Client, follower: Follower, most: int) -> None:
    """Follow until *most* bytes have come, or none for a while."""
    came = b""
    with suppress(httpx.ReadTimeout), client.stream("GET", follower.url()) as response:
        for part in response.iter_bytes():
            came += part
            if len(came) >= most:
                break
    # The last line may not be complete.
    for message in messages(came[:most].decode().split("\n")[:-1]):
        follower.take(message)


def has_caught_up(client: httpx.Client, follower: Follower) -> bool:
    fresh = all_rows(client, follower.tree)
    follower.follow(client, lambda one: one.seq >= fresh.seq)
    if follower.seq > fresh.seq:
        return False
    assert follower.rows == fresh.rows
    return True


@pytest.mark.parametrize(
    ("store", "seed"),
    [("file", 0), ("memory", 1), ("file", 2), ("memory", 3)],
    indirect=["store"],
)
def test_a_connection_may_be_cut_at_any_byte(
    runtime: Runtime, garden: Garden, viewer: Viewer, client: httpx.Client, seed: int
):
    chance = random.Random(seed)
    follower = Follower(begun(runtime, garden, client))
    left = Garden.STEPS
    with httpx.Client(
        base_url=viewer.address, headers=client.headers, timeout=0.2, verify=UNENCRYPTED
    ) as hasty:
        while left:
            steps = min(left, chance.randint(0, 3))
            left -= steps
            garden.allow(steps)
            for _ in range(chance.randint(1, 3)):
                cut(hasty, follower, int(chance.choice([1, 10, 100, 1000, 5000]) * chance.random()))
            wait(lambda: has_caught_up(client, follower))
    follower.follow(client, is_over)
    assert has_caught_up(client, follower)


def test_a_viewer_that_was_started_anew_goes_on_with_what_clients_have(
    runtime: Runtime, garden: Garden, viewer: Viewer, client: httpx.Client
):
    tree = begun(runtime, garden, client)
    follower, late = Follower(tree), Follower(tree)
    garden.allow(3)
    late.follow(client, lambda one: one.rows)
    garden.allow(3)
    wait(lambda: all_rows(client, tree).seq > late.seq)
    follower.follow(client, lambda one: one.seq > late.seq)
    viewer.close()
    garden.allow(3)
    with view(runtime, port=0) as second, client_of(second) as other:
        garden.allow(Garden.STEPS - 9)
        for one in follower, late:
            one.follow(other, is_over)
        fresh = all_rows(other, tree)

    def content(one: Follower) -> dict[int, dict[str, Any]]:
        return {id: row | {"seq": 0} for id, row in one.rows.items()}

    assert content(follower) == content(late) == content(fresh)


def test_a_client_that_has_something_of_another_journal_is_told_all(
    runtime: Runtime, garden: Garden, client: httpx.Client
):
    tree = begun(runtime, garden, client)
    garden.allow(Garden.STEPS)
    Follower(tree).follow(client, is_over)
    fresh = all_rows(client, tree)
    last = first_messages(client, f"/api/stream?tree={tree}&seq={10**17}")[-1]
    assert last.data == {"tree": tree, "seq": fresh.seq, "rows": list(fresh.rows.values())}


def test_without_a_tree_only_the_runs_and_questions_are_told(
    runtime: Runtime, garden: Garden, client: httpx.Client
):
    seen: list[Message] = []
    with client.stream("GET", "/api/stream") as response:
        following = messages(response.iter_lines())
        first = next(following)
        assert first.event == "trees"
        assert first.data == {
            "trees": [],
            "total": 0,
            "open": 0,
            "matching": 0,
            "first": 1,
            "page": 1,
            "pages": 1,
            "states": {},
            "functions": {},
            "driven": True,
        }
        assert next(following) == Message("questions", {"questions": []})
        node = runtime.invoke(garden.top)
        garden.allow(Garden.STEPS)
        for message in following:
            seen.append(message)
            if message.data["trees"][0]["state"] == "success":
                break
    assert {message.event for message in seen} == {"trees"}
    assert seen[-1].data["trees"][0]["id"] == node.id


def test_a_run_that_is_not_there_yet_can_be_waited_for(
    runtime: Runtime, garden: Garden, client: httpx.Client
):
    with client.stream("GET", "/api/stream?about=1") as response:
        told = (one.data for one in messages(response.iter_lines()) if one.event == "trees")
        assert next(told)["trees"] == []
        node = runtime.invoke(garden.top)
        [row] = next(data["trees"] for data in told)
    assert row["id"] == node.id == 1
    assert first_messages(client, "/api/stream?about=2")[0].data["trees"] == []


def test_a_head_of_a_stream_is_no_stream(client: httpx.Client):
    head = client.head("/api/stream")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == "text/event-stream; charset=utf-8"


def test_the_stream_of_a_run_that_is_deleted_ends(
    runtime: Runtime, garden: Garden, client: httpx.Client
):
    tree = begun(runtime, garden, client)
    garden.allow(Garden.STEPS)
    Follower(tree).follow(client, is_over)
    with client.stream("GET", f"/api/stream?tree={tree}") as response:
        lines = response.iter_lines()
        assert next(lines) == "event: trees"
        runtime.delete(tree)
        assert "event: rows" in list(lines)
    assert client.get(f"/api/stream?tree={tree}").status_code == 404


def test_a_run_that_is_deleted_leaves_the_list(
    runtime: Runtime, garden: Garden, client: httpx.Client
):
    tree = begun(runtime, garden, client)
    garden.allow(Garden.STEPS)
    Follower(tree).follow(client, is_over)
    with client.stream("GET", "/api/stream") as response:
        following = messages(response.iter_lines())
        assert [row["id"] for row in next(following).data["trees"]] == [tree]
        runtime.delete(tree)
        assert next(one for one in following if one.event == "trees").data["trees"] == []


# --- other processes

ASKING = """
import sys
from treefold import CodeFunction, Runtime

async def again(ctx):
    return [await ctx.ask(f"{n}?") for n in range(5)]

function = CodeFunction(callable=again)
with Runtime([function], store=sys.argv[1]) as runtime:
    sys.stdin.readline()
    print(runtime.invoke(function).result())
"""


def test_a_run_in_another_process_appears_and_goes_on(tmp_path: Path):
    path = tmp_path / "run.db"
    with subprocess.Popen(
        warm_python.command("-W", "error", "-c", ASKING, str(path)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        wait(path.exists)
        with (
            wait_for_journal(path) as viewer,
            client_of(viewer) as client,
            client.stream("GET", "/api/stream") as listing,
        ):
            told = messages(listing.iter_lines())
            while not next(told).data.get("driven"):
                pass
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            trees = next(one.data["trees"] for one in told if one.data.get("trees"))
            follower = Follower(trees[0]["id"])
            for n in range(5):
                follower.follow(
                    client,
                    lambda one: [q["text"] for q in one.questions] == [f"{n}?"],  # noqa: B023
                )
                [question] = follower.questions
                answer = client.post(f"/api/questions/{question['id']}", json={"text": f"a{n}"})
                assert answer.status_code == 200
            follower.follow(client, is_over)
            assert follower.rows == all_rows(client, follower.tree).rows
            assert follower.rows[follower.tree]["result"] == "a0, a1, a2, a3, a4"
            assert process.stdout is not None
            assert process.stdout.read() == "['a0', 'a1', 'a2', 'a3', 'a4']\n"
            assert process.wait(PATIENCE) == 0
            last = Follower(follower.tree)
            last.follow(
                client, lambda one: one.trees and not client.get("/api/journal").json()["driven"]
            )


def wait_for_journal(path: Path) -> Viewer:
    """Return a viewer of a journal that another process has just begun."""

    def look() -> Viewer | None:
        try:
            return view(path, port=0)
        except treefold.StoreError:
            return None

    found = wait(look)
    assert found is not None
    return found


# --- what models say


async def follow(
    client: httpx.AsyncClient, follower: Follower, until: Callable[[Message], object]
) -> None:
    """Follow until *until* says so of a message that has been taken."""
    lines: list[str] = []
    async with client.stream("GET", follower.url()) as response:
        async for line in response.aiter_lines():
            lines.append(line)
            for message in messages(lines) if not line else ():
                follower.take(message)
                if until(message):
                    return
            lines = lines if line else []
    raise AssertionError("the stream has ended before")


async def test_what_a_model_says_is_told_while_it_says_it(store: Store):
    said = ["Once ", "upon \U0001f9da ", "a ", "time."]
    waits = [asyncio.Event() for _ in said]
    pieces = [piece for pair in zip(said, map(Wait, waits), strict=True) for piece in pair]
    async with ModelServer([openai_wire.text(*pieces)]) as server:
        model = OpenAIModel("m", base_url=f"{server.url}/v1", api_key="k")
        tell = AgentFunction("tell", "Tell.", user_prompt_template="Tell.", default_model=model)
        async with Runtime([tell], store=store) as runtime:
            node = runtime.invoke(tell)
            await asyncio.to_thread(wait, lambda: runtime.get_view(node.id).partial)
            with await asyncio.to_thread(view, runtime, port=0) as viewer:
                headers = {"authorization": f"Bearer {viewer.token}"}
                async with (
                    asyncio.timeout(PATIENCE),
                    httpx.AsyncClient(base_url=viewer.address, headers=headers) as client,
                ):
                    follower = Follower(node.id)
                    texts: list[Message] = []

                    def go_on(message: Message) -> bool:
                        if message.event == "text":
                            texts.append(message)
                            for at, event in enumerate(waits, 1):
                                if follower.texts[node.id] == "".join(said[:at]):
                                    event.set()
                        return is_over(follower) and not follower.texts[node.id]

                    await follow(client, follower, go_on)
            assert await node == "".join(said)
    assert [message.id for message in texts] == [None] * len(texts)
    assert [message.data for message in texts] == [
        {"node": node.id, "text": "Once ", "from": 0},
        {"node": node.id, "text": "upon \U0001f9da ", "from": 5},
        {"node": node.id, "text": "\U0001f9da a ", "from": 10},  # 10 in every language
        {"node": node.id, "text": "\U0001f9da a time.", "from": 10},
        {"node": node.id, "text": "", "from": 0},
    ]


# --- many, slow and gone


async def test_fifty_follow_at_once(runtime: Runtime, garden: Garden, viewer: Viewer):
    with client_of(viewer) as one:
        tree = await asyncio.to_thread(begun, runtime, garden, one)
    followers = [Follower(tree) for _ in range(50)]
    began = [asyncio.Event() for _ in followers]
    headers = {"authorization": f"Bearer {viewer.token}"}
    limits = httpx.Limits(max_connections=None)
    async with (
        asyncio.timeout(PATIENCE),
        httpx.AsyncClient(
            base_url=viewer.address, headers=headers, limits=limits, timeout=PATIENCE
        ) as client,
        asyncio.TaskGroup() as group,
    ):

        def note(follower: Follower, event: asyncio.Event, _message: Message) -> bool:
            if follower.rows:
                event.set()
            return is_over(follower)

        for follower, event in zip(followers, began, strict=True):
            group.create_task(follow(client, follower, partial(note, follower, event)))
        for event in began:
            await event.wait()
        for _ in range(Garden.STEPS):
            garden.allow(1)
            await asyncio.sleep(0)
    with client_of(viewer) as one:
        fresh = await asyncio.to_thread(all_rows, one, tree)
    assert all(follower.rows == fresh.rows for follower in followers)


def test_a_client_that_does_not_read_is_told_less_and_not_later():
    size, rounds = 1_000_000, 25

    async def again(ctx: RunContext) -> str:
        for n in range(rounds):
            await ctx.ask(f"{n:02}" + "?" * size)
        return "done"

    function = CodeFunction(callable=again)
    with (
        Runtime([function], store=MemoryStore()) as runtime,
        view(runtime, port=0) as viewer,
        client_of(viewer) as client,
    ):
        where = urlsplit(viewer.address)
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 50_000)
        slow.settimeout(PATIENCE)
        slow.connect((where.hostname, where.port))
        head = f"Host: {where.netloc}\r\nAuthorization: Bearer {viewer.token}\r\n"
        slow.sendall(f"GET /api/stream HTTP/1.1\r\n{head}\r\n".encode())
        node = runtime.invoke(function)
        with client.stream("GET", "/api/stream") as response:
            told = messages(response.iter_lines())  # a client that reads receives each of them
            for n in range(rounds):
                question = next(
                    one.data["questions"][0]
                    for one in told
                    if one.event == "questions"
                    and [q["text"][:2] for q in one.data["questions"]] == [f"{n:02}"]
                )
                runtime.answer(question["id"], "go on")
            assert node.result() == "done"
            next(one for one in told if one.event == "questions" and not one.data["questions"])
        came = 0
        has_ended = has_questions = False
        # What has changed by the same moment may come in any order.
        with slow.makefile("rb") as lines:
            while not has_ended or has_questions:
                line = lines.readline()
                assert line, "the stream has ended"
                came += len(line)
                has_ended = has_ended or b'"state":"success"' in line
                if b'{"questions":[' in line:
                    has_questions = b'{"questions":[]}' not in line
        slow.close()
    assert came < size * rounds / 3


def test_nothing_is_left_of_those_who_have_gone(
    runtime: Runtime, garden: Garden, viewer: Viewer, client: httpx.Client
):
    tree = begun(runtime, garden, client)
    loop = viewer._loop  # pyright: ignore[reportPrivateUsage]
    assert loop is not None
    with client.stream("GET", f"/api/stream?tree={tree}") as response:
        next(response.iter_lines())
    client.get("/api/journal")

    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    wait(lambda: len(asyncio.all_tasks(loop)) <= 4)
    tasks = wait(lambda: len(asyncio.all_tasks(loop)))
    files = open_files()
    for path in [f"/api/stream?tree={tree}", "/api/stream"] * 15:
        with client.stream("GET", path) as response:
            next(response.iter_lines())
    client.get("/api/journal")
    wait(lambda: len(asyncio.all_tasks(loop)) <= tasks and open_files() <= files)


def test_closing_the_viewer_ends_all_streams_in_good_order(
    runtime: Runtime, garden: Garden, viewer: Viewer, client: httpx.Client
):
    tree = begun(runtime, garden, client)
    ended: list[list[str]] = []
    reading = threading.Barrier(6)

    def read() -> None:
        with client_of(viewer) as one, one.stream("GET", f"/api/stream?tree={tree}") as response:
            lines = response.iter_lines()
            first = next(lines)
            reading.wait(PATIENCE)
            ended.append([first, *lines])  # which would raise if it were cut off

    threads = [threading.Thread(target=read) for _ in range(5)]
    for thread in threads:
        thread.start()
    reading.wait(PATIENCE)
    viewer.close()
    for thread in threads:
        thread.join(PATIENCE)
    told = [[message.event for message in messages(lines)] for lines in ended]
    assert [events[:3] for events in told] == [["trees", "questions", "rows"]] * 5
    # What the tree did last may have been written after a stream had begun.
    assert {event for events in told for event in events[3:]} <= {"rows"}
    with pytest.raises(httpx.ConnectError):
        client.get("/api/journal")


def test_a_viewer_closes_though_a_client_does_not_read(viewer: Viewer, runtime: Runtime):
    async def ask(ctx: RunContext) -> str:
        return await ctx.ask("?" * 20_000_000)

    runtime.invoke(CodeFunction(callable=ask))
    wait(runtime.questions)
    where = urlsplit(viewer.address)
    with socket.create_connection((where.hostname or "", where.port or 0)) as stuck:
        head = f"Host: {where.netloc}\r\nAuthorization: Bearer {viewer.token}\r\n"
        stuck.sendall(f"GET /api/stream HTTP/1.1\r\n{head}\r\n".encode())
        stuck.settimeout(PATIENCE)
        assert stuck.recv(15) == b"HTTP/1.1 200 OK"
        viewer.close()
