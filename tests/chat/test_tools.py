"""Tools of a chat: the decorator, schemas, handlers, and what models get."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from chat_helpers import (
    OPENAI,
    Assistant,
    Result,
    Saying,
    User,
    add,
    adding,
    asked,
    call,
    failed,
    options,
    serving,
    text_of,
    told,
)
from treefold import (
    AgentFunction,
    AgentOptions,
    Client,
    CodeFunction,
    FunctionArg,
    RunContext,
    TextBlock,
    Tool,
    ToolRegistry,
    ToolUseBlock,
    ToolUseError,
    chat,
    tool,
)
from treefold.testing import ScriptedModel
from wire.replies import compact


def schema_of(given: dict[str, Any]) -> dict[str, Any]:
    @tool("some", "Do something.", given)
    async def some(args: dict[str, Any]) -> None: ...

    return some.input_schema


async def test_a_named_tool_says_what_it_is_and_can_be_executed():
    @tool("get_weather", "Get weather", {"location": str, "units": str})
    async def get_weather(args: dict[str, Any]) -> dict[str, Any]:
        return {"temp": 72, "units": args["units"]}

    assert isinstance(get_weather, Tool)
    assert (get_weather.name, get_weather.description) == ("get_weather", "Get weather")
    assert await get_weather.execute({"location": "Paris", "units": "F"}) == {
        "temp": 72,
        "units": "F",
    }


async def test_a_named_tool_is_in_no_registry_so_names_may_be_used_again():
    @tool("same", "One.", {})
    async def one(args: dict[str, Any]) -> int:
        return 1

    @tool("same", "Two.", {})
    async def two(args: dict[str, Any]) -> int:
        return 2

    assert ToolRegistry.all() == []
    assert (await one.execute({}), await two.execute({})) == (1, 2)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(str, "string"), (int, "integer"), (float, "number"), (bool, "boolean")],
)
def test_python_types_become_types_of_json_schema_and_are_required(kind: type, name: str):
    assert schema_of({"param": kind}) == {
        "type": "object",
        "properties": {"param": {"type": name}},
        "required": ["param"],
    }


@pytest.mark.parametrize(("kind", "name"), [(list, "array"), (dict, "object")])
def test_collections_become_arrays_and_objects(kind: type, name: str):
    made = schema_of({"param": kind})
    assert (made["properties"]["param"]["type"], made["required"]) == (name, ["param"])


def test_a_tool_without_parameters_has_an_empty_object():
    assert schema_of({}) == {"type": "object", "properties": {}, "required": []}


@pytest.mark.parametrize(
    ("given", "sent", "required"),
    [
        ({"type": "integer"}, {"type": "integer"}, True),
        ({"type": "integer", "default": 10}, {"type": "integer", "default": 10}, False),
        ({"type": "integer", "required": False}, {"type": "integer"}, False),
        ({"type": "integer", "optional": True}, {"type": "integer"}, False),
        ({"type": "integer", "optional": False}, {"type": "integer"}, True),
        ({"type": "integer", "required": True}, {"type": "integer"}, True),
        (
            {"type": "integer", "default": 10, "required": True},
            {"type": "integer", "default": 10},
            True,
        ),
        ({"type": "integer", "default": None}, {"type": "integer", "default": None}, False),
    ],
)
def test_a_parameter_is_optional_in_three_ways(
    given: dict[str, Any], sent: dict[str, Any], *, required: bool
):
    assert schema_of({"query": str, "limit": given}) == {
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": sent},
        "required": ["query", "limit"] if required else ["query"],
    }
    assert given.keys() >= sent.keys()  # what was given is not changed


def test_a_full_json_schema_is_passed_on_unchanged():
    given = {
        "type": "object",
        "properties": {
            "unit": {"type": "string", "enum": ["C", "F"], "description": "Which scale"},
            "days": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
        },
        "required": ["unit"],
        "additionalProperties": False,
    }
    assert schema_of(given) == given


def test_a_tool_knows_its_form_for_openai():
    assert add.to_openai_format() == {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            },
        },
    }


async def test_a_tool_made_from_a_signature_has_the_same_face():
    @tool
    async def shift(n: int, by: int = 1) -> int:
        """Shift a number."""
        return n + by

    made = shift.to_openai_format()
    assert (made["type"], made["function"]["name"]) == ("function", "shift")
    assert made["function"]["description"] == "Shift a number."
    assert made["function"]["parameters"] == shift.input_schema
    assert shift.input_schema["required"] == ["n"]
    assert await shift.execute({"n": 1, "by": 2}) == 3
    assert await shift.execute({"n": 1, "nonsense": 2}) == 2


async def test_executed_directly_a_handler_is_given_the_dict_as_it_is():
    seen: list[Any] = []

    @tool("note", "Note.", {"n": int})
    async def note(args: dict[str, Any]) -> None:
        seen.append(args)

    await note.execute({"n": "not checked", "more": None})
    assert seen == [{"n": "not checked", "more": None}]


async def test_a_sync_handler_runs_in_a_thread_and_holds_up_nobody():
    go_on = threading.Event()

    @tool("shout", "Uppercase", {"text": str})
    def shout(args: dict[str, Any]) -> str:
        assert threading.current_thread() is not threading.main_thread()
        assert go_on.wait(60)
        return args["text"].upper()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(shout.execute({"text": "hey"}))
        await asyncio.sleep(0)
        go_on.set()
    assert task.result() == "HEY"


async def test_an_exception_of_a_handler_comes_out_of_execute():
    @tool("fail", "Fail.", {})
    def fail(args: dict[str, Any]) -> None:
        raise ZeroDivisionError("oops")

    with pytest.raises(ZeroDivisionError, match="oops"):
        await fail.execute({})


def shout_tool(calls: list[Any]) -> Any:
    @tool("shout", "Uppercase", {"text": str, "times": {"type": "integer", "optional": True}})
    def shout(args: dict[str, Any]) -> str:
        calls.append(args)
        return args["text"].upper()

    return shout


async def test_a_model_can_call_a_sync_tool_with_and_without_optional_arguments():
    calls: list[Any] = []
    script = [
        OPENAI.calls(("a", "shout", '{"text":"hey"}')),
        OPENAI.calls(("b", "shout", '{"text":"ho","times":2}')),
        OPENAI.text("Done."),
    ]
    async with (
        serving(*script) as server,
        Client(options(server, tools=[shout_tool(calls)], auto_execute_tools=True)) as client,
    ):
        assert text_of(await asked(client, "Shout.")) == "Done."
    assert [one["text"] for one in calls] == ["hey", "ho"]
    assert told(server.requests[2])[-3:] == [
        Result("a", "HEY"),
        Assistant("", (call("b", "shout", text="ho", times=2),)),
        Result("b", "HO"),
    ]


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ({"text": ["no", "text"]}, "text"),
        ({}, "text"),
        ({"text": "hey", "times": "often"}, "times"),
        ({"text": "hey", "txet": 1}, "txet"),
    ],
)
async def test_what_a_model_gives_is_checked_against_the_schema_first(
    args: dict[str, Any], named: str
):
    calls: list[Any] = []
    script = [OPENAI.calls(("a", "shout", compact(args))), OPENAI.text("Sorry.")]
    async with (
        serving(*script) as server,
        Client(options(server, tools=[shout_tool(calls)], auto_execute_tools=True)) as client,
    ):
        found = await asked(client, "Shout.")
    assert calls == []
    assert found[0] == ToolUseBlock("a", "shout", args)
    assert isinstance(found[1], ToolUseError)
    assert named in found[1].error
    assert text_of(found) == "Sorry."
    assert told(server.requests[1])[-1] == failed("a", Saying(named), "shout")


@pytest.mark.parametrize(
    ("returned", "content"),
    [
        ("as it is", "as it is"),
        ({"temp": 72, "sky": "größtenteils blau"}, {"temp": 72, "sky": "größtenteils blau"}),
        ([1, "two", None], [1, "two", None]),
        (4.5, 4.5),
        (True, True),
        ("", ""),
    ],
)
async def test_results_are_sent_as_text_or_as_json(returned: Any, content: Any):
    @tool("get", "Get it.", {})
    async def get(args: dict[str, Any]) -> Any:
        return returned

    script = [OPENAI.calls(("a", "get", "{}")), OPENAI.text("ok")]
    async with (
        serving(*script) as server,
        Client(options(server, tools=[get], auto_execute_tools=True)) as client,
    ):
        await asked(client, "Get.")
    assert told(server.requests[1]) == [
        User("Get."),
        Assistant("", (call("a", "get"),)),
        Result("a", content),
    ]


async def test_two_tools_of_one_name_are_refused_when_the_client_is_made():
    @tool("add", "Another.", {})
    async def another(args: dict[str, Any]) -> None: ...

    async with serving() as server:
        given = options(server, tools=[add, another])
        with pytest.raises(ValueError, match="^Duplicate tool name: add$"):
            Client(given)


async def test_any_function_can_be_a_tool():
    @tool
    async def double(n: int) -> int:
        """Double a number."""
        return 2 * n

    def negate(ctx: RunContext, n: int) -> int:
        return -n

    poet = AgentFunction(
        "rhyme",
        "Find a rhyme.",
        args=[FunctionArg("word", str, "The word")],
        user_prompt_template="Rhyme {word}.",
        default_model=ScriptedModel("house"),
    )
    script = [
        OPENAI.calls(
            ("a", "double", '{"n":4}'),
            ("b", "negate", '{"n":4}'),
            ("c", "rhyme", '{"word":"mouse"}'),
            adding("d", 1, 1),
        ),
        OPENAI.text("Done."),
    ]
    tools = [double, CodeFunction(callable=negate), poet, add]
    async with (
        serving(*script) as server,
        Client(options(server, tools=tools, auto_execute_tools=True)) as client,
    ):
        assert text_of(await asked(client, "Do all.")) == "Done."
    assert told(server.requests[1])[2:] == [
        Result("a", 8),
        Result("b", -4),
        Result("c", "house"),
        Result("d", 2),
    ]


# --- made by hand


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_tool_can_be_made_by_hand(kind: str):
    async def shout(args: dict[str, Any]) -> str:
        return str(args["text"]).upper()

    def shout_at_once(args: dict[str, Any]) -> str:
        return str(args["text"]).upper()

    handler: Any = shout if kind == "async" else shout_at_once
    by_place = Tool("shout", "Uppercase.", {"text": str}, handler)
    by_name = Tool(
        name="shout", description="Uppercase.", input_schema={"text": str}, handler=handler
    )
    for made in (by_place, by_name):
        assert isinstance(made, Tool)
        assert (made.name, made.description) == ("shout", "Uppercase.")
        assert await made.execute({"text": "hello"}) == "HELLO"
        assert await made.handler({"text": "hello"}) == "HELLO"
        parameters = made.to_openai_format()["function"]["parameters"]
        assert parameters["properties"]["text"]["type"] == "string"
        assert parameters["required"] == ["text"]
    if kind == "async":
        assert by_place.handler is shout


async def test_a_tool_made_by_hand_is_called_by_a_client():
    async def plus(args: dict[str, Any]) -> int:
        return args["a"] + args["b"]

    made = Tool("add", "Add two numbers.", {"a": int, "b": int}, plus)
    async with (
        serving(OPENAI.calls(adding("a")), OPENAI.text("42.")) as server,
        Client(options(server, tools=[made], auto_execute_tools=True)) as client,
    ):
        assert text_of(await asked(client, "25 + 17?")) == "42."
    assert told(server.requests[1])[-1] == Result("a", 42)


def test_a_tool_cannot_be_made_of_something_that_takes_no_dict():
    with pytest.raises(TypeError, match="must take one dict"):
        Tool("now", "Tell the time.", {}, lambda: "noon")


# --- the helpers


async def test_the_helpers_talk_to_a_server_without_a_client():
    reply = OPENAI.calls(adding("a"), adding("b", 1, 2))
    async with serving(reply, OPENAI.text("Hel", "lo")) as server:
        given = options(server, tools=[add])
        aggregator, found = chat.ToolCallAggregator(), list[Any]()
        async with chat.create_client(given) as client:
            for prompt in ("Add.", "Hi."):
                response = await client.chat.completions.create(
                    model=given.model,
                    messages=chat.format_messages(given.system_prompt, prompt),
                    max_tokens=given.max_tokens,
                    temperature=given.temperature,
                    tools=chat.format_tools(given.tools),
                    stream=True,
                )
                found += [aggregator.process_chunk(chunk) async for chunk in response]
                found += aggregator.finalize_tools()
    assert [block for block in found if block is not None] == [
        ToolUseBlock("a", "add", {"a": 25, "b": 17}),
        ToolUseBlock("b", "add", {"a": 1, "b": 2}),
        TextBlock("Hel"),
        TextBlock("lo"),
    ]


def test_the_history_stands_between_the_prompts():
    history = [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}]
    assert chat.format_messages("You help.", "3", history) == [
        {"role": "system", "content": "You help."},
        *history,
        {"role": "user", "content": "3"},
    ]
    assert chat.format_messages("You help.", "", history)[1:] == history


def test_calls_that_cannot_be_made_are_errors_of_the_aggregator():
    aggregator = chat.ToolCallAggregator()
    add, unnamed = (SimpleNamespace(name=name, arguments="{") for name in ("add", None))
    calls = [
        SimpleNamespace(index=0, id="a", function=add),
        SimpleNamespace(index=1, id="b", function=unnamed),
    ]
    delta = SimpleNamespace(content=None, tool_calls=calls)
    choice = SimpleNamespace(index=0, delta=delta, finish_reason=None)
    assert aggregator.process_chunk(SimpleNamespace(choices=[choice])) is None
    first, second = aggregator.finalize_tools()
    assert isinstance(first, ToolUseError)
    assert first.error.startswith("Invalid JSON: Expecting property name")
    assert first.raw_data == "{"
    assert isinstance(second, ToolUseError)
    assert "no name" in second.error
    assert aggregator.finalize_tools() == []


def test_a_client_of_the_sdk_needs_a_server_that_speaks_its_protocol():
    with pytest.raises(ValueError, match="does not speak OpenAI's protocol"):
        chat.create_client(AgentOptions("", "anthropic:claude-opus-4-1"))
