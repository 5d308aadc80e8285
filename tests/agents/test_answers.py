"""How an agent ends: with text, with a typed result, or with neither."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from agent_scripts import run_agent, told
from support import look
from treefold import (
    AgentFunction,
    ModelText,
    NoAnswerError,
    NodeState,
    StepLimitError,
    ThinkingPart,
    ToolUse,
    TreefoldError,
    UserText,
    agent,
    tool,
)
from treefold.testing import ScriptedModel, ScriptedRequest
from treefold.toolbox import return_result
from wire import anthropic_wire, gemini_wire, openai_wire
from wire.protocols import PROTOCOLS, Protocol

OPENAI, ANTHROPIC, GEMINI = PROTOCOLS


class Report(BaseModel):
    """What was found."""

    cause: str
    lines: list[int] = []


def finder(**options: Any) -> AgentFunction:
    return AgentFunction("find", "Find it.", user_prompt_template="Find it.", **options)


def texts(request: ScriptedRequest) -> list[str]:
    """Return what the user said."""
    return [part.text for part in request.transcript if isinstance(part, UserText)]


# --- text


async def test_an_agent_is_completed_once_it_returns_its_final_text():
    node = await run_agent(finder(), models=ScriptedModel("A typo."))
    assert (node.state, node.outputs) == (NodeState.Success, "A typo.")


async def test_thinking_is_no_part_of_the_answer():
    model = ScriptedModel([ThinkingPart("Hm."), ModelText("A typo.")])
    assert (await run_agent(finder(), models=model)).outputs == "A typo."


async def test_what_was_said_beside_a_call_is_not_the_answer():
    model = ScriptedModel([ModelText("Let me look."), ToolUse("a", "look", {"at": "x"})], "A typo.")
    assert (await run_agent(finder(uses=[look]), models=model)).outputs == "A typo."


@pytest.mark.parametrize("empty", ["", " \n\t", [ThinkingPart("Hm.")]])
async def test_an_empty_answer_is_asked_for_again(empty: Any):
    model = ScriptedModel(empty, empty, "A typo.")
    node = await run_agent(finder(), models=model)
    assert node.outputs == "A typo."
    assert len(model.requests) == 3


async def test_an_answer_that_stays_empty_is_never_a_success():
    model = ScriptedModel(*[""] * 5)
    node = await run_agent(finder(), models=model)
    assert node.state is NodeState.Error
    assert isinstance(node.exception, NoAnswerError)
    assert isinstance(node.exception, TreefoldError)
    assert len(model.requests) == 3


async def test_an_answer_that_was_cut_off_is_no_answer_and_tells_what_was_said():
    cut = {
        "openai": openai_wire.text("It is ", "a ty", finish="length"),
        "anthropic": anthropic_wire.message(
            anthropic_wire.Text(["It is ", "a ty"]), stop_reason="max_tokens"
        ),
        "gemini": gemini_wire.reply(
            gemini_wire.chunk([gemini_wire.text("It is a ty")], "MAX_TOKENS", gemini_wire.USAGE)
        ),
    }
    for protocol in PROTOCOLS:
        async with protocol.server(cut[protocol.name]) as server:
            node = await run_agent(finder(), models=protocol.model(server))
        assert isinstance(node.exception, NoAnswerError)
        assert node.exception.text == "It is a ty"
        assert len(server.requests) == 1


async def test_an_agent_that_never_answers_ends_after_its_greatest_number_of_steps():
    model = ScriptedModel(
        lambda request: [ToolUse(f"a{len(request.transcript)}", "look", {"at": "x"})]
    )
    node = await run_agent(finder(uses=[look], max_steps=4), models=model)
    assert isinstance(node.exception, StepLimitError)
    assert isinstance(node.exception, TreefoldError)
    assert "4" in str(node.exception)
    assert len(model.requests) == 4


async def test_an_answer_in_the_last_step_is_an_answer():
    model = ScriptedModel([ToolUse("a", "look", {"at": "x"})], "done")
    node = await run_agent(finder(uses=[look], max_steps=2), models=model)
    assert node.outputs == "done"


# --- results of a type


async def test_an_agent_with_a_type_is_given_the_function_return_result():
    model = ScriptedModel([ToolUse("a", "return_result", {"cause": "typo", "lines": [3]})])
    node = await run_agent(finder(returns=Report, uses=[look]), models=model)
    assert set(model.requests[0].functions) == {"look", "return_result"}
    assert node.outputs == Report(cause="typo", lines=[3])
    assert node.state is NodeState.Success
    assert len(model.requests) == 1  # the result ends the agent


async def test_the_parameters_of_return_result_are_the_fields_of_the_type():
    async with ANTHROPIC.server(
        ANTHROPIC.calls(("a", "return_result", '{"cause":"typo"}'))
    ) as server:
        node = await run_agent(finder(returns=Report), models=ANTHROPIC.model(server))
    assert node.outputs == Report(cause="typo")
    [offered] = server.requests[0].json["tools"]
    assert offered["name"] == "return_result"
    assert set(offered["input_schema"]["properties"]) == {"cause", "lines"}
    assert offered["input_schema"]["required"] == ["cause"]
    assert server.requests[0].json["tool_choice"] == {"type": "auto"}


@pytest.mark.parametrize(
    ("kind", "value"), [(int, 42), (list[str], ["a", "b"]), (bool, False), (list[Report], [])]
)
async def test_a_type_that_is_no_object_is_returned_as_the_one_parameter_result(
    kind: Any, value: Any
):
    model = ScriptedModel([ToolUse("a", "return_result", {"result": value})])
    node = await run_agent(finder(returns=kind), models=model)
    assert node.outputs == value
    assert node.state is NodeState.Success


async def test_the_short_form_returns_a_type_too():
    @agent(returns=Report)
    def find(error: str) -> str:
        """Find the cause."""
        return error

    model = ScriptedModel([ToolUse("a", "return_result", {"cause": "typo"})])
    node = await run_agent(find, {"error": "boom"}, models=model)
    assert node.outputs == Report(cause="typo")
    assert find.output_type is Report


async def test_a_wrong_result_is_answered_to_the_model_which_may_try_again():
    model = ScriptedModel(
        [ToolUse("a", "return_result", {"cause": 3})],
        [ToolUse("b", "return_result", {"cause": "typo", "lnes": [1]})],
        [ToolUse("c", "return_result", {"cause": "typo"})],
    )
    node = await run_agent(finder(returns=Report), models=model)
    assert node.outputs == Report(cause="typo")
    first, second = told(model.requests[2])
    assert first.is_error
    assert "cause" in first.content
    assert second.is_error
    assert "lnes" in second.content


async def test_text_that_is_json_that_fits_is_taken_for_the_result():
    model = ScriptedModel('{"cause": "typo", "lines": [1, 2]}')
    node = await run_agent(finder(returns=Report), models=model)
    assert node.outputs == Report(cause="typo", lines=[1, 2])


async def test_any_other_text_is_answered_with_the_wish_for_return_result():
    model = ScriptedModel("It is a typo.", [ToolUse("a", "return_result", {"cause": "typo"})])
    node = await run_agent(finder(returns=Report), models=model)
    assert node.outputs == Report(cause="typo")
    assert "return_result" in texts(model.requests[1])[-1]


async def test_text_instead_of_a_result_is_no_answer_after_the_model_was_told_twice():
    model = ScriptedModel(*["It is a typo."] * 5)
    node = await run_agent(finder(returns=Report), models=model)
    assert isinstance(node.exception, NoAnswerError)
    assert len(model.requests) == 3


async def test_calls_beside_the_result_are_made():
    ran: list[str] = []

    @tool
    async def note(text: str) -> None:
        ran.append(text)

    model = ScriptedModel([
        ToolUse("a", "note", {"text": "first"}),
        ToolUse("b", "return_result", {"result": 1}),
        ToolUse("c", "note", {"text": "last"}),
    ])
    node = await run_agent(finder(returns=int, uses=[note]), models=model)
    assert node.outputs == 1
    assert ran == ["first", "last"]


async def test_the_transcript_shows_the_result_that_was_returned():
    call = ToolUse("a", "return_result", {"result": 1})
    node = await run_agent(finder(returns=int), models=ScriptedModel(call))
    assert call in node.get_transcript()


async def test_a_typed_result_reaches_the_agent_that_asked_for_it_as_json():
    helper = finder(returns=Report)
    boss = AgentFunction("boss", "", user_prompt_template="Go.", uses=[helper])
    model = ScriptedModel(
        [ToolUse("a", "find")], [ToolUse("b", "return_result", {"cause": "typo"})], "done"
    )
    await run_agent(boss, models=model)
    [result] = told(model.requests[2])
    assert json.loads(result.content) == {"cause": "typo", "lines": []}


async def test_an_agent_without_a_type_may_be_given_return_result():
    model = ScriptedModel([ToolUse("a", "return_result", {"result": "A typo."})])
    node = await run_agent(finder(uses=[return_result]), models=model)
    assert node.outputs == "A typo."
    assert len(model.requests) == 1


# --- where the provider has a way of its own


async def test_gemini_without_functions_is_given_the_schema_of_the_response():
    async with GEMINI.server(GEMINI.text('{"cause": "typo",', ' "lines": [7]}')) as server:
        node = await run_agent(finder(returns=Report), models=GEMINI.model(server))
    assert node.outputs == Report(cause="typo", lines=[7])
    body = server.requests[0].json
    assert "tools" not in body
    config = body["generationConfig"]
    assert config["responseMimeType"] == "application/json"
    schema = config.get("responseJsonSchema") or config.get("responseSchema")
    assert set(schema["properties"]) == {"cause", "lines"}


async def test_a_list_is_a_schema_of_a_response_too():
    async with GEMINI.server(GEMINI.text('[{"cause": "typo"}]')) as server:
        node = await run_agent(finder(returns=list[Report]), models=GEMINI.model(server))
    assert node.outputs == [Report(cause="typo")]


async def test_a_response_by_schema_is_validated_all_the_same():
    script = [GEMINI.text('{"cause": 3}'), GEMINI.text('{"cause": "typo"}')]
    async with GEMINI.server(*script) as server:
        node = await run_agent(finder(returns=Report), models=GEMINI.model(server))
    assert node.outputs == Report(cause="typo")
    assert "cause" in json.dumps(server.requests[1].json["contents"][-1])


async def test_gemini_with_functions_returns_by_a_function():
    script = [
        GEMINI.calls(("a", "look", '{"at":"x"}')),
        GEMINI.calls(("b", "return_result", '{"cause":"typo"}')),
    ]
    async with GEMINI.server(*script) as server:
        node = await run_agent(finder(returns=Report, uses=[look]), models=GEMINI.model(server))
    assert node.outputs == Report(cause="typo")
    body = server.requests[0].json
    assert "responseMimeType" not in body["generationConfig"]
    names = [one["name"] for one in body["tools"][0]["functionDeclarations"]]
    assert set(names) == {"look", "return_result"}


async def test_each_provider_returns_a_typed_result(protocol: Protocol):
    script = [
        protocol.calls(("a", "look", '{"at":"x"}')),
        protocol.calls(("b", "return_result", '{"cause":"typo","lines":[1]}')),
    ]
    async with protocol.server(*script) as server:
        node = await run_agent(finder(returns=Report, uses=[look]), models=protocol.model(server))
    assert node.outputs == Report(cause="typo", lines=[1])
