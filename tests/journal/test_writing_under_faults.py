"""What happens is written down, whoever asked for it, and whatever goes wrong meanwhile."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from command_line import environment
from support import wait
from treefold import (
    CodeFunction,
    Ensemble,
    Function,
    MemoryStore,
    Question,
    RunContext,
    Runtime,
    SqliteStore,
    StoreBusyError,
    StoreError,
    ToolUse,
    agent,
    attach,
    registries,
    tool,
)
from treefold.core.errors import ClosedError, FencedError
from treefold.core.events import CallRequested
from treefold.runtime.durable.journal_writer import JournalWriter
from treefold.stores import Batch
from treefold.testing import ScriptedModel

PATIENCE: Final = 60  # seconds
NO_NODE: Final[Any] = None  # no call waits for it


# --- questions


def test_a_call_that_a_loop_asked_for_which_is_over_is_written_down(tmp_path: Path) -> None:
    path, is_over = tmp_path / "run.db", threading.Event()

    @tool(repeatable=True)
    async def ask(ctx: RunContext) -> str:
        await asyncio.to_thread(is_over.wait, PATIENCE)
        return await ctx.ask("Is it time?")

    with Runtime([ask], store=path) as runtime:

        async def begin() -> None:
            runtime.invoke(ask)

        asyncio.run(begin())
        is_over.set()
        with attach(path) as observer:
            [question] = wait(observer.questions)
        assert question.text == "Is it time?"


class Busy(MemoryStore):
    """A store that will not write once, when it is told so."""

    is_locked = False
    refused = 0

    def append(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        if self.is_locked:
            self.is_locked = False
            self.refused += 1
            raise StoreError(self.name, "it is locked")
        return super().append(batches)


def test_a_question_that_could_not_be_written_at_once_is_soon_known_to_others() -> None:
    store = Busy()

    @tool(repeatable=True)
    async def ask(ctx: RunContext) -> str:
        store.is_locked = True
        return await ctx.ask("Is it time?")

    with Runtime([ask], store=store) as runtime, attach(store) as observer:
        runtime.invoke(ask)
        [question] = wait(observer.questions)
        assert question.text == "Is it time?"
    assert store.refused == 1


class Locked(MemoryStore):
    """A store that writes nothing while it is told so."""

    def __init__(self) -> None:
        super().__init__()
        self.is_locked = False
        self.has_refused = threading.Event()

    def append(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        if self.is_locked:
            self.has_refused.set()
            raise StoreError(self.name, "it is locked")
        return super().append(batches)


def test_code_left_behind_can_do_nothing_while_the_outcome_of_its_call_is_written() -> None:
    store, left = Locked(), list[asyncio.Task[None]]()

    @tool
    async def one() -> int:
        return 1

    @tool(uses=[one])
    async def hasty(ctx: RunContext) -> str:
        async def late() -> None:
            await asyncio.to_thread(store.has_refused.wait, PATIENCE)
            try:
                with pytest.raises(ClosedError, match="can make no more calls"):
                    ctx.invoke(one)
                with pytest.raises(ClosedError, match="can ask no more questions"):
                    await ctx.ask("Is it time?")
            finally:
                store.is_locked = False

        left.append(asyncio.get_running_loop().create_task(late()))
        store.is_locked = True
        return "done"

    with Runtime([hasty], store=store) as runtime:
        node = runtime.invoke(hasty)
        assert node.result(PATIENCE) == "done"
        wait(left[0].done)
        assert left[0].exception() is None


# --- leaving


with registries():  # other tests look at all the tools that there are

    @tool(repeatable=True)
    async def person(ctx: RunContext) -> str:
        return await ctx.ask("Is it time?")


def is_left(run: Callable[[], None]) -> bool:
    """Whether *run*, which leaves a runtime at its end, comes to that."""
    leaving = threading.Thread(target=run, daemon=True)
    leaving.start()
    leaving.join(PATIENCE)
    return not leaving.is_alive()


def test_code_that_waits_for_several_calls_is_left_when_only_a_person_is_awaited() -> None:
    store = MemoryStore()

    @tool
    async def quick() -> int:
        return 1

    @tool(uses=[person, quick])
    async def both(ctx: RunContext) -> str:
        async def call(function: Function) -> object:
            return await ctx.invoke(function)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call(function)) for function in (person, quick)]
        return " ".join(str(task.result()) for task in tasks)

    def run() -> None:
        with Runtime([both], store=store) as runtime:
            runtime.invoke(both)

    assert is_left(run)
    with Runtime([both], store=store) as runtime:
        [node] = runtime.recover()
        runtime.answer(runtime.questions()[0].id, "yes")
        assert node.result(PATIENCE) == "yes 1"


def test_an_ensemble_is_left_when_all_of_its_members_wait_for_a_person() -> None:
    store = MemoryStore()

    @agent(uses=[person])
    def decide() -> str:
        return "Decide."

    both = Ensemble(decide, {"m": 2})
    model = ScriptedModel(lambda request: ToolUse("1", "person", {}), name="m")

    def run() -> None:
        with Runtime([both], models={"m": model}, store=store) as runtime:
            runtime.invoke(both)

    assert is_left(run)
    assert [question.text for question in store.questions()] == ["Is it time?"] * 2


FORKS: Final = """
import os, sys
from treefold import Runtime, tool

