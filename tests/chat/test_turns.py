"""Turns among other turns: several readers, leases, changed options, and a life after failure."""

import asyncio
from typing import Any

from documents.chat_stage import add, heard
from ramify import AgentOptions, Client, ToolUse
from ramify.testing import HANGS, ScriptedModel

ADDING = ToolUse("1", "add", {"a": 1, "b": 2})


def options(*script: Any, **changes: Any) -> AgentOptions:
    return AgentOptions("You help.", ScriptedModel(*script), tools=[add], **changes)


async def test_every_reader_comes_to_the_end_when_the_turn_does():
    async with Client(options(HANGS)) as client, asyncio.timeout(10):
        await client.query("Hello.")
        async with asyncio.TaskGroup() as group:
            readers = [group.create_task(heard(client)) for _ in range(3)]
            for _ in range(50):  # until they wait
                await asyncio.sleep(0)
            await client.interrupt()
    assert [reader.result() for reader in readers] == [[], [], []]
