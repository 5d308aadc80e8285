"""What a runtime checks, keeps and takes up again."""

import asyncio
from typing import Any

import pytest

from agent_scripts import agent_node, worker
from treefold import (
    CallGraphError,
    Ensemble,
    Provider,
    Runtime,
    ToolUse,
)
from treefold.core.errors import UsageError
from treefold.testing import ScriptedFailure, ScriptedModel


def test_a_circle_through_the_functions_of_one_provider_is_found():
    tools: dict[Provider | str, list[Any]] = {Provider.OpenAI: []}
    one = worker("one", model_tools=tools)
    tools[Provider.OpenAI].append(worker("two", one))
    with pytest.raises(CallGraphError, match="one > two > one: calls go round in a circle"):
        Runtime([one], models=ScriptedModel())


async def test_only_a_top_level_agent_is_called_again_when_its_provider_has_failed():
    sub = worker("sub")
    model = ScriptedModel(ToolUse("1", "sub"), ScriptedFailure(500), "done without it")
    async with Runtime([worker("boss", sub)], models=model) as runtime, asyncio.timeout(60):
        node = runtime.invoke(runtime.invocable_functions["boss"])
        assert await node == "done without it"
        failed = agent_node(node.get_children()[0])
        with pytest.raises(UsageError, match="is not paused"):
            runtime.resume(failed.id)
        assert runtime.list_toplevel() == [node]


def test_the_default_model_can_be_named():
    together = Ensemble(worker("one"), {"default": 2})
    with Runtime([together], models=ScriptedModel("a", "b", "both")) as runtime:
        assert runtime.invoke(together).result() == "both"
    Runtime([together]).close()  # TREEFOLD_MODEL may name it when it is called