@tool
async def one() -> int:
    return 1

child = None
with Runtime([one], store=sys.argv[1]) as runtime:
    runtime.invoke(one).result()
    child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_leaves_its_parents_runtime_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    parent = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FORKS, str(path)],
        env=environment(),
        stderr=subprocess.PIPE,
        start_new_session=True,  # so that its child can be ended with it
    )
    try:
        _, complaints = parent.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.communicate(timeout=PATIENCE)
        raise
    assert (parent.returncode, complaints) == (0, b"")
    with attach(path) as observer:
        assert [tree.state.final for tree in observer.trees()] == [True]


# --- in order


async def test_whoever_is_written_down_first_is_told_first() -> None:
    store, told = MemoryStore(), list[int]()
    store.join()
    journal = JournalWriter(store, None)

    async def end(node: int) -> None:
        journal.record(node, CallRequested(node, None, 1, 1, "f", {}, key=f"#{node}"))
        await journal.saved(NO_NODE)
        told.append(node)

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        await end(1)
        await end(2)  # after the next one it is known that the store is quick
        group.create_task(end(3))
        await asyncio.sleep(0)  # until it waits
        while not journal.is_saved(3):  # noqa: ASYNC110 - whoever waits for it is told too late
            await asyncio.sleep(0)
        await end(4)
    journal.close()
    assert told == [1, 2, 3, 4]


async def test_a_stream_that_is_quicker_than_the_disk_waits_for_it(tmp_path: Path) -> None:
    behind: list[int] = []
    store = SqliteStore(tmp_path / "run.db", synchronous="NORMAL")

    async def give(ctx: RunContext) -> AsyncGenerator[int, None]:
        for number in range(1, 20_000):
            yield number
            if number % 100 == 0:
                await asyncio.sleep(0)
                behind.append(number - store.length(1))

    async with Runtime(store=store) as runtime:
        await runtime.invoke(CodeFunction(callable=give, repeatable=True))
    assert max(behind) < 2000


# --- locks of other programs


three = CodeFunction(name="three", callable=lambda ctx: 3)


