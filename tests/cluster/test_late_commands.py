"""Commands that come late, twice, or all at once: each does what its sender meant, or nothing."""

from contextlib import suppress
from pathlib import Path

import pytest

from cluster.conftest import Workers
from notes_in_files import note, noted
from support import wait
from treefold import (
    CodeFunction,
    NodeState,
    Observer,
    QuestionKind,
    RunContext,
    Runtime,
    StoreError,
    attach,
)
from treefold.errors import UsageError
from treefold.stores.postgres import PostgresStore


class Forgetful(PostgresStore):
    """A store in which executed commands stay, as if each process died before it deleted them."""

    def done(self, message: int) -> None:
        raise StoreError(self.name, "it cannot be reached")


async def charge(ctx: RunContext, folder: str) -> str:
    note(folder, "effects", "charged")
    return "charged"


CHARGE = CodeFunction(callable=charge)


async def pay(ctx: RunContext, folder: str) -> str:
    return await ctx.invoke(CHARGE, {"folder": folder})


PAY = CodeFunction(callable=pay, uses=[CHARGE], repeatable=True)


async def order(ctx: RunContext, folder: str) -> str:
    await ctx.ask("Go on?", ["yes", "no"])
    return await ctx.invoke(CHARGE, {"folder": folder})


ORDER = CodeFunction(callable=order, uses=[CHARGE], repeatable=True)


def paused(observer: Observer) -> list[str]:
    """Return the ids of the questions of paused calls."""
    return [one.id for one in observer.questions() if one.kind is QuestionKind.Paused]


def commands_left(workers: Workers) -> int:
    with PostgresStore(workers.url) as store:
        return len(store.inbox())


def serve(workers: Workers, *functions: CodeFunction, forgetful: bool = False) -> Runtime:
    """Run what is submitted, as another process would."""
    store = Forgetful(workers.url) if forgetful else workers.url
    return workers(*functions, store=store)


@pytest.mark.parametrize("dies", [False, True])
def test_a_tree_that_is_paused_resumed_and_cancelled_before_it_has_a_worker_never_runs(
    placed: Workers, tmp_path: Path, *, dies: bool
):
    node = placed.submitter(PAY).invoke(PAY, {"folder": str(tmp_path)})
    placed.submitter(PAY).flush()
    wait(lambda: _is_stored(placed.url, node.id))
    for command in "pause", "resume", "cancel":
        with attach(placed.url) as other:
            getattr(other, command)(node.id)
    if dies:
        first = serve(placed, PAY, forgetful=True)
        with attach(placed.url) as observer:
            wait(lambda: observer.get_view(node.id).state.final)
        placed.close(first)
    serve(placed, PAY)
    with attach(placed.url) as observer:
        wait(lambda: observer.get_view(node.id).state is NodeState.Canceled)
        wait(lambda: commands_left(placed) == 0)
        assert [tree.id for tree in observer.trees()] == [node.id]
    assert noted(tmp_path, "effects") == []


def _is_stored(url: str, node: int) -> bool:
    with attach(url) as observer:
        return node in {tree.id for tree in observer.trees()}


def test_a_resume_that_is_executed_twice_does_not_end_a_later_pause(
    placed: Workers, tmp_path: Path
):
    first = serve(placed, ORDER, forgetful=True)
    node = first.invoke(ORDER, {"folder": str(tmp_path)})
    with attach(placed.url) as observer:
        wait(observer.questions)
        observer.pause(node.id)
        [asked] = wait(lambda: paused(observer))
        observer.resume(node.id)
        wait(lambda: paused(observer) == [])
        placed.close(first)
        observer.pause(node.id, "again")
        serve(placed, ORDER)
        wait(lambda: commands_left(placed) == 0)
        [again] = paused(observer)
        assert again != asked
        observer.resume(node.id)
        [question] = wait(
            lambda: [one for one in observer.questions() if one.kind is QuestionKind.Human]
        )
        observer.answer(question.id, "yes")
        wait(lambda: observer.get_view(node.id).state is NodeState.Success)
    assert noted(tmp_path, "effects") == ["charged"]


