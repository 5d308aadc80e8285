"""Journals on full disks, and files that are locked, moved, damaged or foreign."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from journal.processes import Lives, World, failure, question_of, result
from support import wait
from treefold import (
    AgentFunction,
    CodeFunction,
    NodeState,
    Question,
    QuestionKind,
    RunContext,
    Runtime,
    SqliteStore,
    StoreError,
    ToolUse,
)
from treefold.core.errors import FencedError, UnknownQuestionError
from treefold.core.store import Batch

SHORT = 0.2  # seconds that a store is given until a person is asked


def big_steps(world: World) -> CodeFunction:
    """Code whose calls each write more than the last pages of a file have room for."""

    async def step(ctx: RunContext, n: int) -> str:
        world.add("step")
        return os.urandom(30_000).hex() if n else "small"

    steps = CodeFunction(callable=step)

    async def work(ctx: RunContext) -> int:
        lengths = [len(await ctx.invoke(steps, {"n": n})) for n in range(6)]
        return sum(lengths)

    return CodeFunction(callable=work, uses=[steps])


# --- a disk that is full: no file of the process may grow beyond a limit


def limit(size: int) -> None:
    """Let no file of this process become larger."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))


def no_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def runs_out_of_room(world: World) -> None:
    work = big_steps(world)
    with world.runtime(work) as runtime:
        result(runtime.invoke(work, key="before"))
        largest = max(path.stat().st_size for path in world.folder.glob("run.db*"))
        limit(largest + 70_000)
        node = runtime.invoke(work, key="after")
        question = question_of(runtime)
        world.add(
            "question",
            kind=question.kind.value,
            choices=sorted(question.choices),
            text=question.text,
            state=runtime.get_view(question.node_id).state.value,
        )
        no_limit()
        steps = world.done("step")
        resume(runtime, question)
        world.add("result", value=result(node), steps=steps)


def test_a_full_disk_pauses_the_calls_that_wait_for_it_and_resume_tries_again(
    world: World, lives: Lives
):
    lives.ended(runs_out_of_room, world)
    assert world.told("question", "kind") == ["paused"]
    assert world.told("question", "choices") == [["cancel", "resume"]]
    assert world.told("question", "state") == ["paused"]
    [text] = world.told("question", "text")
    assert "run.db" in text
    assert world.told("result", "value") == [5 * 60_000 + 5]
    assert world.done("step") == 12
    work = big_steps(world)
    with world.runtime(work) as runtime:
        assert runtime.recover() == []
        first, second = runtime.list_toplevel()
        assert result(first) == result(second) == 5 * 60_000 + 5
        assert [len(one.outputs) for one in runtime.get_subtree(second.id)[1:]] == [
            5,
            *[60_000] * 5,
        ]
    assert world.done("step") == 12


def runs_out_of_room_and_is_cancelled(world: World) -> None:
    work = big_steps(world)
    with world.runtime(work, patience=SHORT) as runtime:
        largest = max(path.stat().st_size for path in world.folder.glob("run.db*"))
        limit(largest + 70_000)
        node = runtime.invoke(work, key="after")
        question = question_of(runtime)
        runtime.answer(question.id, "cancel")  # before it can continue by itself
        no_limit()
        world.add("state", error=type(failure(node)).__name__, state=node.state.value)


def test_what_waits_for_a_full_disk_may_be_cancelled(world: World, lives: Lives):
    lives.ended(runs_out_of_room_and_is_cancelled, world)
    assert world.told("state", "state") == ["canceled"]
    work = big_steps(world)
    with world.runtime(work) as runtime:
        assert runtime.recover() == []
        assert [node.state for node in runtime.list_toplevel()] == [NodeState.Canceled]


def dies_on_a_full_disk(world: World) -> None:
    work = big_steps(world)
    with world.runtime(work, patience=SHORT) as runtime:
        largest = max(path.stat().st_size for path in world.folder.glob("run.db*"))
        limit(largest + 70_000)
        runtime.invoke(work, key="after")
        question_of(runtime)
        world.die()


def test_what_was_committed_before_a_disk_was_full_is_there_afterwards(world: World, lives: Lives):
    lives.killed(dies_on_a_full_disk, world)
    began = world.done("step")
    work = big_steps(world)
    with world.runtime(work) as runtime:
        [node] = runtime.recover()
        if doubtful := [q for q in runtime.questions() if q.kind is QuestionKind.InDoubt]:
            runtime.answer(doubtful[0].id, "retry")
        wait(lambda: node.state.final or runtime.questions())
        for question in runtime.questions():
            runtime.answer(question.id, "retry")
        assert result(node) == 5 * 60_000 + 5
    assert world.done("step") <= 6 + 1
    assert began <= 6


# --- a file that somebody else has locked

HOLDS = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
connection.close()
print("free", flush=True)
"""


@contextmanager
def locked(path: Path) -> "Generator[subprocess.Popen[str], None, None]":
    """Let another process hold the write lock of a database until it is told a line."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    try:
        yield holder
    finally:
        holder.communicate("\n", timeout=60)


def test_a_file_that_is_locked_too_long_pauses_what_waits_for_it(world: World):
    look = world.tool("look")
    with world.runtime(look, patience=SHORT) as runtime:
        assert result(runtime.invoke(look, {"n": 1})) == "look 1"
        with locked(world.file):
            node = runtime.invoke(look, {"n": 2})
            question = question_of(runtime)
            assert question.kind is QuestionKind.Paused
            assert "run.db" in question.text
            assert world.done("look") == 1
        resume(runtime, question)
        assert result(node) == "look 2"
    assert world.done("look") == 2


