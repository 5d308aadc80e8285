"""The arguments, prompts, files and models of agents."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agent_scripts import StagedModel, asked, ended, run, run_agent, told
from treefold import (
    AgentFunction,
    CallGraphError,
    CodeFunction,
    FromFile,
    FunctionArg,
    NodeState,
    Provider,
    RunContext,
    Runtime,
    ToolUse,
    TreefoldError,
    UserText,
    agent,
    tool,
)
from treefold.models import ModelSettings
from treefold.testing import ScriptedModel
from wire.protocols import PROTOCOLS

OPENAI, ANTHROPIC, GEMINI = PROTOCOLS


def reporter(prompt: Any = "Go.", system: Any = "", **options: Any) -> AgentFunction:
    """Return an agent with one argument of each kind."""
    return AgentFunction(
        name="report",
        desc="Write a report.",
        args=[
            FunctionArg("root", str, "Project folder"),
            FunctionArg("depth", int, "How deep", optional=True),
            FunctionArg("ratio", float, "How much", optional=True),
            FunctionArg("strict", bool, "Whether to be strict", optional=True),
        ],
        system_prompt=system,
        user_prompt_template=prompt,
        **options,
    )


async def shown(function: Any, args: dict[str, Any]) -> tuple[str, str]:
    """Return the system prompt and the user prompt that a model gets."""
    model = ScriptedModel("done")
    node = await run(function, args, models=model)
    assert node.exception is None
    [request] = model.requests
    assert len(request.transcript) == 1  # one initial user turn
    return request.system, asked(request)


# --- substitution


async def test_arguments_are_put_into_the_system_prompt_and_into_the_user_prompt():
    report = reporter("Look at {root}, then at {root} again.", "You know {root}.")
    assert await shown(report, {"root": "/src"}) == (
        "You know /src.",
        "Look at /src, then at /src again.",
    )


async def test_without_a_system_prompt_none_is_sent():
    system, _ = await shown(reporter("Look."), {"root": "/src"})
    assert system == ""


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        '{"root": "x"}',
        "{{root}}",
        "{ root }",
        "{}",
        "{0}",
        "{",
        "}",
        "{root.name}",
        "{root!r}",
        "{root:>10}",
        "{{}}",
        "if (x) { return y; }",
        '{"nested": {"b": [{"c": "d"}]}}',
        "set {1, 2} and dict {'root': 2}",
    ],
)
async def test_every_other_brace_stays(text: str):
    assert await shown(reporter(f"{text} in {{root}}", text), {"root": "/src"}) == (
        text,
        f"{text} in /src",
    )


async def test_a_value_that_looks_like_a_placeholder_is_not_replaced_again():
    report = reporter("{root} {depth}", "{depth} {root}")
    assert await shown(report, {"root": "{depth}{root}", "depth": 3}) == (
        "3 {depth}{root}",
        "{depth}{root} 3",
    )


async def test_a_value_is_put_in_as_it_is_if_it_is_text_and_as_json_otherwise():
    report = reporter("{root}|{depth}|{ratio}|{strict}")
    _, text = await shown(report, {"root": '"q"\n é', "depth": 3, "ratio": 0.5, "strict": True})
    assert text == '"q"\n é|3|0.5|true'


async def test_what_was_left_out_is_put_in_as_nothing():
    _, text = await shown(reporter("[{root}][{depth}][{strict}]"), {"root": "", "depth": None})
    assert text == "[][][]"


@pytest.mark.parametrize("where", ["system", "user"])
def test_a_placeholder_without_an_argument_is_found_at_start(where: str):
    prompts = {"user": "Look at {rot}.", "system": ""}
    if where == "system":
        prompts = {"user": "Look.", "system": "You know {rot}."}
    with pytest.raises(CallGraphError) as caught:
        Runtime([reporter(prompts["user"], prompts["system"])])
    [fault] = caught.value.faults
    assert "report" in fault
    assert "rot" in fault


# --- files


async def test_a_variable_may_be_given_as_a_file_which_is_read_for_the_agent(tmp_path: Path):
    path = tmp_path / "trace.txt"
    path.write_text("Boom {depth} é\n", encoding="utf-8")
    _, text = await shown(reporter("Trace: {root}"), {"root": FromFile(path), "depth": 4})
    assert text == "Trace: Boom {depth} é\n"


async def test_a_file_may_be_named_by_text(tmp_path: Path):
    path = tmp_path / "trace.txt"
    path.write_text("Boom", encoding="utf-8")
    _, text = await shown(reporter("{root}"), {"root": FromFile(str(path))})
    assert text == "Boom"


async def test_prompts_may_be_files_with_placeholders(tmp_path: Path):
    system, user = tmp_path / "system.md", tmp_path / "user.md"
    system.write_text("You know {root}.", encoding="utf-8")
    user.write_text('Answer as {"a": 1} about {root}.', encoding="utf-8")
    report = reporter(FromFile(user), FromFile(system))
    assert await shown(report, {"root": "/src"}) == (
        "You know /src.",
        'Answer as {"a": 1} about /src.',
    )


async def test_a_file_is_read_when_the_call_runs(tmp_path: Path):
    path = tmp_path / "prompt.md"
    path.write_text("First: {root}", encoding="utf-8")
    report, model = reporter(FromFile(path)), ScriptedModel("one", "two")
    async with Runtime([report], models=model) as runtime, asyncio.timeout(60):
        await runtime.invoke(report, {"root": "a"})
        path.write_text("Second: {root}", encoding="utf-8")
        await runtime.invoke(report, {"root": "b"})
    assert [asked(request) for request in model.requests] == ["First: a", "Second: b"]


async def test_the_inputs_of_a_node_keep_the_file_and_not_what_is_in_it(tmp_path: Path):
    path = tmp_path / "trace.txt"
    path.write_text("Boom", encoding="utf-8")
    given = FromFile(path)
    node = await run_agent(reporter("{root}"), {"root": given}, models=ScriptedModel("ok"))
    assert node.inputs["root"] is given or node.inputs["root"] == given


async def test_a_file_that_cannot_be_read_is_a_value_error_with_argument_and_path(tmp_path: Path):
    path, model = tmp_path / "missing.txt", ScriptedModel("ok")
    node = await run_agent(reporter("{root}"), {"root": FromFile(path)}, models=model)
    assert node.state is NodeState.Error
    assert isinstance(node.exception, ValueError)
    assert "root" in str(node.exception)
    assert str(path) in str(node.exception)
    assert model.requests == []


async def test_a_file_that_is_not_utf8_is_a_value_error_too(tmp_path: Path):
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe\x00")
    node = await run_agent(reporter("{root}"), {"root": FromFile(path)}, models=ScriptedModel("ok"))
    assert isinstance(node.exception, ValueError)
    assert str(path) in str(node.exception)


async def test_code_is_given_what_is_in_the_file(tmp_path: Path):
    path = tmp_path / "a.txt"
    path.write_text("hello", encoding="utf-8")

    def shout(ctx: RunContext, text: str) -> str:
        return text.upper()

    node = await run(CodeFunction(callable=shout), {"text": FromFile(path)})
    assert node.outputs == "HELLO"
    assert node.inputs["text"] == FromFile(path)


async def test_code_may_hand_a_file_to_the_agent_that_it_calls(tmp_path: Path):
    path = tmp_path / "a.txt"
    path.write_text("hello", encoding="utf-8")
    report, model = reporter("{root}"), ScriptedModel("ok")

    async def top(ctx: RunContext) -> Any:
        return await ctx.invoke(report, {"root": FromFile(path)})

    await run(CodeFunction(callable=top, uses=[report]), models=model)
    assert asked(model.requests[0]) == "hello"


# --- the short form


async def test_in_the_short_form_the_body_builds_the_prompt():
    @tool
    async def look(at: str) -> str:
        return at

    @agent(system="You investigate bugs.", uses=[look], model="fast")
    def find_bug(root: str, error: str = "none") -> str:
        """Find the cause of an error and write a report."""
        return f"Project: {root}\nError: {error}"

    model = ScriptedModel("A typo.")
    node = await run_agent(find_bug, {"root": "/src"}, models={"fast": model})
    assert isinstance(find_bug, AgentFunction)
    assert find_bug.name == "find_bug"
    assert find_bug.description == "Find the cause of an error and write a report."
    assert find_bug.input_schema["required"] == ["root"]
    assert list(find_bug.uses) == [look]
    assert node.outputs == "A typo."
    [request] = model.requests
    assert (request.system, request.functions) == ("You investigate bugs.", ("look",))
    assert asked(request) == "Project: /src\nError: none"


async def test_the_short_form_needs_no_parentheses():
    @agent
    def poet(theme: str) -> str:
        """Write a poem."""
        return f"Write about {theme}."

    assert await shown(poet, {"theme": "rain"}) == ("", "Write about rain.")


async def test_the_body_of_the_short_form_may_be_async():
    @agent(name="bard")
    async def poet(theme: str) -> str:
        await asyncio.sleep(0)
        return f"Write about {theme}."

    assert poet.name == "bard"
    assert await shown(poet, {"theme": "rain"}) == ("", "Write about rain.")


async def test_the_short_form_takes_anything_that_pydantic_can_describe():
    class Place(BaseModel):
        city: str
        zips: list[int]

    @agent(system="Places: {places}. Options: {options}.")
    def visit(places: list[Place], options: dict[str, bool] | None = None) -> str:
        """Plan a visit."""
        return f"Begin in {places[0].city}."

    args = {"places": [{"city": "Rome", "zips": [1, 2]}]}
    system, text = await shown(visit, args)
    assert text == "Begin in Rome."
    written = system.removeprefix("Places: ").removesuffix(". Options: .")
    assert json.loads(written) == args["places"]
    assert "Place" in json.dumps(visit.input_schema)


async def test_braces_that_the_body_of_the_short_form_returns_stay():
    @agent
    def ask(question: str) -> str:
        return 'Answer as {"question": "..."}: ' + question

    _, text = await shown(ask, {"question": "what is {question} in a template?"})
    assert text == 'Answer as {"question": "..."}: what is {question} in a template?'


async def test_a_body_that_raises_is_the_error_of_the_call_and_nothing_is_asked():
    @agent
    def ask(question: str) -> str:
        raise LookupError("no such question")

    model = ScriptedModel("never")
    node = await run_agent(ask, {"question": "?"}, models=model)
    assert isinstance(node.exception, LookupError)
    assert model.requests == []


# --- which model


async def test_the_model_of_a_runtime_is_the_default_for_agents_that_name_none():
    report = reporter()
    for models in (ScriptedModel("ok", name="mine"), {"default": ScriptedModel("ok", name="mine")}):
        node = await run_agent(report, {"root": ""}, models=models)
        assert (node.outputs, node.model) == ("ok", "mine")


async def test_an_agent_says_a_provider_or_a_name_and_the_runtime_which_model_that_is():
    said = [Provider.Anthropic, "anthropic:claude-opus-4-1", "fast", Provider.Gemini]
    models = {name: ScriptedModel(f"by {name}") for name in said}
    models["default"] = ScriptedModel("by default")
    for name in said:
        node = await run_agent(reporter(default_model=name), {"root": ""}, models=models)
        assert node.outputs == f"by {name}"


async def test_an_agent_may_be_given_a_model_itself():
    node = await run_agent(reporter(default_model=ScriptedModel("mine")), {"root": ""})
    assert node.outputs == "mine"


async def test_a_call_may_say_which_model_is_to_do_it():
    report = reporter(default_model="slow")
    models = {"slow": ScriptedModel("slow"), "fast": ScriptedModel("fast")}

    async def both(ctx: RunContext) -> list[str]:
        first = ctx.invoke(report, {"root": ""})
        second = ctx.invoke(report, {"root": ""}, model="fast")
        third = ctx.invoke(report, {"root": ""}, model=ScriptedModel("other"))
        return [await first, await second, await third]

    top = CodeFunction(callable=both, uses=[report])
    async with Runtime([top], models=models) as runtime, asyncio.timeout(60):
        assert await runtime.invoke(top) == ["slow", "fast", "other"]
        assert await runtime.invoke(report, {"root": ""}, model=ScriptedModel("top")) == "top"


async def test_only_an_agent_can_be_given_a_model():
    def add(ctx: RunContext) -> int:
        return 1

    function = CodeFunction(callable=add)
    async with Runtime([function]) as runtime, asyncio.timeout(60):
        with pytest.raises(TreefoldError, match="model"):
            await runtime.invoke(function, model=ScriptedModel("x"))


async def test_settings_of_an_agent_reach_its_model():
    report = reporter(settings=ModelSettings(max_tokens=123, temperature=0.25))
    async with OPENAI.server(OPENAI.text("ok")) as server:
        node = await run(report, {"root": ""}, models=OPENAI.model(server))
    assert node.outputs == "ok"
    body = server.requests[0].json
    assert (body["max_tokens"], body["temperature"]) == (123, 0.25)


async def test_one_agent_serves_two_calls_at_once_and_keeps_nothing_of_them():
    report = reporter("About {root}.")
    model = StagedModel(ScriptedModel(asked), held=True)
    async with Runtime([report], models=model) as runtime, asyncio.timeout(60):
        nodes = [runtime.invoke(report, {"root": name}) for name in ("a", "b")]
        model.gate.set()
        assert [await node for node in nodes] == ["About a.", "About b."]


# --- functions for some models only


def only(name: str, ran: list[str]) -> CodeFunction:
    def call(ctx: RunContext) -> str:
        ran.append(name)
        return name

    return CodeFunction(name=name, desc="", callable=call)


async def test_functions_for_certain_models_are_offered_to_those_only():
    ran: list[str] = []
    anywhere, claude, gemini = (only(name, ran) for name in ("anywhere", "claude", "gemini"))
    report = reporter(
        uses=[anywhere], model_tools={Provider.Anthropic: [claude], Provider.Gemini: [gemini]}
    )
    offered: dict[str, set[str]] = {}
    for protocol in PROTOCOLS:
        async with protocol.server(protocol.text("ok")) as server:
            await run(report, {"root": ""}, models=protocol.model(server))
        text = server.requests[0].body.decode()
        offered[protocol.name] = {
            name for name in ("anywhere", "claude", "gemini") if f'"name":"{name}"' in text
        }
    assert offered == {
        "openai": {"anywhere"},
        "anthropic": {"anywhere", "claude"},
        "gemini": {"anywhere", "gemini"},
    }


async def test_functions_may_be_for_one_model_by_its_name():
    ran: list[str] = []
    report = reporter(
        default_model="anthropic:claude-opus-4-1",
        model_tools={
            "anthropic:claude-opus-4-1": [only("for_it", ran)],
            "anthropic:claude-3-7-sonnet": [only("for_another", ran)],
        },
    )
    async with ANTHROPIC.server(ANTHROPIC.text("ok")) as server:
        models = {"anthropic:claude-opus-4-1": ANTHROPIC.model(server)}
        await run(report, {"root": ""}, models=models)
    assert [one["name"] for one in server.requests[0].json["tools"]] == ["for_it"]


async def test_a_function_for_certain_models_is_found_by_the_runtime_and_can_be_called():
    ran: list[str] = []
    claude = only("claude", ran)
    report = reporter(model_tools={Provider.Anthropic: [claude]})
    script = [ANTHROPIC.calls(("a", "claude", "{}")), ANTHROPIC.text("ok")]
    async with (
        ANTHROPIC.server(*script) as server,
        Runtime([report], models=ANTHROPIC.model(server)) as runtime,
    ):
        assert runtime.invocable_functions["claude"] is claude
        node = await ended(runtime.invoke(report, {"root": ""}))
    assert node.outputs == "ok"
    assert ran == ["claude"]


# --- what one agent shows to another


async def test_a_sub_agent_is_offered_with_its_description_and_its_arguments():
    helper = reporter("{root}")
    boss = AgentFunction("boss", "Delegate.", user_prompt_template="Go.", uses=[helper])
    async with OPENAI.server(OPENAI.text("ok")) as server:
        await run(boss, models=OPENAI.model(server))
    [offered] = server.requests[0].json["tools"]
    assert offered["function"]["name"] == "report"
    assert offered["function"]["description"] == "Write a report."
    assert offered["function"]["parameters"] == helper.input_schema


async def test_a_sub_agent_sees_its_own_prompt_and_nothing_of_its_callers_conversation():
    helper = reporter("Look at {root}.", "You help.")
    boss = AgentFunction(
        "boss", "", system_prompt="You lead.", user_prompt_template="Secret plan.", uses=[helper]
    )
    model = ScriptedModel([ToolUse("a", "report", {"root": "/src"})], "Found it.", "Done.")
    node = await run_agent(boss, models=model)
    assert node.outputs == "Done."
    lead, help_, end = model.requests
    assert (lead.system, help_.system, end.system) == ("You lead.", "You help.", "You lead.")
    assert help_.transcript == (UserText("Look at /src."),)
    assert [result.content for result in told(end)] == ["Found it."]
