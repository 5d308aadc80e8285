"""Ctrl-C at bad moments: nothing hangs, and what was open goes on."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from treefold import CancellationException, CodeFunction, MemoryStore, Runtime, SqliteStore
from treefold.core.errors import FencedError
from treefold.core.store import Batch


class InterruptedStore(SqliteStore):
    """Is interrupted once, when it is written to on the main thread, where Ctrl-C comes."""

    interrupted = False
    when_safe = False  # or before anything is written

    def append(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        on_main = threading.current_thread() is threading.main_thread()
        last = super().append(batches) if self.when_safe or not on_main or self.interrupted else []
        if on_main and not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt
        return last


three = CodeFunction(name="three", callable=lambda ctx: 3, repeatable=True)


async def many_times(ctx: Any) -> int:
    return sum([await ctx.invoke(three) for _ in range(100)])


many = CodeFunction(name="many", callable=many_times, uses=[three])


@pytest.mark.parametrize("when_safe", [False, True])
def test_an_interrupt_while_the_journal_is_written_loses_nothing_and_lets_it_be_closed(
    when_safe: bool,  # noqa: FBT001 - pytest gives it
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = InterruptedStore(tmp_path / "run.db", synchronous="NORMAL")
    store.when_safe = when_safe

    async def main() -> int:
        async with Runtime([many], store=store) as runtime:
            return await runtime.invoke(many)

    try:
        assert asyncio.run(main()) == 300  # if the disk is slow, another thread writes
    except KeyboardInterrupt:
        assert store.interrupted
    assert caplog.messages == []  # all could be written down
    with Runtime([many], store=tmp_path / "run.db") as runtime:
        [node] = runtime.list_toplevel()
        assert node.result(60) == 300


@pytest.mark.parametrize("moment", range(1, 13))
def test_an_interrupt_while_something_is_taken_down_does_not_keep_anybody_waiting(
    moment: int,
) -> None:
    store, texts = MemoryStore(), list[str]()

    def interrupt(text: str) -> str:
        texts.append(text)
        if len(texts) == moment:
            raise KeyboardInterrupt
        return text

    async def tell(ctx: Any, word: str) -> str:
        return word

    tells = CodeFunction(name="tells", callable=tell, repeatable=True)

    async def both(ctx: Any) -> str:
        return "".join([await ctx.invoke(tells, {"word": word}) for word in ("one", "two")])

    calls = CodeFunction(name="calls", callable=both, uses=[tells])

    async def main(redact: Callable[[str], str] | None = None) -> str:
        async with Runtime([calls], store=store, redact=redact) as runtime:
            return await runtime.invoke(calls, key="a")

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main(interrupt))
    assert asyncio.run(main()) == "onetwo"


def test_calls_stay_open_when_asyncio_ends_all_tasks_at_once() -> None:
    """Their tasks may be cancelled before the one that is in the block."""
    begun: list[asyncio.Event] = []

    async def wait(ctx: Any) -> None:
        begun[-1].set()
        await asyncio.Event().wait()

    waits = CodeFunction(name="waits", callable=wait)

    async def calls(ctx: Any) -> None:
        await ctx.invoke(waits)

    outer = CodeFunction(name="outer", callable=calls, uses=[waits])

    async def hold(store: MemoryStore) -> None:
        async with Runtime([outer], store=store) as runtime:
            await runtime.invoke(outer)

    async def main(store: MemoryStore) -> None:
        begun.append(asyncio.Event())
        holder = asyncio.get_running_loop().create_task(hold(store))
        await begun[-1].wait()
        assert not holder.done()

    stores = [MemoryStore() for _ in range(20)]  # which task is first is up to chance
    for store in stores:
        asyncio.run(main(store))
    assert [tree.state.value for store in stores for tree in store.trees()] == ["running"] * 20


async def test_a_call_that_cancels_its_own_task_has_been_cancelled() -> None:
    async def leave(ctx: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    leaves, store = CodeFunction(name="leaves", callable=leave), MemoryStore()
    async with Runtime([leaves], store=store) as runtime:
        with pytest.raises(CancellationException):
            await runtime.invoke(leaves)
    assert [tree.state.value for tree in store.trees()] == ["canceled"]


def test_code_that_was_interrupted_is_run_again_if_it_may_be() -> None:
    store, runs = MemoryStore(), list[str]()

    async def work(ctx: Any) -> str:
        runs.append("run")
        if len(runs) == 1:
            raise KeyboardInterrupt
        return "done"

    works = CodeFunction(name="works", callable=work, repeatable=True)

    async def main() -> str:
        async with Runtime([works], store=store) as runtime:
            return await runtime.invoke(works, key="a")

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert asyncio.run(main()) == "done"
