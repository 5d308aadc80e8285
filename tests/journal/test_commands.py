"""What a driver makes of the messages that others leave in its journal."""

import asyncio
import json
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

import treefold
from notes_in_files import note, noted
from support import wait
from treefold import (
    CodeFunction,
    Edit,
    MemoryStore,
    NodeState,
    Observer,
    Question,
    QuestionKind,
    RunContext,
    Runtime,
    SqliteStore,
    StoreError,
    StoreOwnedError,
)
from treefold.core.commands import (
    AnswerQuestion,
    CancelCall,
    ClaimQuestion,
    Command,
    ForkTree,
    ResumeCall,
    refusals_in,
    write_command,
)
from treefold.core.errors import (
    FencedError,
    InvalidValueError,
    StoreDamagedError,
    UnknownQuestionError,
)
from treefold.runtime.durable.inbox import Inbox
from treefold.runtime.durable.journal_writer import JournalWriter
from treefold.stores import Batch

T = TypeVar("T")

PATIENCE: Final = 60  # seconds


def anything(value: Any) -> Any:
    return value


async def ask(ctx: RunContext) -> str:
    return await ctx.ask("Well?")


asking = CodeFunction(callable=ask, repeatable=True)


class Unwilling(SqliteStore):
    """A store that will not write some things while it is told so."""

    fails_to_append = fails_to_forget = False
    failures = 0

    def append(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        if self.fails_to_append:
            self.failures += 1
            raise StoreError(self.name, "no room")
        return super().append(batches)

    def done(self, message: int) -> None:
        if self.fails_to_forget:
            raise StoreError(self.name, "no room")
        super().done(message)


def asked(store: Any) -> Question:
    [question] = wait(store.questions)
    return question


def park(path: Path) -> Question:
    """Leave a tree that waits for an answer."""
    with Runtime([asking], store=path) as runtime:
        runtime.invoke(asking)
        return asked(runtime)


def test_what_is_no_message_is_dropped_and_the_next_one_is_followed(
    path: Path, caplog: pytest.LogCaptureFixture
):
    with SqliteStore(path) as store, Runtime([asking], store=path) as runtime:
        node = runtime.invoke(asking)
        bodies = [
            "junk",
            "[" * 100_000,
            "7",
            "{}",
            json.dumps({"do": "dance", "node": 1}),
            json.dumps({"do": "cancel", "node": 99, "reason": ""}),
            json.dumps({"do": "cancel", "node": 2**80, "reason": ""}),
            json.dumps({"do": "resume", "node": node.id}),
            json.dumps({"do": "answer", "id": "9-9", "text": "", "args": None}),
            json.dumps({"do": "answer", "id": "x", "text": "", "args": 5}),
        ]
        for body in bodies:
            store.post(body)
        wait(lambda: not store.inbox())
        assert store.post(json.dumps({"do": "cancel", "node": node.id, "reason": "enough"}))
        wait(lambda: node.state is NodeState.Canceled)
    dropped = [one for one in caplog.messages if one.startswith("what another process asked for")]
    assert len(dropped) == len(bodies)
    assert all("was not done" in one for one in dropped)


def test_an_answer_that_is_not_utf_8_arrives_as_it_is(path: Path):
    with Runtime([asking], store=path) as runtime, treefold.attach(path) as observer:
        node = runtime.invoke(asking)
        observer.answer(asked(observer).id, "caf\udce9")
        assert node.result(PATIENCE) == "caf\udce9"
    with Runtime([asking], store=path) as runtime:
        assert runtime.get_view(node.id).outputs == "caf\udce9"


def test_a_reason_that_is_not_utf_8_cancels(path: Path):
    with Runtime([asking], store=path) as runtime, treefold.attach(path) as observer:
        node = runtime.invoke(asking)
        asked(observer)
        observer.cancel(node.id, "caf\udce9")
        wait(lambda: node.state is NodeState.Canceled)
        exception = runtime.get_view(node.id).exception
        assert exception is not None
        assert exception.message.endswith("caf\udce9")


def test_a_refusal_that_is_not_utf_8_reaches_who_asked(path: Path):
    async def count(ctx: RunContext) -> int:
        return await ctx.ask(int, "How many?")

    counting = CodeFunction(callable=count, repeatable=True)
    with Runtime([counting], store=path) as runtime, treefold.attach(path) as observer:
        runtime.invoke(counting)
        question = asked(observer)
        with SqliteStore(path) as store:
            body = {"do": "answer", "id": question.id, "text": "caf\udce9"}
            store.post(json.dumps(body), question=question.id)
        assert "caf" in wait(lambda: observer.refusal(question.id))


def test_infinite_arguments_of_a_fork_arrive(path: Path):
    wait_for = CodeFunction(name="wait_for", callable=lambda ctx, x: f"waited {x}")
    with Runtime([wait_for], store=path) as runtime, treefold.attach(path) as observer:
        node = runtime.invoke(wait_for, {"x": 1.0})
        assert node.result(PATIENCE) == "waited 1.0"
        wait(lambda: observer.get_view(node.id).state.final)
        key = observer.fork(
            node.id,
            edit=Edit(
                args={
                    "x": math.inf,
                }
            ),
        )
        fork = wait(lambda: observer.forked(key))
        wait(lambda: observer.get_view(fork).outputs == "waited inf")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (CancelCall(1, anything(5)), "Expected `str`, got `int`"),
        (AnswerQuestion("1-1", anything(5)), "Expected `str`, got `int`"),
        (ForkTree(1, "key", edit={"args": {1, 2}}), "an edit has to be JSON: set has no JSON form"),
        (ResumeCall(1, without=(anything(5),)), "Expected `str`, got `int`"),
    ],
)
def test_what_nobody_could_read_is_refused_to_who_posts_it(command: Command, message: str):
    with pytest.raises(InvalidValueError, match=message):
        write_command(command, "an edit")


