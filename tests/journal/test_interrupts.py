"""Ctrl-C at bad moments: nothing hangs, and what was open goes on."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ramify import CodeFunction, Runtime, SqliteStore
from ramify.core.store import Entry


class InterruptedStore(SqliteStore):
    """Is interrupted once, when it is written to on the main thread, where Ctrl-C comes."""

    interrupted = False

    def append(self, entries: Sequence[Entry]) -> int:
        on_main = threading.current_thread() is threading.main_thread()
        if on_main and not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt
        return super().append(entries)


three = CodeFunction(name="three", callable=lambda ctx: 3)


async def many_times(ctx: Any) -> int:
    return sum([await ctx.invoke(three) for _ in range(100)])


many = CodeFunction(name="many", callable=many_times, uses=[three])


def test_an_interrupt_while_the_journal_is_written_does_not_keep_it_from_being_closed(
    tmp_path: Path,
) -> None:
    store = InterruptedStore(tmp_path / "run.db", synchronous="NORMAL")

    async def main() -> int:
        async with Runtime([many], store=store) as runtime:
            return await runtime.invoke(many)

    try:
        assert asyncio.run(main()) == 300  # if the disk is slow, another thread writes
    except KeyboardInterrupt:
        assert store.interrupted
    with Runtime([many], store=tmp_path / "run.db") as runtime:
        assert [node.id for node in runtime.list_toplevel()] == [1]
