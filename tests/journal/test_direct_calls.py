"""A tool that code calls directly in a run with a journal: it works, and is not recorded."""

import pytest

from treefold import MemoryStore, RunContext, Runtime, tool

WARNING = "pay was called directly in work, whose run has a journal"


def run(runtime: Runtime, *, repeatable: bool = False) -> None:
    """Call a tool twice, directly, in a run."""

    @tool(repeatable=repeatable)
    async def pay(n: int) -> int:
        return n

    @tool
    async def work(ctx: RunContext) -> int:
        return await pay(1) + await pay(2)

    with runtime:
        node = runtime.invoke(work)
        assert node.result() == 3
        assert not node.children


def test_it_is_warned_of_once(caplog: pytest.LogCaptureFixture):
    run(Runtime(store=MemoryStore()))

    assert [one.getMessage()[: len(WARNING)] for one in caplog.records] == [WARNING]
    assert "write ctx.call(pay, ...)" in caplog.text


def test_a_tool_that_may_be_repeated_is_called_without_a_warning(caplog: pytest.LogCaptureFixture):
    run(Runtime(store=MemoryStore()), repeatable=True)

    assert caplog.records == []


def test_without_a_journal_there_is_nothing_to_warn_of(caplog: pytest.LogCaptureFixture):
    run(Runtime())

    assert caplog.records == []


async def test_outside_any_call_there_is_nothing_to_warn_of(caplog: pytest.LogCaptureFixture):
    @tool
    async def pay(n: int) -> int:
        return n

    async with Runtime(store=MemoryStore()):
        assert await pay(1) == 1

    assert caplog.records == []