def test_a_message_is_kept_until_what_came_of_it_is_written_down(path: Path):
    question = park(path)
    store = Unwilling(path)
    with Runtime([asking], store=store) as runtime, treefold.attach(path) as observer:
        [node] = runtime.recover()
        store.fails_to_append = True
        observer.answer(question.id, "yes")
        wait(lambda: store.failures > 3)  # it is tried again at each look into the inbox
        assert len(store.inbox()) == 1
        assert "QuestionSettled" not in [entry.kind for entry in store.entries(node.id)]
        store.fails_to_append = False
        assert node.result(PATIENCE) == "yes"
        wait(lambda: not store.inbox())


def test_a_message_that_could_not_be_forgotten_is_followed_once(path: Path):
    question = park(path)
    with treefold.attach(path) as observer:
        observer.cancel(question.node_id)
        with Runtime([asking], store=path):
            observer.watch(question.node_id, timeout=PATIENCE).result()
            wait(lambda: _is_empty(path))
        observer.resume(question.node_id)
        store = Unwilling(path)
        store.fails_to_forget = True
        with Runtime([asking], store=store) as runtime:
            again = asked(runtime)
            assert len(store.inbox()) == 1
        with Runtime([asking], store=path) as runtime:
            assert asked(runtime) == again
            wait(lambda: _is_empty(path))
            runtime.answer(again.id, "yes")
            assert runtime.recover()[-1].result(PATIENCE) == "yes"
        assert [tree.source for tree in observer.trees()] == [0, question.node_id]


def _is_empty(path: Path) -> bool:
    with SqliteStore(path) as store:
        return not store.inbox()


