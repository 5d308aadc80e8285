"""Exceptions of agents, of providers and of code."""

import asyncio
import pickle
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from agent_scripts import agent_node, ended, run, run_agent, told, worker
from support import look
from treefold import (
    AgentException,
    AgentFunction,
    CodeFunction,
    FunctionArg,
    ModelProviderException,
    NodeState,
    Provider,
    RaiseException,
    RunContext,
    Runtime,
    ThinkingPart,
    ThinkingSignature,
    TokenUsage,
    ToolResult,
    ToolUse,
    TranscriptPart,
    TreefoldError,
    UserText,
    registries,
    tool,
)
from treefold.core.errors import UsageError
from treefold.models import Exchange, Model, ModelEvent, Session
from treefold.testing import ScriptedFailure, ScriptedModel
from treefold.toolbox import raise_exception

with registries():

    @tool
    async def fail(why: str) -> None:
        """Fail."""
        raise LookupError(why)


def giving_up(message: str = "I give up", id: str = "r") -> ToolUse:
    return ToolUse(id, "raise_exception", {"msg": message})


class BrokenSession(Session):
    """Does not follow the protocol."""

    exchanges: Sequence[Exchange] = ()  # pyright: ignore
    transcript: Sequence[TranscriptPart] = ()  # pyright: ignore
    pending: Sequence[ToolUse] = ()  # pyright: ignore
    usage = TokenUsage()  # pyright: ignore

    async def send(self, *inputs: UserText | ToolResult) -> AsyncGenerator[ModelEvent, None]:
        raise ZeroDivisionError("a bug in the provider")
        yield  # pyright: ignore

    def parts(self, number: int) -> Sequence[TranscriptPart]:
        return ()

    def keep(self, text: str, *inputs: UserText | ToolResult) -> Exchange:
        raise NotImplementedError


class BrokenModel(Model):
    """A model by somebody who made a mistake."""

    name = "broken"
    provider = Provider.OpenAI

    def open(self, *args: Any, **kwargs: Any) -> Session:
        return BrokenSession()


# --- code


async def test_what_code_raises_is_the_exception_of_its_node_as_it_is():
    error = LookupError("no such key")

    def top(ctx: RunContext) -> None:
        raise error

    node = await run(CodeFunction(callable=top))
    assert node.exception is error
    assert node.state is NodeState.Error
    with pytest.raises(LookupError) as caught:
        node.result()
    assert caught.value is error


async def test_an_exception_bubbles_up_through_code_that_does_not_handle_it():
    async def middle(ctx: RunContext) -> None:
        await ctx.invoke(fail, {"why": "deep"})

    inner = CodeFunction(callable=middle, uses=[fail])

    async def top(ctx: RunContext) -> None:
        await ctx.invoke(inner)

    async with Runtime([CodeFunction(callable=top, uses=[inner])]) as runtime:
        node = await ended(runtime.invoke(runtime.invocable_functions["top"]))
        nodes = runtime.get_subtree(node.id)
    assert len({id(one.exception) for one in nodes}) == 1
    assert isinstance(node.exception, LookupError)


async def test_code_may_handle_what_a_function_that_it_invoked_raises():
    boss = worker("boss", raise_exception)

    async def top(ctx: RunContext) -> str:
        try:
            return await ctx.invoke(boss)
        except AgentException as error:
            return f"handled: {error.message}"

    node = await run(CodeFunction(callable=top, uses=[boss]), models=ScriptedModel(giving_up()))
    assert node.outputs == "handled: I give up"


async def test_code_may_try_an_agent_that_gave_up_with_another_model():
    boss = worker("boss", raise_exception)

    async def top(ctx: RunContext) -> str:
        try:
            return await ctx.invoke(boss, model="first")
        except AgentException:
            return await ctx.invoke(boss, model="second")

    models = {"first": ScriptedModel(giving_up()), "second": ScriptedModel("done")}
    node = await run(CodeFunction(callable=top, uses=[boss]), models=models)
    assert node.outputs == "done"
    assert [agent_node(child).state for child in node.get_children()] == [
        NodeState.Error,
        NodeState.Success,
    ]


# --- an agent's own decision


def test_an_agent_enlists_by_using_the_built_in_function_which_says_when_to_use_it():
    assert raise_exception.name == "raise_exception"
    assert raise_exception.input_schema["required"] == ["msg"]
    told_to = raise_exception.description.lower()
    assert "tried" in told_to  # no alternatives worked?
    assert "missing" in told_to or "lack" in told_to  # information or context
    assert "inner" in told_to or "type" in told_to  # bubbling up?


async def test_several_agents_may_use_the_documented_class():
    child = worker("child", RaiseException())
    boss = worker("boss", child, RaiseException())
    script = [ToolUse("1", "child")], giving_up("too hard"), giving_up("the child gave up")
    node = await run_agent(boss, models=ScriptedModel(*script))
    assert isinstance(node.exception, AgentException)
    assert node.exception.message == "the child gave up"


