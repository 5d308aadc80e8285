"""Questions that nobody waits for any more."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agent_scripts import ended, until
from support import settle
from treefold import (
    AgentFunction,
    CodeFunction,
    NodeState,
    QuestionKind,
    RunContext,
    Runtime,
    ToolUse,
)
from treefold.core.errors import ClosedError, UnknownQuestionError
from treefold.core.events import CallRequested
from treefold.core.question import Answer, Question
from treefold.runtime.loops.loop_handle import LoopHandle
from treefold.runtime.trees.question_board import QuestionBoard
from treefold.runtime.trees.tree import Tree
from treefold.testing import ScriptedModel


async def test_a_call_that_asks_and_returns_without_the_answer_ends_and_withdraws_the_question():
    asking: list[asyncio.Task[str]] = []

    async with asyncio.TaskGroup() as group, Runtime() as runtime, asyncio.timeout(60):

        async def impatient(ctx: RunContext) -> int:
            asking.append(group.create_task(ctx.ask("Any wishes?")))
            await until(ctx.runtime.questions)
            return 1

        node = runtime.invoke(CodeFunction(callable=impatient))
        assert await node == 1
        await settle()
        assert node.state is NodeState.Success
        assert runtime.questions() == []
        assert asking[0].cancelled()


async def test_a_call_that_has_ended_can_ask_nothing():
    contexts: list[RunContext] = []

    async def quick(ctx: RunContext) -> None:
        contexts.append(ctx)

    async with Runtime() as runtime:
        await runtime.invoke(CodeFunction(callable=quick))
        with pytest.raises(ClosedError, match="has ended"):
            async with asyncio.timeout(60):
                await contexts[0].ask("Anybody there?")
        assert runtime.questions() == []


async def test_a_call_runs_again_when_it_has_its_answer():
    done = asyncio.Event()

    async def curious(ctx: RunContext) -> str:
        said = await ctx.ask("How?")
        await done.wait()
        return said

    async with Runtime() as runtime, asyncio.timeout(60):
        node = runtime.invoke(CodeFunction(callable=curious))
        (question,) = await until(runtime.questions)
        assert node.state is NodeState.Paused
        runtime.answer(question.id, "So.")
        await settle()
        assert (node.state, runtime.get_view(node.id).state) == (NodeState.Running,) * 2
        done.set()
        assert await node == "So."


async def test_a_failed_call_is_not_made_again_when_its_agent_is_to_be_cancelled():
    made: list[str] = []

    async def fail(ctx: RunContext) -> None:
        made.append("call")
        raise LookupError("no such thing")

    tool = CodeFunction(callable=fail)
    agent = AgentFunction("agent", "Try.", user_prompt_template="Try.", uses=[tool])
    model = ScriptedModel(ToolUse("1", "fail"))
    async with Runtime([agent], models=model, on_tool_error="pause") as runtime:
        node = runtime.invoke(agent)
        (question,) = await until(runtime.questions)
        runtime.answer(question.id, "cancel")
        assert (await ended(node)).state is NodeState.Canceled
        assert (len(node.get_children()), made) == (1, ["call"])


async def test_who_answers_after_somebody_quicker_is_told_so():
    board, tree = QuestionBoard(), Tree(1, 1, kept=True)
    tree.publish(CallRequested(1, None, 1, 1, "work", {}))
    settled: list[Answer] = []

    class BusyLoop(LoopHandle):
        """One where somebody else is served first."""

        def run_sync(self, function: Callable[..., Any], *args: Any) -> Any:
            board.close(question.id)
            return function(*args)

    loop_handle = BusyLoop(asyncio.get_running_loop(), 1.0)
    asked = Question(id="", node_id=1, kind=QuestionKind.Human, text="How?", key="how")
    question = board.ask(asked, tree, loop_handle, settled.append)
    with pytest.raises(UnknownQuestionError):
        board.answer(question.id, "So.", None)
    assert settled == []


async def test_a_call_that_asks_two_things_is_paused_until_both_are_answered():
    done = asyncio.Event()

    async def curious(ctx: RunContext) -> list[str]:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ctx.ask(text)) for text in ("Who?", "How?")]
        await done.wait()
        return [task.result() for task in asked]

    async with Runtime() as runtime, asyncio.timeout(60):
        node = runtime.invoke(CodeFunction(callable=curious))
        await until(lambda: len(runtime.questions()) == 2)
        who, how = runtime.questions()
        runtime.answer(who.id, "You.")
        await settle()
        assert node.state is NodeState.Paused
        runtime.answer(how.id, "So.")
        await settle()
        assert node.state is NodeState.Running
        done.set()
        assert await node == ["You.", "So."]
