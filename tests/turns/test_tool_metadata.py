"""Name, description and times of a tool, and whose times they are."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from datetime import datetime

import pytest

from treefold import ToolMetadata, Turn, tool


def now(like: datetime) -> datetime:
    """Return the time on the clock that *like* was read from."""
    return datetime.now(like.tzinfo)


def tick() -> None:
    """Let the clock move on, so that times before and after differ."""
    before = time.time()
    while time.time() - before < 0.001:
        pass


def test_metadata_before_the_first_run() -> None:

    @tool
    async def fetch(url: str) -> str:
        """Fetch a URL."""
        return url

    assert isinstance(fetch.metadata, ToolMetadata)
    assert fetch.metadata.dict() == {
        "name": "fetch",
        "description": "Fetch a URL.",
        "start_time": None,
        "end_time": None,
    }
    assert (fetch.metadata.start_time, fetch.metadata.end_time) == (None, None)


def test_the_description_is_the_docstring_and_the_schema_has_its_parameters() -> None:

    @tool
    async def fetch(url: str) -> str:
        """Fetch a page.

        Args:
            url: where it is
        """
        return url

    @fetch.subtool
    async def cached(url: str) -> str:
        """Fetch it once.

        Args:
            url: where it is
        """
        return url

    assert fetch.metadata.description == "Fetch a page.\n\nArgs:\n    url: where it is"
    assert fetch.doc_tree()["description"] == fetch.metadata.description
    assert fetch.doc_tree()["subtools"][0]["description"] == cached.metadata.description
    assert cached.metadata.description == "Fetch it once.\n\nArgs:\n    url: where it is"
    function = fetch.to_openai_format()["function"]
    assert function["description"] == "Fetch a page."
    assert function["parameters"]["properties"]["url"]["description"] == "where it is"


async def test_a_run_sets_both_times() -> None:
    entered: list[datetime | None] = []

    @tool
    async def work() -> None:
        entered.append(work.metadata.start_time)

    await work()

    start, end = work.metadata.start_time, work.metadata.end_time
    assert start is not None
    assert end is not None
    assert entered == [start]
    assert start <= end <= now(end)


async def test_a_failing_run_sets_the_end_time() -> None:

    @tool
    async def fail() -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail()

    assert fail.metadata.start_time is not None
    assert fail.metadata.end_time is not None


async def test_a_stream_sets_both_times() -> None:

    @tool
    async def once() -> AsyncGenerator[int, None]:
        yield 1

    async for _ in once():
        pass

    assert once.metadata.start_time is not None
    assert once.metadata.end_time is not None


async def test_a_turn_sets_the_times_of_the_tool() -> None:

    @tool
    async def work() -> None: ...

    await Turn(work).returning()

    assert work.metadata.start_time is not None
    assert work.metadata.end_time is not None


async def test_a_later_run_sets_new_times_on_the_same_metadata() -> None:

    @tool
    async def work() -> None: ...

    metadata = work.metadata
    await work()
    first_end = metadata.end_time
    assert first_end is not None
    tick()
    await work()

    assert work.metadata is metadata
    assert metadata.start_time is not None
    assert metadata.start_time > first_end


async def test_times_are_iso_strings_in_the_dict() -> None:

    @tool
    async def work() -> None:
        """Work."""

    await work()
    start, end = work.metadata.start_time, work.metadata.end_time
    assert start is not None
    assert end is not None

    assert json.loads(json.dumps(work.metadata.dict())) == {
        "name": "work",
        "description": "Work.",
        "start_time": start.isoformat(),
        "end_time": end.isoformat(),
    }


async def test_concurrent_runs_do_not_mix_their_times_on_the_tool() -> None:
    entered = {name: asyncio.Event() for name in "ab"}
    leave = {name: asyncio.Event() for name in "ab"}

    @tool
    async def work(name: str) -> None:
        entered[name].set()
        await leave[name].wait()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(work("a"))
        await entered["a"].wait()
        first_start = work.metadata.start_time
        assert first_start is not None
        tick()
        between_starts = now(first_start)
        tick()
        second = group.create_task(work("b"))
        await entered["b"].wait()
        leave["b"].set()
        await second
        tick()
        between_ends = now(first_start)
        tick()
        leave["a"].set()

    start, end = work.metadata.start_time, work.metadata.end_time
    assert start is not None
    assert end is not None
    started_second, ended_second = start > between_starts, end < between_ends
    assert started_second == ended_second, "the start of one run with the end of another"


async def test_concurrent_turns_of_one_tool_have_their_own_times() -> None:
    entered = {name: asyncio.Event() for name in "ab"}
    leave = {name: asyncio.Event() for name in "ab"}

    @tool
    async def work(name: str) -> None:
        entered[name].set()
        await leave[name].wait()

    first, second = Turn(work, args=["a"]), Turn(work, args=["b"])
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(first.returning())
        await entered["a"].wait()
        start = first.start_time
        assert start is not None
        tick()
        ending = group.create_task(second.returning())
        await entered["b"].wait()
        leave["b"].set()
        await ending
        second_end = second.end_time
        assert second_end is not None
        assert (first.start_time, first.end_time) == (start, None)
        tick()
        leave["a"].set()

    assert second.start_time is not None
    assert first.end_time is not None
    assert first.start_time == start
    assert second.end_time == second_end
    assert start < second.start_time <= second_end < first.end_time
