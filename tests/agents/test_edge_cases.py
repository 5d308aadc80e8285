"""What the words about agents say, held against what they do."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agent_scripts import until
from treefold import (
    HOOK_PRE_TOOL_USE,
    HOOK_USER_PROMPT_SUBMIT,
    AgentFunction,
    Budget,
    BudgetExceeded,
    CallGraphError,
    CodeFunction,
    Ensemble,
    EnsembleError,
    FromFile,
    FunctionArg,
    HookDecision,
    ModelProviderException,
    RunContext,
    Runtime,
    ToolUse,
    UserText,
    agent,
)
from treefold.models import Caching, ModelSettings
from treefold.testing import HANGS, ScriptedFailure, ScriptedModel


class Point(BaseModel):
    x: int
    y: int = 0


class Line(BaseModel):
    points: list[Point]


def worker(name: str = "work", *uses: Any, **options: Any) -> AgentFunction:
    return AgentFunction(name, "Work.", user_prompt_template="Work.", uses=uses, **options)


async def outcome(function: Any, args: Any = None, **options: Any) -> Any:
    async with asyncio.timeout(60), Runtime([function], **options) as runtime:
        node = runtime.invoke(function, args)
        try:
            return await node
        except Exception as error:  # noqa: BLE001 - it is what is looked at
            return error


async def test_a_hook_that_denies_everything_does_not_keep_an_agent_from_returning_its_result():
    async def deny(event: Any) -> HookDecision:
        return HookDecision(continue_=False)

    model = ScriptedModel(ToolUse("1", "return_result", {"x": 1}))
    hooks = {HOOK_PRE_TOOL_USE: [deny]}
    assert await outcome(worker(returns=Point), models=model, hooks=hooks) == Point(x=1)


@pytest.mark.parametrize(
    ("returns", "args", "fault"),
    [
        (Point, {"x": 1, "yy": 2}, "unknown argument 'yy'; it takes x, y"),
        (Line, {"points": [{"x": 1, "yy": 2}]}, "unknown argument 'yy'; it takes x, y"),
        (list[Point], {"result": [{"x": 1, "yy": 2}]}, "unknown argument 'yy'; it takes x, y"),
        (int, {"reslt": 1}, "unknown argument 'reslt'; it takes result"),
    ],
)
async def test_a_misspelt_field_of_a_result_is_refused_at_any_depth(
    returns: Any, args: Any, fault: str
):
    model = ScriptedModel(ToolUse("1", "return_result", args), '{"x": 1, "yy": 2}', "", "")
    await outcome(worker(returns=returns), models=model)
    (told,) = [part for part in model.requests[1].transcript if hasattr(part, "content")]
    assert fault in told.content  # pyright: ignore


async def test_a_misspelt_field_in_a_text_is_no_result():
    model = ScriptedModel('{"x": 1, "yy": 2}', '{"x": 1, "y": 2}')
    assert await outcome(worker(returns=Point), models=model) == Point(x=1, y=2)


async def test_an_ensemble_that_cannot_succeed_any_more_waits_for_nobody():
    panel = Ensemble(worker(), {"slow": 1, "broken": 1}, allow_fail=0)
    models = {"slow": ScriptedModel(HANGS), "broken": ScriptedModel(ScriptedFailure(400))}
    error = await outcome(panel, models=models)
    assert isinstance(error, EnsembleError)
    assert len(error.failures) == 1


async def test_the_candidates_of_an_ensemble_stand_in_the_order_of_its_members():
    panel = Ensemble(worker(), {"one": 1, "other": 1})

    def late(request: Any) -> str:
        return "from one"

    models = {"one": ScriptedModel(late), "other": ScriptedModel("from other")}
    async with asyncio.timeout(60), Runtime([panel], models=models) as runtime:
        node = runtime.invoke(panel)
        await node
    reconciling: Any = node.get_children()[-1]
    assert reconciling.inputs["candidates"] == ["from one", "from other"]


async def test_caching_that_was_switched_off_stays_off():
    opened: list[Any] = []

    class Noting(ScriptedModel):
        def open(self, *args: Any, **kwargs: Any) -> Any:
            opened.append(args[2].caching)
            return super().open(*args, **kwargs)

    leaf = CodeFunction(name="leaf", callable=lambda ctx: None)
    for settings in (ModelSettings(), ModelSettings(caching=Caching.NONE)):
        await outcome(worker("work", leaf, settings=settings), models=Noting("done"))
    assert opened == [Caching.MINUTES, Caching.NONE]


async def test_a_prompt_that_needs_approval_may_be_edited():
    async def ask(event: Any) -> HookDecision:
        return HookDecision(ask="Send this?")

    model = ScriptedModel("done")
    work, hooks = worker(), {HOOK_USER_PROMPT_SUBMIT: [ask]}
    async with asyncio.timeout(60), Runtime([work], models=model, hooks=hooks) as runtime:
        node = runtime.invoke(work)
        await until(runtime.questions)
        runtime.answer(runtime.questions()[0].id, args={"prompt": "Play."})
        await node
    assert model.requests[0].transcript == (UserText("Play."),)


async def test_what_was_said_survives_a_resume_that_fails_at_once():
    work = worker("work", CodeFunction(name="leaf", callable=lambda ctx: "found"))
    script = ScriptedModel(ToolUse("1", "leaf"), ScriptedFailure(500), "done")

    class Door(ScriptedModel):
        shut = False

        def open(self, *args: Any, **kwargs: Any) -> Any:
            if self.shut:
                raise OSError("no")
            return script.open(*args, **kwargs)

    door = Door()
    async with asyncio.timeout(60), Runtime([work], models=door) as runtime:
        node = runtime.invoke(work)
        for door.shut in (True, False):
            with pytest.raises(ModelProviderException):
                await node
            node = runtime.resume(node.id)
        assert await node == "done"
    assert len(script.requests) == 3  # none of them for the call that had been made


async def test_code_may_have_a_budget_of_its_own():
    sub = worker("sub")

    async def both(ctx: RunContext) -> list[str]:
        return [await ctx.invoke(sub), await ctx.invoke(sub)]

    code = CodeFunction(callable=both, uses=[sub], budget=Budget(calls=1))
    error = await outcome(code, models=ScriptedModel(lambda request: "one"))
    assert isinstance(error, BudgetExceeded)
    assert "the budget of both (run 1) is exceeded: 1 of 1 requests" in str(error)


def test_a_function_that_a_runtime_meets_later_is_checked_like_the_others():
    known = CodeFunction(name="known", callable=lambda ctx: None)
    namesake = worker("known")
    unfit = CodeFunction(name="unfit", callable=lambda ctx: None, args=[FunctionArg("x", str)])
    with Runtime([known], models=ScriptedModel()) as runtime:
        with pytest.raises(CallGraphError, match="two functions are called 'known'"):
            runtime.invoke(namesake)
        with pytest.raises(CallGraphError, match="has no parameter 'x'"):
            runtime.invoke(unfit, {"x": "y"})


def test_a_misspelt_name_in_a_list_of_tools_is_found():
    tool = CodeFunction(name="delete", callable=lambda ctx: None)
    for lists in ({"disallowed_tools": ["delte"]}, {"allowed_tools": ["delte"]}):
        with pytest.raises(ValueError, match="'delte', which is none here; did you mean 'delete'"):
            Runtime([tool], **lists)  # pyright: ignore


async def test_functions_for_a_model_go_by_the_runtimes_own_name_too():
    leaf = CodeFunction(name="leaf", callable=lambda ctx: None)
    model = ScriptedModel("done")
    clever = worker(default_model="clever", model_tools={"clever": [leaf]})
    await outcome(clever, models={"clever": model})
    assert model.requests[0].functions == ("leaf",)


async def test_a_direct_call_of_an_agent_takes_no_more_than_it_has():
    @agent
    def add(a: int, b: int) -> str:
        return f"{a} + {b}?"

    with pytest.raises(TypeError, match="takes 2 positional arguments, and 3 were given"):
        add(1, 2, 3)  # pyright: ignore[reportCallIssue]


async def test_a_placeholder_in_a_file_is_checked_when_it_is_read(tmp_path: Path):
    file = tmp_path / "prompt.txt"
    file.write_text("Do {thnig}")
    todo = AgentFunction(
        "do", "Do.", args=[FunctionArg("thing", str)], user_prompt_template=FromFile(file)
    )
    error = await outcome(todo, {"thing": "it"}, models=ScriptedModel())
    assert "{thnig}, which is none of its arguments (thing)" in str(error)


async def test_a_call_that_is_made_again_is_not_shown_as_parallel():
    tries = iter([OSError("disk full"), None])

    def save(ctx: RunContext) -> str:
        if (error := next(tries)) is not None:
            raise error
        return "saved"

    work = worker("work", CodeFunction(callable=save))
    model = ScriptedModel(ToolUse("1", "save"), "done")
    async with (
        asyncio.timeout(60),
        Runtime([work], models=model, on_tool_error="pause") as runtime,
    ):
        node = runtime.invoke(work)
        await until(runtime.questions)
        assert "resume calls it again" in runtime.get_view(node.id).status
        runtime.resume(node.id)
        assert await node == "done"
    assert [getattr(child, "sequence", None) for child in node.get_children()] == [1, 2]
