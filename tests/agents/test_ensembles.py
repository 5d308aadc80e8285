"""Ensemble and ThinkMore, with models that follow a script."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from agent_scripts import StagedModel, asked, children_of, run, told, until
from support import look, settle
from treefold import (
    AgentFunction,
    AgentNode,
    CallGraphError,
    CodeFunction,
    Ensemble,
    EnsembleError,
    FunctionArg,
    NodeState,
    Provider,
    RunContext,
    Runtime,
    ThinkMore,
    TokenUsage,
    ToolUse,
    TreefoldError,
    UserText,
)
from treefold.testing import ScriptedFailure, ScriptedModel, ScriptedRequest
from treefold.toolbox import raise_exception

CLAUDE, GEMINI = Provider.Anthropic, Provider.Gemini


def writer(*uses: Any, **options: Any) -> AgentFunction:
    return AgentFunction(
        "write",
        "Write about something.",
        args=[FunctionArg("theme", str, "What about")],
        system_prompt="You write about {theme}.",
        user_prompt_template="Write about {theme}.",
        uses=uses,
        **options,
    )


RAIN = {"theme": "rain"}
PROMPT = "Write about rain."


def requests_of(*models: ScriptedModel) -> list[ScriptedRequest]:
    return [request for model in models for request in model.requests]


# --- what it is


def test_an_ensemble_is_code_with_the_parameters_of_its_agent():
    write = writer()
    several = Ensemble(write, {CLAUDE: 2, GEMINI: 1})
    assert isinstance(several, CodeFunction)
    assert several.name == "write_ensemble"
    assert several.input_schema == write.input_schema
    assert write in several.uses
    assert Ensemble(write, {CLAUDE: 1}, name="poets").name == "poets"
    assert callable(several.callable)


def test_an_ensemble_and_its_agent_are_found_by_the_runtime():
    write = writer(look)
    found = Runtime([Ensemble(write, {CLAUDE: 2})]).invocable_functions
    assert {"write_ensemble", "write", "look"} <= set(found)


# --- the two phases


async def test_each_candidate_is_a_call_of_the_agent_as_usual_and_then_all_are_reconciled():
    claude = ScriptedModel("Claude one.", "Claude two.", "All in one.")
    gemini = ScriptedModel("Gemini one.")
    several = Ensemble(writer(), {CLAUDE: 2, GEMINI: 1}, reconcile_by=CLAUDE)
    node = await run(several, RAIN, models={CLAUDE: claude, GEMINI: gemini})
    assert node.outputs == "All in one."
    assert len(claude.requests) == 3
    assert len(gemini.requests) == 1
    first = [*claude.requests[:2], *gemini.requests]
    assert [asked(request) for request in first] == [PROMPT] * 3
    last = claude.requests[2]
    assert {request.system for request in requests_of(claude, gemini)} == {"You write about rain."}
    assert asked(last).startswith(PROMPT)
    for candidate in ("Claude one.", "Claude two.", "Gemini one."):
        assert candidate in asked(last)
    assert len(asked(last)) > len(PROMPT + "Claude one.Claude two.Gemini one.")


async def test_another_model_may_do_the_reconciling():
    claude, gemini = ScriptedModel("one", "two"), ScriptedModel("both")
    several = Ensemble(writer(), {CLAUDE: 2}, reconcile_by=GEMINI)
    node = await run(several, RAIN, models={CLAUDE: claude, GEMINI: gemini})
    assert node.outputs == "both"
    assert (len(claude.requests), len(gemini.requests)) == (2, 1)


async def test_candidates_may_be_of_models_by_name():
    models = {name: ScriptedModel("one", "both") for name in ("openai:x", "fast")}
    node = await run(Ensemble(writer(), dict.fromkeys(models, 1)), RAIN, models=models)
    assert node.outputs == "both"
    assert sum(len(model.requests) for model in models.values()) == 3


async def test_candidates_are_made_in_parallel():
    claude = StagedModel(ScriptedModel(lambda request: "one"), held=True)
    gemini = StagedModel(ScriptedModel(lambda request: "two"), held=True)
    several = Ensemble(writer(), {CLAUDE: 1, GEMINI: 1})
    models = {CLAUDE: claude, GEMINI: gemini}
    async with Runtime([several], models=models) as runtime, asyncio.timeout(60):
        node = runtime.invoke(several, RAIN)
        await until(lambda: claude.in_flight == gemini.in_flight == 1)
        claude.gate.set()
        gemini.gate.set()
        await node
    assert [len(batch) for batch in node.get_children() if isinstance(batch, list)] == [2]


async def test_siblings_with_one_prompt_start_after_the_first_token_of_the_first():
    model = StagedModel(ScriptedModel(lambda request: "one two three"), held=True)
    model.rest.clear()
    several = Ensemble(writer(), {CLAUDE: 3})
    async with Runtime([several], models={CLAUDE: model}) as runtime, asyncio.timeout(60):
        node = runtime.invoke(several, RAIN)
        await until(lambda: model.in_flight)
        await settle()
        assert model.in_flight == 1  # the others could not read the prompt cache yet
        model.gate.set()
        await until(lambda: model.in_flight == 3)  # and now they can, before the first has ended
        model.rest.set()
        await node


async def test_candidates_are_tied_and_the_reconciling_comes_after_them():
    several = Ensemble(writer(), {CLAUDE: 3})
    model = ScriptedModel(lambda request: "text")
    node = await run(several, RAIN, models={CLAUDE: model})
    tied, last = node.get_children()
    assert isinstance(tied, list)
    assert [type(child) for child in tied] == [AgentNode] * 3
    assert isinstance(last, AgentNode)
    assert last.outputs == "text"


async def test_candidates_use_functions_like_any_call_of_the_agent():
    def reply(request: ScriptedRequest) -> Any:
        return "text" if told(request) else [ToolUse("a", "look", {"at": "x"})]

    several = Ensemble(writer(look), {CLAUDE: 2})
    node = await run(several, RAIN, models={CLAUDE: ScriptedModel(reply)})
    assert node.outputs == "text"
    candidates = [child for child in children_of(node) if children_of(child)]
    assert len(candidates) >= 2


async def test_the_account_of_an_ensemble_is_that_of_all_its_calls():
    model = ScriptedModel(lambda request: "text", usage=TokenUsage(input=10))
    node = await run(Ensemble(writer(), {CLAUDE: 2}), RAIN, models={CLAUDE: model})
    assert node.total_usage == TokenUsage(input=30)


async def test_a_single_candidate_is_returned_as_it_is():
    model = ScriptedModel("only")
    node = await run(Ensemble(writer(), {CLAUDE: 1}), RAIN, models={CLAUDE: model})
    assert node.outputs == "only"
    assert len(model.requests) == 1


async def test_an_ensemble_of_an_agent_with_a_type_returns_that_type():
    class Poem(BaseModel):
        lines: list[str]

    def reply(request: ScriptedRequest) -> Any:
        lines = ["both"] if "one" in asked(request) else ["one"]
        return [ToolUse("a", "return_result", {"lines": lines})]

    several = Ensemble(writer(returns=Poem), {CLAUDE: 2})
    node = await run(several, RAIN, models={CLAUDE: ScriptedModel(reply)})
    assert node.outputs == Poem(lines=["both"])


async def test_an_ensemble_is_a_tool_to_an_agent_and_a_function_to_code():
    several = Ensemble(writer(), {CLAUDE: 2})
    boss = AgentFunction("boss", "", user_prompt_template="Go.", uses=[several])

    async def top(ctx: RunContext) -> Any:
        return await ctx.invoke(several, RAIN)

    poets = ScriptedModel(lambda request: "poem")
    lead = ScriptedModel([ToolUse("a", "write_ensemble", RAIN)], "done")
    models = {CLAUDE: poets, "default": lead}
    async with (
        Runtime([boss, CodeFunction(callable=top, uses=[several])], models=models) as runtime,
        asyncio.timeout(60),
    ):
        assert await runtime.invoke(boss) == "done"
        assert [result.content for result in told(lead.requests[1])] == ["poem"]
        assert await runtime.invoke(runtime.invocable_functions["top"]) == "poem"


async def test_a_wrong_argument_is_found_before_anything_is_paid_for():
    model = ScriptedModel("one")
    several = Ensemble(writer(), {CLAUDE: 2})
    node = await run(several, {"them": "rain"}, models={CLAUDE: model})
    assert isinstance(node.exception, ValueError)
    assert model.requests == []


# --- when some of it fails


async def test_one_success_suffices_if_nothing_else_is_said():
    claude = ScriptedModel(ScriptedFailure(500), ScriptedFailure(500))
    gemini = ScriptedModel("only")
    several = Ensemble(writer(), {CLAUDE: 2, GEMINI: 1})
    node = await run(several, RAIN, models={CLAUDE: claude, GEMINI: gemini})
    assert node.outputs == "only"


async def test_an_agent_that_gives_up_is_a_candidate_less():
    claude = ScriptedModel([ToolUse("a", "raise_exception", {"msg": "no idea"})])
    gemini = ScriptedModel("only")
    several = Ensemble(writer(raise_exception), {CLAUDE: 1, GEMINI: 1})
    node = await run(several, RAIN, models={CLAUDE: claude, GEMINI: gemini})
    assert node.outputs == "only"


async def test_without_any_success_the_ensemble_fails_with_all_failures():
    claude = ScriptedModel(ScriptedFailure(500, "one"), ScriptedFailure(500, "two"))
    node = await run(Ensemble(writer(), {CLAUDE: 2}), RAIN, models={CLAUDE: claude})
    error = node.exception
    assert isinstance(error, EnsembleError)
    assert isinstance(error, TreefoldError)
    assert list(error.candidates) == []
    assert len(error.failures) == 2
    assert node.state is NodeState.Error


@pytest.mark.parametrize(("allow_fail", "fails"), [(0, True), (1, False), (2, False)])
async def test_more_failures_than_allowed_fail_the_ensemble(allow_fail: int, fails: bool):  # noqa: FBT001
    claude = ScriptedModel(ScriptedFailure(500))
    gemini = ScriptedModel("one", "two", "both")
    several = Ensemble(writer(), {CLAUDE: 1, GEMINI: 2}, allow_fail=allow_fail, reconcile_by=GEMINI)
    node = await run(several, RAIN, models={CLAUDE: claude, GEMINI: gemini})
    if not fails:
        assert node.outputs == "both"
        return
    assert isinstance(node.exception, EnsembleError)
    assert len(node.exception.failures) >= 1


async def test_reconciling_that_fails_on_one_model_is_tried_on_the_others():
    claude = ScriptedModel("one", ScriptedFailure(500))
    gemini = ScriptedModel("two", "both")
    several = Ensemble(writer(), {CLAUDE: 1, GEMINI: 1}, reconcile_by=CLAUDE)
    node = await run(several, RAIN, models={CLAUDE: claude, GEMINI: gemini})
    assert node.outputs == "both"
    assert (len(claude.requests), len(gemini.requests)) == (2, 2)


async def test_an_ensemble_that_paid_for_its_candidates_and_cannot_reconcile_gives_them():
    claude = ScriptedModel("one", ScriptedFailure(500))
    gemini = ScriptedModel("two", ScriptedFailure(500))
    several = Ensemble(writer(), {CLAUDE: 1, GEMINI: 1})
    node = await run(several, RAIN, models={CLAUDE: claude, GEMINI: gemini})
    error = node.exception
    assert isinstance(error, EnsembleError)
    assert sorted(error.candidates) == ["one", "two"]


async def test_candidates_with_braces_are_reconciled_like_any_others():
    claude = ScriptedModel('{"theme": {theme}} {', "{theme} }{", "both")
    several = Ensemble(writer(), {CLAUDE: 2})
    node = await run(several, {"theme": "{rain}"}, models={CLAUDE: claude})
    assert node.outputs == "both"
    last = asked(claude.requests[2])
    assert last.startswith("Write about {rain}.")
    assert '{"theme": {theme}} {' in last
    assert "{theme} }{" in last


async def test_cancelling_an_ensemble_cancels_all_its_candidates():
    claude = StagedModel(ScriptedModel("never"), held=True)
    gemini = StagedModel(ScriptedModel("never"), held=True)
    several = Ensemble(writer(), {CLAUDE: 1, GEMINI: 1})
    models = {CLAUDE: claude, GEMINI: gemini}
    async with Runtime([several], models=models) as runtime, asyncio.timeout(60):
        node = runtime.invoke(several, RAIN)
        await until(lambda: claude.in_flight == gemini.in_flight == 1)
        runtime.cancel(node.id, "enough")
        await until(lambda: node.state is NodeState.Canceled)
        assert claude.in_flight == gemini.in_flight == 0
        assert {child.state for child in children_of(node)} == {NodeState.Canceled}


# --- thinking more


def test_thinking_more_is_code_with_the_parameters_of_its_agent():
    write = writer()
    more = ThinkMore(write)
    assert isinstance(more, CodeFunction)
    assert more.name == "write_think_more"
    assert more.input_schema == write.input_schema
    assert write in more.uses
    assert ThinkMore(write, name="ponder").name == "ponder"


async def test_an_agent_is_asked_to_look_again_at_its_own_answer():
    model = ScriptedModel("A first try.", "A better one.")
    node = await run(ThinkMore(writer()), RAIN, models=model)
    assert node.outputs == "A better one."
    first, second = model.requests
    assert first.transcript == (UserText(PROMPT),)
    assert first.system == second.system == "You write about rain."
    assert asked(second).startswith(PROMPT)
    assert "A first try." in str(second.transcript)


async def test_an_agent_looks_again_as_often_as_it_is_told():
    model = ScriptedModel("v1", "v2", "v3", "v4")
    node = await run(ThinkMore(writer(), rounds=3), RAIN, models=model)
    assert node.outputs == "v4"
    assert len(model.requests) == 4
    assert "v3" in str(model.requests[3].transcript)
    assert len(children_of(node)) == 4


async def test_an_agent_with_a_type_looks_again_and_returns_that_type():
    model = ScriptedModel(*[
        [ToolUse("a", "return_result", {"result": number})] for number in (1, 2)
    ])
    node = await run(ThinkMore(writer(returns=int)), RAIN, models=model)
    assert node.outputs == 2


async def test_thinking_more_and_ensembles_are_functions_like_any_other():
    more = ThinkMore(writer(), name="ponder")
    boss = AgentFunction("boss", "", user_prompt_template="Go.", uses=[more])
    model = ScriptedModel([ToolUse("a", "ponder", RAIN)], "try", "better", "done")
    node = await run(boss, models=model)
    assert node.outputs == "done"
    assert [result.content for result in told(model.requests[3])] == ["better"]


@pytest.mark.parametrize(
    "ensemble",
    [
        Ensemble(writer(), {"first": 1, "secnod": 1}),
        Ensemble(writer(), {"first": 1}, reconcile_by="secnod"),
    ],
)
def test_a_model_that_nobody_knows_is_found_before_anything_runs(ensemble: Ensemble):
    model = ScriptedModel()
    with pytest.raises(CallGraphError, match="write_ensemble: no provider is called 'secnod'"):
        Runtime([ensemble], models={"default": model, "first": model})
