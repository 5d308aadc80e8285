"""Functions that have a person approve what a model asks for, and hooks for some tools."""

import asyncio
import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from mcp_servers import tools
from support import wait
from treefold import (
    AgentFunction,
    AgentOptions,
    Client,
    CodeFunction,
    Ensemble,
    Function,
    HookDecision,
    HookMatcher,
    RunContext,
    Runtime,
    ToolUse,
    agent,
    registries,
    tool,
)
from treefold.errors import InvalidValueError
from treefold.mcp import McpServer
from treefold.runtime.durable.function_version import version_of
from treefold.testing import ScriptedModel
from treefold.toolbox import ApplyDiffPatch, Bash, TextEditor

PATIENCE = 60


def add(ctx: RunContext, n: int) -> str:
    made.append(n)
    return f"added {n}"


made: list[int] = []


@pytest.fixture(autouse=True)
def nothing_made() -> None:
    made.clear()


def caller(function: Function) -> AgentFunction:
    return AgentFunction("caller", "Call.", user_prompt_template="Call it.", uses=[function])


def calls(function: Function, *many: Mapping[str, Any]) -> ScriptedModel:
    """Return a model that asks for these calls, one after the other, and is done."""
    uses = [ToolUse(str(n), function.name, args) for n, args in enumerate(many)]
    return ScriptedModel(*uses, "Done.")


def run(function: Function, *many: Mapping[str, Any], answer: str = "deny", **options: Any) -> Any:
    """Let an agent make the calls; return the questions, each of which gets the same answer."""
    asked: list[str] = []
    with Runtime([caller(function)], models=calls(function, *many), **options) as runtime:
        node = runtime.invoke(runtime.invocable_functions["caller"])

        def settle() -> bool:
            for question in runtime.questions():
                asked.append(question.text)
                runtime.answer(question.id, answer)
            return node.state.final

        wait(settle)
        node.result()
    return asked


# Which calls a person is asked about


async def is_large(args: Mapping[str, Any]) -> bool:
    await asyncio.sleep(0)
    return args["n"] > 1


def says_why(args: Mapping[str, Any]) -> str | None:
    return f"{args['n']} is a lot" if args["n"] > 1 else None


def breaks(args: Any) -> bool:
    args["n"] = 0  # its own copy
    raise ZeroDivisionError("oops")


@pytest.mark.parametrize(
    ("ask", "questions"),
    [
        (False, []),
        (True, ["may add(n=1) be called?", "may add(n=2) be called?"]),
        ("Is it right?", ["Is it right?", "Is it right?"]),
        (lambda args: args["n"] > 1, ["may add(n=2) be called?"]),
        (is_large, ["may add(n=2) be called?"]),
        (says_why, ["2 is a lot"]),
        (breaks, ["ask= of add raised ZeroDivisionError: oops"] * 2),
    ],
)
def test_a_person_is_asked_as_the_function_says(ask: Any, questions: list[str]):
    function = CodeFunction(name="add", desc="Add.", callable=add, ask=ask)
    assert run(function, {"n": 1}, {"n": 2}) == questions
    assert len(made) == 2 - len(questions)


def test_nobody_is_asked_about_a_call_whose_arguments_are_invalid():
    function = CodeFunction(name="add", desc="Add.", callable=add, ask=lambda args: args["n"] > 1)
    assert run(function, {"m": 5}) == []
    assert made == []


def test_a_call_that_code_makes_is_not_asked_about():
    function = CodeFunction(name="add", desc="Add.", callable=add, ask=True)
    with Runtime([function]) as runtime:
        assert runtime.invoke(function, {"n": 3}).result(PATIENCE) == "added 3"


async def allow_all(event: Any) -> HookDecision:
    return HookDecision()


async def ask_too(event: Any) -> HookDecision:
    return HookDecision(ask="The hook asks.")


def test_no_hook_can_allow_what_the_function_asks_about():
    function = CodeFunction(name="add", desc="Add.", callable=add, ask="Really?")
    assert run(function, {"n": 1}, hooks={"pre_tool_use": [allow_all]}) == ["Really?"]
    assert run(function, {"n": 1}, hooks={"pre_tool_use": [ask_too]}) == ["The hook asks.\nReally?"]
    assert made == []


@pytest.mark.parametrize("ask", [1, "", " ", None, ["yes"]])
def test_what_is_no_way_to_ask_is_refused(ask: Any):
    with pytest.raises(ValueError, match="give True, why a person is asked, or a function"):
        CodeFunction(name="add", desc="Add.", callable=add, ask=ask)


def test_asking_is_part_of_the_version_of_a_function():
    plain, asks, why = (
        version_of(CodeFunction(name="add", desc="Add.", callable=add, ask=ask))
        for ask in (False, True, "Really?")
    )
    assert len({plain, asks, why}) == 3
    assert asks.startswith(plain)