@pytest.mark.parametrize("raises", [True, False])
async def test_a_function_may_post_the_exception_that_its_agent_ends_with(raises: bool):  # noqa: FBT001
    async def stop(ctx: RunContext) -> str:
        error = AgentException("this leads nowhere")
        ctx.post_exception(error)
        if raises:
            raise error
        return "stopped"

    boss = worker("boss", CodeFunction(callable=stop), look)
    calls = [ToolUse("1", "stop"), ToolUse("2", "look", {"at": "it"})]
    node = await run_agent(boss, models=ScriptedModel(calls, "never said"))
    assert isinstance(node.exception, AgentException)
    assert (node.exception.agent, node.exception.node_id) == ("boss", node.id)
    assert node.exception.message == "this leads nowhere"
    [batch] = node.get_children()
    assert isinstance(batch, list)
    assert batch[1].state is NodeState.Success


async def test_code_that_no_agent_called_cannot_post_an_exception():
    def stop(ctx: RunContext) -> None:
        ctx.post_exception(AgentException("this leads nowhere"))

    node = await run(CodeFunction(callable=stop))
    assert isinstance(node.exception, UsageError)
    assert "raise the exception instead" in str(node.exception)


async def test_the_signature_of_a_thought_has_the_documented_name():
    assert isinstance(ThinkingPart("add them", signature="EqQB...").signature, ThinkingSignature)


async def test_an_agent_without_that_function_cannot_raise():
    model = ScriptedModel(giving_up(), "then I go on")
    node = await run_agent(worker("boss", look), models=model)
    assert node.outputs == "then I go on"
    assert told(model.requests[1])[0].is_error


async def test_an_agent_that_raises_ends_with_an_agent_exception():
    model = ScriptedModel([giving_up("I lack the key")], "never")
    node = await run_agent(worker("boss", raise_exception), models=model)
    assert node.state is NodeState.Error
    error = node.exception
    assert isinstance(error, AgentException)
    assert isinstance(error, TreefoldError)
    assert error.message == "I lack the key"
    assert (error.agent, error.node_id, error.path) == ("boss", node.id, "1")
    assert len(model.requests) == 1  # the loop has ended


async def test_a_batch_is_attempted_as_a_whole_before_the_agent_raises():
    ran: list[str] = []

    @tool
    async def note(text: str) -> None:
        ran.append(text)

    batch = [
        ToolUse("a", "note", {"text": "before"}),
        giving_up(),
        ToolUse("b", "note", {"text": "after"}),
        ToolUse("c", "note", {"text": "last"}),
    ]
    model = ScriptedModel(batch, "never")
    node = await run_agent(worker("boss", note, raise_exception), models=model)
    assert isinstance(node.exception, AgentException)
    assert ran == ["before", "after", "last"]
    assert len(model.requests) == 1


async def test_raising_with_wrong_arguments_is_answered_like_any_other_call():
    model = ScriptedModel([ToolUse("a", "raise_exception", {"message": "x"})], giving_up())
    node = await run_agent(worker("boss", raise_exception), models=model)
    assert isinstance(node.exception, AgentException)
    [result] = told(model.requests[1])
    assert result.is_error
    assert "msg" in result.content


async def test_a_sub_agents_exception_is_a_tool_error_to_its_parent_which_goes_on():
    helper = worker("helper", raise_exception)
    boss = worker("boss", helper, look)
    model = ScriptedModel(
        [ToolUse("a", "helper")],
        giving_up("no idea"),
        [ToolUse("b", "look", {"at": "x"})],
        "done without",
    )
    node = await run_agent(boss, models=model)
    assert node.outputs == "done without"
    failed, fine = told(model.requests[3])
    assert failed.is_error
    assert failed.content.startswith("AgentException: ")
    assert "no idea" in failed.content
    assert "Traceback" not in failed.content
    assert not fine.is_error
    first, _ = node.get_children()
    assert agent_node(first).state is NodeState.Error


async def test_an_agent_may_bubble_up_what_its_sub_agent_raised():
    helper = worker("helper", raise_exception)
    boss = worker("boss", helper, raise_exception)
    model = ScriptedModel(
        [ToolUse("a", "helper")],
        giving_up("no key"),
        giving_up("could not go on. Inner AgentException: no key"),
    )
    node = await run_agent(boss, models=model)
    assert isinstance(node.exception, AgentException)
    assert node.exception.agent == "boss"
    assert "no key" in node.exception.message


async def test_an_agents_exception_passes_through_code_with_the_name_of_the_agent():
    helper = worker("helper", raise_exception)

    async def middle(ctx: RunContext) -> Any:
        return await ctx.invoke(helper)

    async def top(ctx: RunContext) -> Any:
        return await ctx.invoke(inner)

    inner = CodeFunction(callable=middle, uses=[helper])
    node = await run(CodeFunction(callable=top, uses=[inner]), models=ScriptedModel(giving_up()))
    error = node.exception
    assert isinstance(error, AgentException)
    assert (error.agent, error.path) == ("helper", "1.1.1")


# --- tracebacks