async def test_what_comes_while_the_runtime_closes_is_left_for_the_next(path: Path):
    begun, closing = asyncio.Event(), asyncio.Event()

    async def lingers(ctx: RunContext) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            closing.set()
            await asyncio.sleep(0.5)  # longer than it takes to look for messages

    question = await asyncio.to_thread(park, path)
    lingering = CodeFunction(callable=lingers)

    async def leave(runtime: Runtime) -> None:
        async with runtime:
            runtime.invoke(lingering)
            await begun.wait()
            raise ZeroDivisionError

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        runtime = Runtime([asking, lingering], store=path)
        left = group.create_task(_left(leave(runtime)))
        await closing.wait()
        with treefold.attach(path) as observer:
            observer.answer(question.id, "yes")
        await left
    async with asyncio.timeout(PATIENCE), Runtime([asking], store=path) as runtime:
        nodes = {node.id: node for node in runtime.recover()}
        assert await nodes[question.node_id] == "yes"


async def _left(work: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        await work


def test_an_answer_is_taken_though_somebody_looked_at_the_tree_before(path: Path):
    question = park(path)
    with Runtime([asking], store=path) as runtime:
        [node] = runtime.list_toplevel()
        assert runtime.get_view(node.id).state is NodeState.Paused
        runtime.answer(question.id, "yes")
        assert node.result(PATIENCE) == "yes"
        assert runtime.questions() == []


def test_whoever_is_refused_a_store_leaves_it_to_those_who_use_it(path: Path):
    for store in MemoryStore(), SqliteStore(path):
        with Runtime([asking], store=store) as runtime:
            node = runtime.invoke(asking)
            with pytest.raises(StoreOwnedError):
                Runtime([asking], store=store)
            with treefold.attach(store) as observer:
                question = asked(observer)
            runtime.answer(question.id, "yes")
            assert node.result(PATIENCE) == "yes"
            assert runtime.questions() == []


def test_keys_are_shown_as_they_were_given():
    store = MemoryStore()
    with Runtime([asking], store=store) as runtime:
        runtime.invoke(asking, key="a")
        runtime.invoke(asking)
        wait(lambda: len(store.questions()) == 2)
        with treefold.attach(store) as observer:
            assert [tree.key for tree in observer.trees()] == ["a", ""]


async def test_an_answer_from_outside_that_was_accepted_is_not_overruled_in_the_process(path: Path):
    async with asyncio.timeout(PATIENCE), Runtime([asking], store=path) as runtime:
        node = runtime.invoke(asking)
        with treefold.attach(path) as observer:
            while not (questions := observer.questions()):  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.005)
            observer.answer(questions[0].id, "outside")
            with pytest.raises(UnknownQuestionError, match="been answered already"):
                runtime.answer(questions[0].id, "inside")
            assert await node == "outside"
            with pytest.raises(UnknownQuestionError, match="been answered already"):
                observer.answer(questions[0].id, "again")


async def test_an_answer_in_the_process_is_not_overruled_from_outside(path: Path):
    store = SqliteStore(path)
    async with asyncio.timeout(PATIENCE), Runtime([asking], store=store) as runtime:
        node = runtime.invoke(asking)
        with treefold.attach(path) as observer:
            while not (questions := observer.questions()):  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.005)
            runtime.answer(questions[0].id, "inside")
            with pytest.raises(UnknownQuestionError, match="been answered already"):
                observer.answer(questions[0].id, "outside")
            assert await node == "inside"
            while observer.questions() or store.inbox():  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.005)