# What can ask


def test_everything_that_a_model_can_call_takes_it(tmp_path: Path):
    with registries():

        @tool(ask=True)
        async def signed(n: int) -> int:
            return n

        @tool("named", "By its schema.", {"n": int}, ask=True)
        def named(args: Any) -> int:
            return args["n"]

        @agent(ask=True)
        def prompted() -> str:
            return "Say hello."

    functions = [
        signed, named, prompted, Bash(ask=True), TextEditor(tmp_path, ask=True),
        ApplyDiffPatch(ask=True), Ensemble(prompted, {"a": 1, "b": 1}),
    ]  # fmt: skip
    assert [function.ask for function in functions] == [True] * len(functions)


def test_a_shell_command_waits_for_a_person(tmp_path: Path):
    bash = Bash(cwd=tmp_path, ask=lambda args: "rm" in args.get("command", ""))
    (tmp_path / "kept").touch()
    assert run(bash, {"command": "ls"}, {"command": "rm kept"}) == [
        "may bash(command='rm kept') be called?"
    ]
    assert (tmp_path / "kept").exists()


@pytest.mark.slow
async def test_the_tools_of_an_mcp_server_ask_by_name():
    async with McpServer(tools(), ask={"add": True}) as server:
        assert {one.tool for one in server.functions if one.ask} == {"add"}
    async with McpServer(tools(), ask="Really?") as server:
        assert {one.ask for one in server.functions} == {"Really?"}
    with pytest.raises(ValueError, match="has no tool 'ad'; it has"):
        await McpServer(tools(), ask={"ad": True}).__aenter__()


@pytest.mark.parametrize("automatic", [True, False])
async def test_a_chat_asks_as_well(automatic: bool):  # noqa: FBT001
    function = CodeFunction(name="add", desc="Add.", callable=add, ask=True)
    options = AgentOptions(
        system_prompt="",
        model=calls(function, {"n": 1}),
        tools=[function],
        auto_execute_tools=automatic,
        on_blocked="tell",
    )
    async with asyncio.timeout(PATIENCE), Runtime() as runtime, Client(options) as client:

        async def talk() -> None:
            await client.query("Add.")
            async for _ in client.receive_messages():
                pass

        async with asyncio.TaskGroup() as group:
            group.create_task(talk())
            [question] = await asyncio.to_thread(wait, runtime.questions)
            await asyncio.to_thread(runtime.answer, question.id, "deny")
    assert made == []


# Hooks for some tools


async def forbid(event: Any) -> HookDecision:
    return HookDecision(continue_=False, reason="forbidden")


@pytest.mark.parametrize(
    ("matcher", "applies"),
    [
        (None, True),
        ("", True),
        ("*", True),
        ("add", True),
        ("a.*", True),
        ("sub|add", True),
        ("ad", False),
        ("Add", False),
    ],
)
def test_a_matcher_selects_tools_by_their_whole_names(matcher: str | None, applies: bool):  # noqa: FBT001
    function = CodeFunction(name="add", desc="Add.", callable=add)
    run(function, {"n": 1}, hooks={"PreToolUse": [HookMatcher(matcher, [forbid])]})
    assert (made == []) == applies


def test_a_hook_that_takes_too_long_ends_the_agent():
    async def think(event: Any) -> None:
        await asyncio.Event().wait()

    function = CodeFunction(name="add", desc="Add.", callable=add)
    hooks: Any = {"pre_tool_use": [HookMatcher(None, [think], timeout=0.01)]}
    with pytest.raises(TimeoutError):
        run(function, {"n": 1}, hooks=hooks)
    assert made == []


@pytest.mark.parametrize("timeout", [0, -1, math.nan, math.inf, "5", True, False, [5]])
def test_a_timeout_that_no_hook_could_meet_is_refused(timeout: Any):
    with pytest.raises(InvalidValueError, match="the timeout of a HookMatcher is in seconds, more"):
        HookMatcher(None, [forbid], timeout=timeout)


@pytest.mark.parametrize("timeout", [5, 0.5, Decimal(5), Fraction(1, 2), None])
def test_a_timeout_may_be_any_number_of_seconds(timeout: Any):
    assert HookMatcher(None, [forbid], timeout=timeout).timeout == timeout


def test_wrong_matchers_are_refused():
    with pytest.raises(ValueError, match="not a regular expression for names of tools"):
        HookMatcher("(", [forbid])
    with pytest.raises(ValueError, match="a HookMatcher has a list of functions"):
        HookMatcher("add", forbid)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="a matcher selects tools, and 'stop' is about none"):
        Runtime(hooks={"Stop": [HookMatcher("add", [forbid])]})