async def test_printing_an_agent_exception_gives_a_traceback_of_agents_and_code():
    helper = AgentFunction(
        "helper",
        "",
        args=[FunctionArg("task", str)],
        user_prompt_template="{task}",
        uses=[look, raise_exception],
    )

    async def top(ctx: RunContext, root: str) -> Any:
        return await ctx.invoke(helper, {"task": "find the bug"})

    model = ScriptedModel(
        [ToolUse("a", "look", {"at": "x"})], giving_up("nothing to find"),
        usage=TokenUsage(input=100, output=7), name="the-model",
    )  # fmt: skip
    node = await run(CodeFunction(callable=top, uses=[helper]), {"root": "/src"}, models=model)
    error = node.exception
    assert isinstance(error, AgentException)
    assert [frame.function for frame in error.frames] == ["top", "helper"]
    assert [frame.kind for frame in error.frames] == ["code", "agent"]
    assert error.frames[1].usage.total == 2 * 107
    first, *rest = str(error).splitlines()
    assert "nothing to find" in first
    trace = "\n".join(rest)
    for part in ("top", "helper", "/src", "find the bug", "1.1"):
        assert part in trace


async def test_a_traceback_stays_short_however_long_the_arguments_are():
    helper = AgentFunction(
        "helper", "", args=[FunctionArg("task", str)], user_prompt_template="{task}",
        uses=[raise_exception],
    )  # fmt: skip
    node = await run(helper, {"task": "x" * 100_000}, models=ScriptedModel(giving_up()))
    assert len(str(node.exception)) < 5_000


async def test_agent_exceptions_survive_pickling():
    node = await run(worker("boss", raise_exception), models=ScriptedModel(giving_up()))
    error = pickle.loads(pickle.dumps(node.exception))
    assert isinstance(error, AgentException)
    assert (error.message, error.agent, error.path) == ("I give up", "boss", "1")
    assert str(error) == str(node.exception)


# --- a provider's fault


async def test_a_fault_of_the_provider_names_the_provider_the_agent_and_the_instance():
    model = ScriptedModel([ToolUse("a", "look", {"at": "x"})], ScriptedFailure(401, "wrong key"))
    node = await run_agent(worker("boss", look), models=model)
    error = node.exception
    assert isinstance(error, ModelProviderException)
    assert not isinstance(error, AgentException)
    assert error.provider == "ScriptedModel"
    assert (error.agent, error.node_id, error.path) == ("boss", node.id, "1")
    assert "wrong key" in error.message
    assert [frame.function for frame in error.frames] == ["boss"]
    assert "wrong key" in str(error)
    assert "boss" in str(error)


async def test_whatever_an_implementation_of_a_provider_raises_is_wrapped_with_context():
    node = await run_agent(worker("boss"), models=BrokenModel())
    error = node.exception
    assert isinstance(error, ModelProviderException)
    assert isinstance(error.inner, ZeroDivisionError)
    assert error.provider == "BrokenModel"
    assert error.agent == "boss"
    assert error.node_id == node.id
    assert "a bug in the provider" in str(error)


async def test_a_sub_agents_provider_failing_is_told_to_the_parent_agent():
    helper = worker("helper", default_model=ScriptedModel(ScriptedFailure(500, "it is down")))
    model = ScriptedModel([ToolUse("a", "helper")], "done without")
    node = await run_agent(worker("boss", helper), models=model)
    assert node.outputs == "done without"
    [result] = told(model.requests[1])
    assert result.is_error
    assert result.content.startswith("ModelProviderException: ")
    assert "it is down" in result.content


async def test_a_fault_of_the_provider_is_never_shown_to_the_agent_itself():
    model = ScriptedModel(ScriptedFailure(429, "slow down"), "done")
    node = await run_agent(worker("boss"), models=model)
    assert isinstance(node.exception, ModelProviderException)
    assert len(model.requests) == 1


async def test_a_failed_agent_can_go_on_from_its_last_complete_response():
    ran: list[str] = []

    @tool
    async def note(text: str) -> str:
        ran.append(text)
        return "noted"

    boss = worker("boss", note)
    model = ScriptedModel(
        [ToolUse("a", "note", {"text": "first"})], ScriptedFailure(503, "down"), "done"
    )
    async with Runtime([boss], models=model) as runtime, asyncio.timeout(60):
        node = await ended(runtime.invoke(boss))
        assert isinstance(node.exception, ModelProviderException)
        again = runtime.resume(node.id)
        assert again is not node
        assert await again == "done"
        assert again.parent is None
        assert node.state is NodeState.Error
        assert runtime.list_toplevel() == [node, again]
    assert ran == ["first"]
    assert model.requests[2].transcript == model.requests[1].transcript
    assert agent_node(again).get_transcript()[:3] == agent_node(node).get_transcript()[:3]


async def test_an_agent_that_gave_up_by_itself_is_not_resumed():
    boss = worker("boss", raise_exception)
    async with Runtime([boss], models=ScriptedModel(giving_up())) as runtime:
        node = await ended(runtime.invoke(boss))
        with pytest.raises(TreefoldError):
            runtime.resume(node.id)