def test_exactly_one_of_two_answers_at_the_same_time_wins(path: Path):
    with Runtime([asking], store=path) as runtime, treefold.attach(path) as observer:
        nodes = [runtime.invoke(asking) for _ in range(30)]
        wait(lambda: len(observer.questions()) == len(nodes))
        begin, accepted = threading.Barrier(2), set[tuple[int, str]]()

        def answer(answer: Callable[..., None], text: str) -> None:
            begin.wait(PATIENCE)
            for node in nodes:
                with suppress(UnknownQuestionError):
                    answer(f"{node.id}-1", text)
                    accepted.add((node.id, text))

        threads = [
            threading.Thread(target=answer, args=[runtime.answer, "inside"]),
            threading.Thread(target=answer, args=[observer.answer, "outside"]),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert {(node.id, node.result(PATIENCE)) for node in nodes} == accepted


def test_an_answer_that_was_announced_by_a_killed_process_does_not_hide_the_question(path: Path):
    question = park(path)
    with SqliteStore(path) as store:
        claim = {"do": "claim", "id": question.id, "by": "somebody"}
        assert store.post(json.dumps(claim), question=question.id)
        assert store.questions() == []
    with Runtime([asking], store=path) as runtime, treefold.attach(path) as observer:
        assert asked(observer) == question
        observer.answer(question.id, "yes")
        assert runtime.recover()[0].result(PATIENCE) == "yes"


class Forgetful(SqliteStore):
    """A store in which executed commands stay, as if the process died before it deleted them."""

    def done(self, message: int) -> None:
        raise StoreError(self.name, "no room")


async def pay(ctx: RunContext, folder: str) -> None:
    note(folder, "effects", "paid")


paying = CodeFunction(callable=pay)


async def order(ctx: RunContext, folder: str) -> None:
    await ctx.ask("Well?")
    await ctx.invoke(paying, {"folder": folder})


ordering = CodeFunction(callable=order, uses=[paying], repeatable=True)


@pytest.mark.parametrize("dies", [False, True])
def test_a_run_that_is_paused_resumed_and_cancelled_while_nothing_drives_it_stays_cancelled(
    path: Path, tmp_path: Path, *, dies: bool
):
    with Runtime([ordering], store=path) as runtime:
        node = runtime.invoke(ordering, {"folder": str(tmp_path)})
        asked(runtime)
    with treefold.attach(path) as observer:
        for command in "pause", "resume", "cancel":
            with treefold.attach(path) as other:
                getattr(other, command)(node.id)
        if dies:
            with Runtime([ordering], store=Forgetful(path)):
                wait(lambda: observer.get_view(node.id).state.final)
        with Runtime([ordering], store=path):
            wait(lambda: _is_empty(path))
            wait(lambda: observer.get_view(node.id).state is NodeState.Canceled)
        assert [tree.id for tree in observer.trees()] == [node.id]
    assert noted(tmp_path, "effects") == []


def test_a_resume_that_is_executed_twice_does_not_end_a_later_pause(path: Path):
    with Runtime([asking], store=Forgetful(path)) as runtime, treefold.attach(path) as observer:
        node = runtime.invoke(asking)
        asked(observer)
        observer.pause(node.id)
        [first] = wait(lambda: paused(observer))
        observer.resume(node.id)
        wait(lambda: paused(observer) == [])
    with treefold.attach(path) as observer:
        observer.pause(node.id, "again")
        with Runtime([asking], store=path):
            wait(lambda: _is_empty(path))
            [again] = paused(observer)
            assert again != first


def test_a_pause_that_is_executed_twice_does_not_pause_what_was_resumed(path: Path):
    with Runtime([asking], store=Forgetful(path)) as runtime, treefold.attach(path) as observer:
        node = runtime.invoke(asking)
        asked(observer)
        observer.pause(node.id)
        [pause] = wait(lambda: paused(observer))
        runtime.answer(pause, "resume")
        wait(lambda: paused(observer) == [])
    with treefold.attach(path) as observer, Runtime([asking], store=path):
        wait(lambda: _is_empty(path))
        assert paused(observer) == []


def test_a_second_pause_is_seen_in_the_tree_once(path: Path):
    with Runtime([asking], store=Forgetful(path)) as runtime:
        node = runtime.invoke(asking)
        asked(runtime)
        for reason in "first", "second":
            with treefold.attach(path) as observer:
                observer.pause(node.id, reason)
                wait(lambda observer=observer: paused(observer))
        wait(lambda: runtime.get_view(node.id).notices)
    # The next process executes both pauses again.
    with treefold.attach(path) as observer, Runtime([asking], store=path):
        wait(lambda: _is_empty(path))
        assert len(paused(observer)) == 1
        assert observer.get_view(node.id).notices == ("it was paused once more: second",)


def test_what_a_process_had_begun_to_resume_when_it_died_is_resumed_by_the_next(path: Path):
    with Runtime([asking], store=path) as runtime, treefold.attach(path) as observer:
        node = runtime.invoke(asking)
        asked(observer)
        observer.pause(node.id)
        [pause] = wait(lambda: paused(observer))
    with treefold.attach(path) as observer, SqliteStore(path) as store:
        observer.resume(node.id)
        # What the process that executes the resume writes first.
        assert store.post(write_command(ClaimQuestion(pause, "the dead process")), question=pause)
        with Runtime([asking], store=path):
            wait(lambda: _is_empty(path))
            assert [one.kind for one in observer.questions()] == [QuestionKind.Human]


def paused(observer: Observer) -> list[str]:
    """Return the ids of the questions of paused calls."""
    return [one.id for one in observer.questions() if one.kind is QuestionKind.Paused]


def test_a_cancellation_is_kept_until_the_call_has_ended_so_that_a_dying_process_loses_none(
    path: Path,
):
    begun, leaving, leave = threading.Event(), threading.Event(), threading.Event()

    async def linger(ctx: RunContext) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            leaving.set()
            while not leave.is_set():  # noqa: ASYNC110 - the test sets it
                await asyncio.sleep(0.01)

    lingering = CodeFunction(callable=linger, repeatable=True)
    with Runtime([lingering], store=path) as runtime, SqliteStore(path) as store:
        node = runtime.invoke(lingering)
        assert begun.wait(PATIENCE)
        with treefold.attach(path) as observer:
            observer.cancel(node.id)
        [cancellation] = store.inbox()
        assert leaving.wait(PATIENCE)
        # Messages are deleted in the order in which they were executed.
        store.post("junk")
        wait(lambda: len(store.inbox()) == 1)
        assert store.inbox() == [cancellation]
        leave.set()
        wait(lambda: not store.inbox())
        assert node.state is NodeState.Canceled


def test_commands_behind_a_resume_that_has_to_wait_are_executed(path: Path):
    executed: list[Command] = []

    def execute(command: Command) -> None:
        executed.append(command)
        if isinstance(command, ResumeCall):
            raise StoreError(str(path), "it is away")

    with SqliteStore(path) as store:
        store.join()
        inbox = Inbox(JournalWriter(store, None))
        later = CancelCall(1, "enough")
        for command in (ResumeCall(1), later):
            store.post(write_command(command))
        inbox.execute(store.inbox(), execute, until_resume=True)
    assert executed == [ResumeCall(1), later]


def test_a_command_for_a_damaged_run_is_refused_and_does_not_wait(path: Path):
    def execute(_: Command) -> None:
        raise StoreDamagedError(str(path), "node:1 cannot be read")

    with SqliteStore(path) as store:
        store.join()
        journal = JournalWriter(store, None)
        inbox = Inbox(journal)
        store.post(write_command(ResumeCall(1, id="mine")))
        inbox.execute(store.inbox(), execute)
        assert inbox.has_executed
        _, lines = store.read_broadcasts()
    assert "node:1 cannot be read" in refusals_in(lines)["#resume mine"]


def test_a_second_cancellation_reaches_a_call_that_ignored_the_first(path: Path):
    heard: list[str] = []

    async def deaf(ctx: RunContext) -> str:
        while len(heard) < 2:
            try:
                await asyncio.sleep(PATIENCE)
            except asyncio.CancelledError:
                heard.append("cancelled")
        return "done"

    function = CodeFunction(callable=deaf)
    with Runtime([function], store=path) as runtime, treefold.attach(path) as observer:
        node = runtime.invoke(function)
        wait(lambda: node.state is NodeState.Running)
        observer.cancel(node.id, "enough")
        wait(lambda: heard == ["cancelled"])
        observer.cancel(node.id, "enough")
        wait(lambda: len(heard) == 2)