def test_a_pause_that_is_executed_twice_does_not_pause_what_was_resumed(
    placed: Workers, tmp_path: Path
):
    first = serve(placed, ORDER, forgetful=True)
    node = first.invoke(ORDER, {"folder": str(tmp_path)})
    with attach(placed.url) as observer:
        wait(observer.questions)
        observer.pause(node.id)
        [asked] = wait(lambda: paused(observer))
        observer.answer(asked, "resume")
        wait(lambda: not _asks(observer, node.id, asked))
        placed.close(first)
        serve(placed, ORDER)
        wait(lambda: commands_left(placed) == 0)
        assert paused(observer) == []


def _asks(observer: Observer, node: int, question: str) -> bool:
    return question in {one.id for one in observer.get_view(node).questions}


@pytest.mark.parametrize("has_worker", [False, True])
def test_what_is_paused_after_it_was_resumed_stays_paused(
    placed: Workers, tmp_path: Path, *, has_worker: bool
):
    submitter = placed.submitter(ORDER)
    if has_worker:
        serve(placed, ORDER)
    node = submitter.invoke(ORDER, {"folder": str(tmp_path)})
    submitter.flush()
    with attach(placed.url) as observer, attach(placed.url) as other:
        if has_worker:
            wait(observer.questions)
        observer.pause(node.id)
        other.resume(node.id)
        observer.pause(node.id, "again")
        if not has_worker:
            serve(placed, ORDER)
        wait(lambda: commands_left(placed) == 0)
        assert len(paused(observer)) == 1


def test_whoever_resumes_a_run_that_has_ended_meanwhile_is_told(placed: Workers, tmp_path: Path):
    submitter = placed.submitter(PAY)
    node = submitter.invoke(PAY, {"folder": str(tmp_path)})
    submitter.flush()
    with attach(placed.url) as observer:
        observer.pause(node.id)
        observer.resume(node.id)
        assert observer.refusal(node.id) is None
        observer.cancel(node.id)
        serve(placed, PAY)
        why = wait(lambda: observer.refusal(node.id))
        assert "was cancelled, or has ended, before it could be resumed; resume it again" in why
        [tree] = observer.trees()
        assert tree.id == node.id


def test_a_cancelled_run_that_two_processes_resume_at_once_continues_once(
    placed: Workers, tmp_path: Path
):
    serve(placed, ORDER)
    second = serve(placed, ORDER)
    node = second.invoke(ORDER, {"folder": str(tmp_path)})
    with attach(placed.url) as observer, attach(placed.url) as other:
        wait(observer.questions)
        observer.cancel(node.id)
        wait(lambda: observer.get_view(node.id).state.final)
        observer.resume(node.id)
        # Whoever sees the continuation already is told that it is not paused.
        for resume in other.resume, second.resume:
            with suppress(UsageError):
                resume(node.id)
        wait(lambda: commands_left(placed) == 0)
        assert [tree.source for tree in observer.trees()] == [0, node.id]
        [question] = wait(observer.questions)
        observer.answer(question.id, "yes")
        new = observer.newest(node.id)
        wait(lambda: observer.get_view(new).state is NodeState.Success)
    assert noted(tmp_path, "effects") == ["charged"]


def test_a_cancelled_run_is_resumed_without_a_guard_in_a_fork(placed: Workers, tmp_path: Path):
    runtime = placed(ORDER, disallowed_tools=["charge"])
    node = runtime.invoke(ORDER, {"folder": str(tmp_path)})
    with attach(placed.url) as observer:
        wait(observer.questions)
        observer.cancel(node.id)
        wait(lambda: observer.get_view(node.id).state.final)
        placed.close(runtime)
        observer.resume(node.id, without=["disallowed_tools"])
        placed(ORDER)
        wait(lambda: observer.newest(node.id) != node.id)
        [question] = wait(observer.questions)
        observer.answer(question.id, "yes")
        new = observer.newest(node.id)
        wait(lambda: observer.get_view(new).state is NodeState.Success)
    assert noted(tmp_path, "effects") == ["charged"]
