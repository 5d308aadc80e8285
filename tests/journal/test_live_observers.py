"""What somebody else than the driver sees and asks for: live text, stacks, forks, who drives."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

import treefold
from support import blocked_runtime
from treefold import (
    AgentFunction,
    CodeFunction,
    Edit,
    MemoryStore,
    Observer,
    RunContext,
    Runtime,
    SqliteStore,
    ToolUse,
)
from treefold.core.errors import FencedError, InvalidValueError, StoreError, UnknownNodeError
from treefold.models import OpenAIModel
from treefold.runtime.durable.live_text import LiveTextReader
from treefold.stores import Batch, Store
from treefold.testing import ScriptedModel
from wire import openai_wire
from wire.replies import Wait
from wire.server import ModelServer

T = TypeVar("T")

PATIENCE: Final = 60  # seconds


def soon(what: Callable[[], T], until: Callable[[T], Any] = bool) -> T:
    deadline = time.monotonic() + PATIENCE
    while not until(found := what()):
        assert time.monotonic() < deadline, f"nothing came of it: {found!r}"
        time.sleep(0.01)
    return found


async def soon_here(what: Callable[[], T], until: Callable[[T], Any]) -> T:
    """Do the same, and let others run on this loop meanwhile."""
    async with asyncio.timeout(PATIENCE):
        while not until(found := what()):  # noqa: ASYNC110 - it happens elsewhere
            await asyncio.sleep(0.01)
        return found


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = SqliteStore(tmp_path / "run.db") if request.param == "file" else MemoryStore()
    yield made
    made.close()


def seen_from(store: Store) -> Observer:
    """Look on as another process does."""
    return treefold.attach(store.name if isinstance(store, SqliteStore) else store)


def teller(model: Any = None) -> AgentFunction:
    return AgentFunction("tell", "Tell.", user_prompt_template="Tell me.", default_model=model)


async def test_what_a_model_says_is_seen_while_it_says_it(store: Store):
    more, end = asyncio.Event(), asyncio.Event()
    replies = [openai_wire.text("Once ", Wait(more), "upon ", Wait(end), "a time")]
    async with ModelServer(replies) as server:
        telling = teller(OpenAIModel("m", base_url=f"{server.url}/v1", api_key="k"))
        async with Runtime([telling], store=store) as runtime:
            node = runtime.invoke(telling)
            with seen_from(store) as observer:
                await soon_here(observer.trees, bool)

                def said() -> str:
                    return observer.get_view(node.id).partial

                await soon_here(said, lambda text: text == "Once ")
                seen = observer.get_view(node.id)
                more.set()
                await soon_here(said, lambda text: text == "Once upon ")
                later = observer.get_view(node.id)
                assert (later.status, later.update_seqnum) == (
                    "receives a response",
                    seen.update_seqnum,
                )
                end.set()
                assert await node == "Once upon a time"
                await soon_here(lambda: observer.get_view(node.id), lambda view: view.state.final)
                assert said() == ""


async def test_a_watcher_is_woken_by_every_little_bit(store: Store):
    more = asyncio.Event()
    async with ModelServer([openai_wire.text("One, ", Wait(more), "two")]) as server:
        telling = teller(OpenAIModel("m", base_url=f"{server.url}/v1", api_key="k"))
        async with Runtime([telling], store=store) as runtime:
            node = runtime.invoke(telling)
            seen: list[str] = []
            with seen_from(store) as observer:
                await soon_here(observer.trees, bool)
                async with asyncio.timeout(PATIENCE):
                    async for view in observer.watch(node.id):
                        if view.partial and view.partial not in seen:
                            seen.append(view.partial)
                            more.set()
            assert seen[0] == "One, "
            assert await node == "One, two"


async def test_what_is_redacted_is_not_told_while_it_comes_in(store: Store):
    held = asyncio.Event()
    async with ModelServer([openai_wire.text("pass", "word", Wait(held), "!")]) as server:
        telling = teller(OpenAIModel("m", base_url=f"{server.url}/v1", api_key="k"))

        def hide(text: str) -> str:
            return text.replace("password", "***")

        async with Runtime([telling], store=store, redact=hide) as runtime:
            node = runtime.invoke(telling)
            live = runtime.watch(node)
            async with asyncio.timeout(PATIENCE):
                async for view in live:
                    if view.partial == "password":
                        break
            await asyncio.sleep(0.3)  # in which it would have been told
            assert store.read_broadcasts()[1] == []
            held.set()
            await node


def test_who_drives_is_known_to_all(store: Store):
    with seen_from(store) as observer:
        assert not observer.is_driven
        with Runtime(store=store):
            assert observer.is_driven
            for _ in range(100):  # asking takes nothing from whoever would drive
                assert observer.is_driven
        assert not observer.is_driven


def test_somebody_can_begin_to_drive_while_others_ask_whether_anybody_does(tmp_path: Path):
    path = tmp_path / "run.db"
    SqliteStore(path).close()
    with treefold.attach(path) as observer, treefold.attach(path) as other:
        for _ in range(50):
            assert not observer.is_driven
            with Runtime(store=path):
                assert other.is_driven


def test_trees_say_when_they_began_and_ended(store: Store):
    async def wait(ctx: RunContext) -> str:
        return await ctx.ask("Go on?")

    function = CodeFunction(callable=wait)
    before = time.time()
    with Runtime([function], store=store) as runtime, seen_from(store) as observer:
        node = runtime.invoke(function)
        [question] = soon(runtime.questions)
        [row] = soon(observer.trees, lambda rows: rows and rows[0].started)
        assert before <= (row.started or 0) <= time.time()
        assert row.ended is None
        runtime.answer(question.id, "yes")
        node.result()
        [row] = soon(observer.trees, lambda rows: rows[0].ended)
        times = [datetime.fromtimestamp(at or 0, UTC) for at in (row.started, row.ended)]
        assert times == [node.started_at, node.ended_at]


def test_the_stack_goes_down_to_what_is_under_way(store: Store):
    async def ask(ctx: RunContext, what: str) -> str:
        return await ctx.ask(what)

    asking = CodeFunction(callable=ask)
    model = ScriptedModel([ToolUse("1", "ask", {"what": "Why?"})], "done", name="scripted:m")
    boss = AgentFunction(
        "boss", "Decide.", user_prompt_template="go", uses=[asking], default_model=model
    )
    with Runtime([boss], store=store) as runtime, seen_from(store) as observer:
        node = runtime.invoke(boss)
        [question] = soon(observer.questions)
        frames = observer.stack(node.id)
        assert [(f.function, f.kind, f.state, f.path, f.arguments) for f in frames] == [
            ("boss", "agent", "running", "1", ""),
            ("ask", "code", "paused", "1.1", "what='Why?'"),
        ]
        assert frames == runtime.stack(node.id)
        assert observer.stack(question.node_id) == frames
        runtime.answer(question.id, "because")
        node.result()
        with pytest.raises(UnknownNodeError):
            observer.stack(99)


def test_a_fork_can_be_asked_for_from_elsewhere(store: Store):
    greet = AgentFunction("greet", "Greet.", user_prompt_template="Greet Ada.")
    model = ScriptedModel("Hi!", "Moin!", name="scripted:m")
    with Runtime([greet], models=model, store=store) as runtime, seen_from(store) as observer:
        first = runtime.invoke(greet)
        assert first.result() == "Hi!"
        key = observer.fork(first.id, edit=Edit(prompt="Greet Ada in Low German."))
        new = soon(lambda: observer.forked(key))
        view = soon(lambda: observer.get_view(new or 0), lambda view: view.state.final)
        assert (view.outputs, observer.get_view(first.id).outputs) == ("Moin!", "Hi!")
        sources = {row.id: row.source for row in observer.trees()}
        assert sources == {first.id: 0, new: first.id}


def test_a_fork_that_was_asked_for_while_nothing_ran_is_made_once(tmp_path: Path):
    greet = AgentFunction("greet", "Greet.", user_prompt_template="Greet Ada.")
    path = tmp_path / "run.db"
    with Runtime([greet], models=ScriptedModel("Hi!"), store=path) as runtime:
        first = runtime.invoke(greet)
        first.result()
    with treefold.attach(path) as observer:
        key = observer.fork(first.id, at=0)
        assert observer.forked(key) is None
        for _ in range(2):
            with Runtime([greet], models=ScriptedModel("Moin!"), store=path):
                new = soon(lambda: observer.forked(key))
                soon(partial(observer.get_view, new or 0), lambda view: view.state.final)
        assert [row.source for row in observer.trees()] == [0, first.id]


@pytest.mark.parametrize(
    ("at", "edit", "complaint"),
    [
        (None, Edit(prompt="x"), "add is code: it has no prompt and no model"),
        (1, None, "at=1 is only for an agent"),
        (None, Edit(args={"a": {1}}), "an edit has to be JSON"),
        (None, Edit(result=object()), "an edit has to be JSON"),
    ],
)
def test_a_fork_that_cannot_be_is_refused_where_it_is_asked_for(
    at: int | None, edit: Edit | None, complaint: str
):
    def add(ctx: RunContext, a: int) -> int:
        return a

    store, function = MemoryStore(), CodeFunction(callable=add)
    with Runtime([function], store=store) as runtime, treefold.attach(store) as observer:
        node = runtime.invoke(function, {"a": 1})
        node.result()
        with pytest.raises(InvalidValueError, match=complaint):
            observer.fork(node.id, at=at, edit=edit)
        assert store.inbox() == []


def test_a_choice_that_is_redacted_can_be_made_from_elsewhere(store: Store):
    async def ask(ctx: RunContext) -> str:
        return await ctx.ask("Which key?", ["SECRET one", "none"])

    function = CodeFunction(callable=ask)

    def hide(text: str) -> str:
        return text.replace("SECRET", "***")

    with (
        Runtime([function], store=store, redact=hide) as runtime,
        seen_from(store) as observer,
    ):
        node = runtime.invoke(function)
        [question] = soon(observer.questions)
        assert question.choices == ("*** one", "none")
        observer.answer(question.id, "*** one")
        assert node.result(PATIENCE) == "SECRET one"


def test_what_was_missed_is_marked_once():
    store = MemoryStore()
    hearer = LiveTextReader(store, 1)
    for start, text in (0, "Once upon "), (16, "a king "), (23, "who "):
        store.broadcast(json.dumps([1, 7, 3, start, text]))
    assert "".join(hearer.read({7: 3})[7].texts) == "Once upon …a king who "
    store.broadcast(json.dumps([1, 7, 3, 0, "It was thinking"]))
    assert "".join(hearer.read({7: 3})[7].texts) == "It was thinking"
    assert hearer.read({7: 4}) == {}


def test_what_a_killed_driver_was_told_is_gone_with_the_next(tmp_path: Path):
    path = tmp_path / "run.db"
    killed = SqliteStore(path)
    killed.join()
    killed.broadcast("half a sentence")
    left = (tmp_path / "run.db-live").read_bytes()
    killed.close()
    (tmp_path / "run.db-live").write_bytes(left)  # as it is when nobody could take it away
    with Runtime(store=path), treefold.attach(path) as observer:
        assert observer.is_driven
        assert not (tmp_path / "run.db-live").exists()


# --- what is not written yet


async def _double(ctx: RunContext, n: int) -> int:
    return 2 * n


double = CodeFunction(callable=_double, name="double")


def test_a_call_is_known_to_observers_of_its_process_as_soon_as_it_is_made(store: Store):
    with blocked_runtime(double, store=store) as runtime, seen_from(store) as observer:
        node = runtime.invoke(double, {"n": 2})
        assert store.find(node=node.id) is None
        view = observer.get_view(node.id)
        assert (view.fn, view.state.value, view.inputs) == ("double", "waiting", {"n": 2})
    assert node.result(PATIENCE) == 4


@pytest.mark.parametrize(
    "known",
    [
        lambda observer, id: observer.tree_of(id) == id,
        lambda observer, id: observer.trees_of([id]) == {id: id},
        lambda observer, id: observer.trees()[-1].id == id,
        lambda observer, id: observer.watch(id).result().id == id,
        lambda observer, id: observer.stack(id)[0].node_id == id,
        lambda observer, id: observer.events(id).read()[0].node == id,
    ],
    ids=["tree_of", "trees_of", "trees", "watch", "stack", "events"],
)
def test_every_way_to_ask_for_a_call_knows_it_at_once(
    store: Store, known: Callable[[Observer, int], bool]
):
    with blocked_runtime(double, store=store) as runtime, seen_from(store) as observer:
        assert known(observer, runtime.invoke(double, {"n": 2}).id)


def test_a_child_is_known_to_observers_on_the_loop_as_soon_as_it_is_made(store: Store):
    async def caller(ctx: RunContext) -> str:
        child = ctx.invoke(double, {"n": 2})
        with seen_from(store) as observer:
            return observer.get_view(child.id).fn

    function = CodeFunction(callable=caller, name="caller", uses=[double])
    with Runtime([function], store=store) as runtime:
        assert runtime.invoke(function).result(PATIENCE) == "double"


class Full(MemoryStore):
    """A store that keeps nothing once it is full."""

    is_full = False

    def append(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        if self.is_full:
            raise StoreError(self.name, "the disk is full")
        return super().append(batches)


def test_a_call_that_cannot_be_written_is_not_said_to_be_unknown():
    store = Full()
    with blocked_runtime(double, store=store) as runtime, seen_from(store) as observer:
        store.is_full = True
        node = runtime.invoke(double, {"n": 2})
        with pytest.raises(StoreError, match="the disk is full"):
            observer.get_view(node.id)
        with pytest.raises(UnknownNodeError):
            observer.get_view(4711)
        assert [tree.function for tree in observer.trees()] == ["block"]
        store.is_full = False
        assert observer.get_view(node.id).fn == "double"