def test_a_file_that_was_moved_away_pauses_what_waits_for_it(world: World):
    look, away = world.tool("look"), world.file.with_name("away.db")
    with world.runtime(look, patience=SHORT) as runtime:
        assert result(runtime.invoke(look, {"n": 1})) == "look 1"
        world.file.rename(away)
        node = runtime.invoke(look, {"n": 2}, key="two")
        question = question_of(runtime)
        assert question.kind is QuestionKind.Paused
        assert "put it back" in question.text
        assert world.done("look") == 1
        away.rename(world.file)
        resume(runtime, question)
        assert result(node) == "look 2"
    with world.runtime(look) as runtime:
        assert result(runtime.invoke(look, {"n": 2}, key="two")) == "look 2"
    assert world.done("look") == 2


def resume(runtime: Runtime, question: Question) -> None:
    """Answer a question about the journal, unless the run has continued by itself by now."""
    with suppress(UnknownQuestionError):
        runtime.answer(question.id, "resume")


def test_a_file_that_is_locked_for_a_moment_is_waited_for(world: World):
    look = world.tool("look")
    with world.runtime(look) as runtime:
        result(runtime.invoke(look, {"n": 1}))
        with locked(world.file) as holder:
            node = runtime.invoke(look, {"n": 2})
            assert not node.state.final
            assert holder.stdin is not None
            holder.stdin.write("\n")
            holder.stdin.flush()
            assert result(node) == "look 2"
        assert runtime.questions() == []


# --- a store whose medium fails


class WeakStore(SqliteStore):
    """Fails when it is told to."""

    error: StoreError | None = None

    def append(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        if self.error is not None:
            raise self.error
        return super().append(batches)


def test_an_agent_goes_on_where_it_was_when_the_disk_is_well_again(world: World):
    store = WeakStore(world.file, patience=SHORT)

    async def break_it(ctx: RunContext) -> str:
        world.add("break")
        store.error = StoreError("run.db", "the disk is on fire")
        return "broken"

    boss = AgentFunction(
        "boss",
        "",
        user_prompt_template="Go.",
        uses=[CodeFunction(callable=break_it), world.tool("look")],
    )
    model = world.model([ToolUse("1", "break_it")], [ToolUse("2", "look")], "done")
    with Runtime([boss], models=model, store=store) as runtime:
        node = runtime.invoke(boss)
        question = question_of(runtime)
        assert question.kind is QuestionKind.Paused
        assert set(question.choices) >= {"resume", "cancel"}
        assert "the disk is on fire" in question.text
        assert world.all_done == {"request": 1, "break": 1}
        runtime.answer(question.id, "resume")  # too early
        again = question_of(runtime)
        assert "the disk is on fire" in again.text
        store.error = None
        resume(runtime, again)
        assert result(node) == "done"
    assert world.all_done == {"request": 3, "break": 1, "look": 1}
    with world.runtime(boss, models=model) as runtime:
        [node] = runtime.list_toplevel()
        assert result(node) == "done"


def test_a_run_ends_when_another_writes_to_its_journal(world: World):
    store = WeakStore(world.file)
    look = world.tool("look")

    async def fence(ctx: RunContext) -> str:
        store.error = FencedError("run.db", "another runtime has written it")
        return await ctx.invoke(look)

    function = CodeFunction(callable=fence, uses=[look])
    runtime = Runtime([function], store=store)
    try:
        node = runtime.invoke(function)
        assert isinstance(failure(node), FencedError)
        assert world.done("look") == 0
    finally:
        store.error = None
        runtime.close()


# --- files that are no journals


def test_a_file_that_is_not_ours_is_refused_in_words(world: World):
    connection = sqlite3.connect(world.file)
    connection.execute("CREATE TABLE recipes(name)")
    connection.commit()
    connection.close()
    before = world.file.read_bytes()
    with pytest.raises(StoreError, match="run.db"):
        world.runtime()
    assert world.file.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_in_words(world: World):
    world.file.write_text("This is a letter, and not a database. " * 100)
    with pytest.raises(StoreError, match="run.db"):
        world.runtime()
    assert world.file.read_text().startswith("This is a letter")


def made(world: World) -> None:
    look = world.tool("look")
    with world.runtime(look) as runtime:
        for n in range(20):
            result(runtime.invoke(look, {"n": n}))


def test_a_file_from_a_newer_version_is_refused_in_words(world: World):
    made(world)
    connection = sqlite3.connect(world.file)
    [version] = connection.execute("PRAGMA user_version").fetchone()
    connection.execute(f"PRAGMA user_version = {version + 1000}")
    connection.close()
    with pytest.raises(StoreError, match="newer"):
        world.runtime()


def test_a_damaged_file_is_refused_in_words(world: World):
    made(world)
    size = world.file.stat().st_size
    with world.file.open("r+b") as file:
        file.seek(100)
        file.write(os.urandom(size - 100))
    with pytest.raises(StoreError, match="run.db"):
        look_at_all(world)


def look_at_all(world: World) -> None:
    with world.runtime() as runtime:
        for node in runtime.list_toplevel():
            runtime.get_view(node.id)


def test_a_folder_that_is_not_there_is_named(world: World):
    with pytest.raises(StoreError, match="nowhere"):
        Runtime([], store=world.folder / "nowhere" / "run.db")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to everything")
def test_a_file_that_is_read_only_is_refused_in_words(world: World):
    made(world)
    world.file.chmod(0o400)
    world.folder.chmod(0o500)
    try:
        with pytest.raises(StoreError, match="run.db"):
            world.runtime()
    finally:
        world.folder.chmod(0o700)


@pytest.mark.parametrize("store", [3, b"run.db", object()], ids=["number", "bytes", "object"])
def test_what_is_no_store_is_refused(store: Any):
    with pytest.raises((TypeError, ValueError)):
        Runtime([], store=store)