@contextmanager
def locked(path: Path) -> Generator[Callable[[], None]]:
    """Hold the write lock of a file as another program would; gives what lets go of it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield lambda: other.execute("ROLLBACK") and None


def test_a_lock_that_is_gone_after_a_few_retries_is_nobodys_question(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(tmp_path / "run.db", patience=0.01)
    store.patience = PATIENCE  # of the retries
    with Runtime([three], store=store) as runtime, locked(tmp_path / "run.db") as unlock:
        node = runtime.invoke(three)
        wait(lambda: [one for one in caplog.messages if one.endswith("(it is retried)")])
        assert runtime.questions() == []
        unlock()
        assert node.result(PATIENCE) == 3
    assert [one for one in caplog.messages if one.endswith("can be written again")]
    assert "QuestionAsked" not in kinds(tmp_path / "run.db")


def test_a_run_that_waits_for_a_lock_continues_by_itself_and_the_question_is_written(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.db"
    with Runtime([three], store=SqliteStore(path, patience=0.01)) as runtime:
        assert runtime.invoke(three).result(PATIENCE) == 3
        with locked(path) as unlock:
            node = runtime.invoke(three)
            [question] = wait(runtime.questions)
            assert (question.node_id, node.state.value) == (node.id, "paused")
            unlock()
            assert node.result(PATIENCE) == 3
        assert runtime.questions() == []
    found = kinds(path)
    assert found.index("QuestionAsked") < found.index("QuestionSettled")
    with attach(path) as observer:
        assert observer.questions() == []
        assert observer.get_view(node.id).state.value == "success"


def kinds(path: Path) -> list[str]:
    with SqliteStore(path) as store:
        return [entry.kind for tree in store.trees() for entry in store.entries(tree.id)]


async def test_a_lock_of_another_program_does_not_block_the_event_loop(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    store = SqliteStore(path, synchronous="NORMAL")
    async with asyncio.timeout(PATIENCE), Runtime([three], store=store) as runtime:
        for _ in range(30):  # until it is known that the disk is quick, and the loop writes
            assert await runtime.invoke(three) == 3
        with locked(path) as unlock:
            node = runtime.invoke(three)
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert not node.state.final
            unlock()  # only a loop that is not blocked gets here
            assert await node == 3
        assert runtime.questions() == []


async def test_leaving_a_runtime_while_another_program_has_a_lock_does_not_block_the_event_loop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run.db"

    async def unlock_later(unlock: Callable[[], None]) -> None:
        for _ in range(20):
            await asyncio.sleep(0.001)
        unlock()

    with ExitStack() as locks:
        async with (
            asyncio.timeout(PATIENCE),
            asyncio.TaskGroup() as group,
            Runtime([person], store=path) as runtime,
        ):
            node = runtime.invoke(person)
            while not attached(path):  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.005)
            unlock = locks.enter_context(locked(path))
            runtime.pause(node.id, "enough")  # nobody waits for that to be written
            group.create_task(unlock_later(unlock))
    assert [one for one in caplog.messages if "not everything" in one] == []
    assert len(attached(path)) == 2


def attached(path: Path) -> list[Question]:
    with attach(path) as observer:
        return observer.questions()


async def loop_turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0.001)


async def test_a_parked_tree_is_resumed_without_waiting_for_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with Runtime([person], store=path) as runtime:
        runtime.invoke(person)
        wait(lambda: attached(path))
    async with asyncio.timeout(PATIENCE), Runtime([person], store=path) as runtime:
        [node] = runtime.recover()
        [question] = runtime.questions()
        with locked(path) as unlock:
            with pytest.raises(StoreBusyError):  # no claim can be written, so no answer is taken
                runtime.answer(question.id, "Yes.")
            answering = asyncio.create_task(  # noqa: TID251 - a person, beside the loop
                asyncio.to_thread(runtime.answer, question.id, "Yes.")
            )
            await loop_turns()
            unlock()
            await answering
        with locked(path) as unlock:
            await loop_turns()
            unlock()
        assert await node == "Yes."


async def test_a_fork_is_made_without_waiting_for_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    async with asyncio.timeout(PATIENCE), Runtime([three], store=path) as runtime:
        node = runtime.invoke(three)
        assert await node == 3
        with locked(path) as unlock:
            fork = runtime.fork(node)
            await loop_turns()
            assert not fork.state.final
            with pytest.raises(StoreBusyError, match="asyncio.to_thread"):
                runtime.fork(fork)  # which is not written yet, so that it cannot be read
            forking = asyncio.to_thread(runtime.fork, fork)
            again = asyncio.create_task(forking)  # noqa: TID251 - a thread, beside the loop
            await loop_turns()
            assert not again.done()
            unlock()
            assert await fork == 3
            assert await (await again) == 3


async def test_a_tree_is_deleted_without_waiting_for_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    async with asyncio.timeout(PATIENCE), Runtime([three], store=path) as runtime:
        node = runtime.invoke(three)
        assert await node == 3
        with locked(path) as unlock:
            with pytest.raises(StoreBusyError):
                runtime.delete(node.id)
            assert runtime.list_toplevel() == [node]
            unlock()
            runtime.delete(node.id)
        assert runtime.list_toplevel() == []


def test_an_answer_that_is_not_written_yet_is_not_lost_when_the_tree_is_looked_at(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.db"
    with Runtime([person], store=path) as runtime:
        runtime.invoke(person)
        wait(lambda: attached(path))
    store = SqliteStore(path, patience=0.01)
    with Runtime([person], store=store) as runtime:
        [question] = runtime.questions()
        with locked(path) as unlock:
            runtime.invoke(three)
            wait(lambda: len(runtime.questions()) > 1)  # the journal is in trouble
            runtime.answer(question.id, "Yes.")
            assert runtime.get_view(question.node_id).questions == ()
            unlock()
        assert runtime.recover()[0].result(PATIENCE) == "Yes."
