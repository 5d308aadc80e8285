"""Functions, what they declare to use, and how they are called."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from agent_scripts import ended, run, run_agent, told
from treefold import (
    Agent,
    AgentFunction,
    AgentNode,
    CallGraphError,
    CancellationException,
    CodeFunction,
    CodeNode,
    Ensemble,
    Function,
    FunctionArg,
    Node,
    NodeState,
    Provider,
    RunContext,
    Runtime,
    ThinkMore,
    ThinkMoreDecorator,
    ToolUse,
    TreefoldError,
    Turn,
    agent,
    tool,
)
from treefold.core.errors import UsageError
from treefold.testing import HANGS, ScriptedModel
from treefold.toolbox import bash, human_in_loop, raise_exception, text_editor


def greeter(**options: Any) -> AgentFunction:
    """Return an agent that greets somebody."""
    return AgentFunction(
        name="greet",
        desc="Greet somebody.",
        args=[FunctionArg("who", str, "Whom to greet")],
        user_prompt_template="Greet {who}.",
        **options,
    )


def nothing(ctx: RunContext) -> str:
    return "nothing"


# --- what is a function


def test_code_and_agents_are_both_merely_kinds_of_function():
    @tool
    async def look() -> str:
        """Look around."""
        return ""

    @agent
    def think() -> str:
        """Think."""
        return "Think."

    greet = greeter()
    found: list[Function] = [
        CodeFunction(callable=nothing),
        look,
        greet,
        think,
        Ensemble(greet, {Provider.Anthropic: 2}),
        ThinkMore(greet),
        bash,
        text_editor,
        human_in_loop,
        raise_exception,
    ]
    for function in found:
        assert isinstance(function, Function)
        assert isinstance(function.name, str)
        assert isinstance(function.description, str)
        assert isinstance(function.uses, Sequence)
        assert function.input_schema["type"] == "object"
        assert function.repeatable in {True, False, None}
        assert function.output_type is not None


def test_an_ensemble_and_thinking_more_are_built_in_code_functions():
    greet = greeter()
    assert isinstance(Ensemble(greet, {Provider.Anthropic: 1}), CodeFunction)
    assert isinstance(ThinkMore(greet), CodeFunction)


def test_a_function_says_what_it_is_and_that_cannot_be_changed():
    leaf = CodeFunction(callable=nothing)
    greet = greeter(uses=[leaf], tags=["polite"], repeatable=True)
    assert greet.name == "greet"
    assert greet.description == "Greet somebody."
    assert list(greet.uses) == [leaf]
    assert set(greet.tags) == {"polite"}
    assert greet.repeatable is True
    for field in ("name", "description", "uses", "input_schema"):
        with pytest.raises(AttributeError):
            setattr(greet, field, None)


def test_the_name_and_the_description_of_an_agent_may_come_first():
    greet = AgentFunction("greet", "Greet somebody.", user_prompt_template="Hello.")
    assert (greet.name, greet.description) == ("greet", "Greet somebody.")


def test_what_an_agent_gives_is_text_or_what_it_says_it_returns():
    assert greeter().output_type is str
    assert greeter(returns=int).output_type is int


# --- defining them


async def test_a_concrete_subtype_overrides_the_property_uses():
    leaf = CodeFunction(callable=nothing)

    class Caller(CodeFunction):
        @property
        def uses(self) -> Sequence[Function]:
            return [leaf]

    async def call(ctx: RunContext) -> Any:
        return await ctx.invoke(leaf)

    caller = Caller(name="caller", desc="", callable=call)
    async with Runtime([caller]) as runtime, asyncio.timeout(60):
        assert set(runtime.invocable_functions) == {"caller", "nothing"}
        assert await runtime.invoke(caller) == "nothing"


async def test_a_user_defines_an_agent_as_a_subtype_with_attributes():
    leaf = CodeFunction(callable=nothing)

    class FindBug(AgentFunction):
        """Find the cause of an error."""

        args = [FunctionArg("error", str, "Stack trace")]  # noqa: RUF012 - as users write it  # pyright: ignore
        system_prompt = "You investigate bugs."  # pyright: ignore
        user_prompt_template = "Error: {error}"  # pyright: ignore
        uses = [leaf]  # noqa: RUF012  # pyright: ignore

    find_bug = FindBug()
    assert find_bug.name == "find_bug"
    assert find_bug.description == "Find the cause of an error."
    assert find_bug.input_schema["required"] == ["error"]
    model = ScriptedModel([ToolUse("a", "nothing")], "A typo.")
    node = await run_agent(find_bug, {"error": "boom"}, models=model)
    assert node.outputs == "A typo."
    assert model.requests[0].system == "You investigate bugs."
    assert model.requests[0].functions == ("nothing",)
    assert [type(child) for child in node.get_children()] == [CodeNode]


async def test_a_user_defines_an_agent_as_a_subtype_with_properties():
    class Shouter(AgentFunction):
        @property
        def name(self) -> str:
            return "shout"

        @property
        def description(self) -> str:
            return "Say it loud."

        @property
        def args(self) -> list[FunctionArg]:
            return [FunctionArg("text", str)]

        @property
        def system_prompt(self) -> str:
            return "You shout."

        @property
        def user_prompt_template(self) -> str:
            return "Shout: {text}"

    shout = Shouter()
    model = ScriptedModel("HELLO")
    node = await run_agent(shout, {"text": "hello"}, models=model)
    assert (shout.name, shout.description, node.outputs) == ("shout", "Say it loud.", "HELLO")
    assert model.requests[0].system == "You shout."


@pytest.mark.parametrize("kind", ["code", "agent"])
def test_a_spec_gives_names_types_and_descriptions_without_the_run_context(kind: str):
    args = [
        FunctionArg("path", str, "Where"),
        FunctionArg("count", int, "How many"),
        FunctionArg("ratio", float, "How much"),
        FunctionArg("deep", bool, "Whether to go down", optional=True),
        FunctionArg("mode", str, "How", enum=["r", "w"]),
    ]

    def work(
        ctx: RunContext, path: str, count: int, ratio: float, mode: str, *, deep: bool = False
    ) -> None: ...

    if kind == "code":
        function: Function = CodeFunction(name="work", desc="Work.", callable=work, args=args)
    else:
        function = AgentFunction("work", "Work.", args=args, user_prompt_template="{path}")
    schema = function.input_schema
    assert list(schema["properties"]) == ["path", "count", "ratio", "deep", "mode"]
    assert schema["properties"]["path"]["type"] == "string"
    assert schema["properties"]["count"]["type"] == "integer"
    assert schema["properties"]["ratio"]["type"] == "number"
    assert "boolean" in repr(schema["properties"]["deep"])
    assert schema["properties"]["mode"]["enum"] == ["r", "w"]
    assert schema["properties"]["path"]["description"] == "Where"
    assert sorted(schema["required"]) == ["count", "mode", "path", "ratio"]


@pytest.mark.parametrize("argtype", [list, dict, bytes, list[str], object])
def test_only_basic_primitive_types_are_allowed_in_a_spec(argtype: Any):
    with pytest.raises(TypeError):
        FunctionArg("thing", argtype)


# --- who may call whom


async def test_an_agent_is_invoked_by_code_by_a_tool_by_an_agent_and_at_top_level():
    greet = greeter()

    @tool(uses=[greet])
    async def by_tool(ctx: RunContext) -> Any:
        return await ctx.invoke(greet, {"who": "tool"})

    def by_code(ctx: RunContext) -> Any:
        return ctx.invoke(greet, {"who": "code"}).result(60)

    code = CodeFunction(callable=by_code, uses=[greet])
    boss = AgentFunction("boss", "Delegate.", user_prompt_template="Do it.", uses=[greet])
    models = {"default": ScriptedModel(lambda request: f"re: {request.transcript[-1]}")}
    async with Runtime([code, by_tool, boss], models=models) as runtime, asyncio.timeout(60):
        top = runtime.invoke(greet, {"who": "top"})
        assert "Greet top." in await top
        assert "Greet code." in await runtime.invoke(code)
        assert "Greet tool." in await runtime.invoke(by_tool)
        script = ScriptedModel([ToolUse("a", "greet", {"who": "agent"})], "done")
        node = runtime.invoke(boss, model=script)
        assert await node == "done"
        [child] = node.get_children()
        assert isinstance(child, AgentNode)
        assert child.function is greet
        assert child.inputs == {"who": "agent"}


async def test_a_code_function_is_invoked_by_code_and_by_an_agent():
    def add(ctx: RunContext, a: int, b: int) -> int:
        return a + b

    adder = CodeFunction(callable=add)

    async def twice(ctx: RunContext) -> int:
        one = await ctx.invoke(adder, {"a": 1, "b": 1})
        return await ctx.invoke(adder, {"a": one, "b": one})

    doubler = CodeFunction(callable=twice, uses=[adder])
    boss = AgentFunction("boss", "", user_prompt_template="Add.", uses=[adder])
    assert (await run(doubler)).outputs == 4
    model = ScriptedModel([ToolUse("a", "add", {"a": 2, "b": 3})], "five")
    assert (await run(boss, models=model)).outputs == "five"
    assert [result.content for result in told(model.requests[1])] == ["5"]


async def test_plain_code_as_the_top_level_request_coordinates_sub_agents():
    greet = greeter()

    async def party(ctx: RunContext, guests: str) -> str:
        nodes = [ctx.invoke(greet, {"who": guest}) for guest in guests.split(",")]
        return " ".join([await node for node in nodes])

    top = CodeFunction(callable=party, uses=[greet])
    model = ScriptedModel(lambda request: request.transcript[-1].text.removeprefix("Greet "))  # pyright: ignore
    node = await run(top, {"guests": "Ann,Bob"}, models=model)
    assert node.outputs == "Ann. Bob."
    assert [type(child) for child in node.get_children()] == [AgentNode, AgentNode]


async def test_the_first_argument_of_a_callable_is_its_run_context():
    def look(ctx: RunContext, *, deep: bool) -> tuple[Node, Any]:
        return ctx.node, ctx.runtime

    async with Runtime([CodeFunction(callable=look)]) as runtime, asyncio.timeout(60):
        node = runtime.invoke(runtime.invocable_functions["look"], {"deep": True})
        seen_node, seen_runtime = await node
        assert seen_node is node
        assert seen_runtime is runtime


async def test_a_callable_that_is_called_directly_is_not_seen_and_need_not_be_declared():
    def inner(ctx: RunContext, n: int) -> str:
        return f"{n} in {ctx.node.function.name}"

    function = CodeFunction(callable=inner)

    def outer(ctx: RunContext) -> str:
        return function.callable(ctx, 7)

    node = await run(CodeFunction(callable=outer))
    assert node.outputs == "7 in outer"
    assert node.get_children() == []


async def test_the_callable_of_an_ensemble_may_be_called_with_the_same_context():
    greet = greeter()
    several = Ensemble(greet, {"one": 1, "two": 1})

    async def party(ctx: RunContext) -> Any:
        return await several.callable(ctx, who="Ann")

    models = {name: ScriptedModel(name, "Hi and hello") for name in ("one", "two")}
    node = await run(CodeFunction(callable=party, uses=[greet]), models=models)
    assert node.outputs == "Hi and hello"
    assert several not in [child.function for child in _flat(node)]


@pytest.mark.parametrize("kind", [Ensemble, ThinkMoreDecorator])
async def test_the_callable_of_an_ensemble_may_be_called_from_plain_sync_code(kind: Any):
    greet = greeter()
    several = Ensemble(greet, {"one": 1, "two": 1}) if kind is Ensemble else kind(greet)

    def party(ctx: RunContext) -> tuple[Any, Any]:
        return several.callable(ctx, who="Ann"), several.callable(ctx, "Bob")

    scripted = {name: ScriptedModel(name, "Hi", name, "Hi") for name in ("one", "two")}
    models = scripted if kind is Ensemble else scripted["one"]
    node = await run(CodeFunction(callable=party, uses=[greet]), models=models)
    assert node.outputs == ("Hi", "Hi")
    assert several not in [child.function for child in _flat(node)]
    assert len(_flat(node)) == (6 if kind is Ensemble else 4)


def test_the_callable_of_an_ensemble_may_be_called_with_the_context_of_a_runtime():
    greet = greeter()
    several = Ensemble(greet, {"one": 1, "two": 1})
    models = {name: ScriptedModel(name, "Hi") for name in ("one", "two")}
    with Runtime([several], models=models) as runtime:
        assert several.callable(runtime.get_ctx(), who="Ann") == "Hi"
        with pytest.raises(TypeError, match="takes who, each once"):
            several.callable(runtime.get_ctx(), "Ann", who="Bob")


async def test_a_cancelled_call_takes_along_an_ensemble_that_sync_code_waits_for():
    greet = greeter()
    several = Ensemble(greet, {"one": 2})
    ended: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    def party(ctx: RunContext) -> None:
        try:
            several.callable(ctx, who="Ann")
        except BaseException as error:
            ended.get_loop().call_soon_threadsafe(ended.set_result, error)
            raise

    async with asyncio.timeout(20), Runtime(models={"one": ScriptedModel(HANGS, HANGS)}) as runtime:
        node = runtime.invoke(CodeFunction(callable=party, uses=[greet]))
        while not node.get_children():  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.001)
        node.cancel("enough")
        with pytest.raises(CancellationException):
            await node
        assert isinstance(await ended, Exception)


def _flat(node: Node) -> list[Node]:
    found: list[Node] = []
    for child in node.get_children():
        found += child if isinstance(child, list) else [child]
    return found


# --- what is used is declared


async def test_code_may_not_invoke_code_that_it_does_not_declare():
    ran: list[str] = []

    def secret(ctx: RunContext) -> None:
        ran.append("secret")

    hidden = CodeFunction(callable=secret)

    async def sneak(ctx: RunContext) -> None:
        await ctx.invoke(hidden)

    sneaky = CodeFunction(callable=sneak)
    async with Runtime([sneaky, hidden]) as runtime, asyncio.timeout(60):
        with pytest.raises(CallGraphError, match="secret"):
            await runtime.invoke(sneaky)
        await runtime.invoke(hidden)  # the same call is fine at top level
    assert ran == ["secret"]


async def test_code_may_not_invoke_an_agent_that_it_does_not_declare():
    greet, model = greeter(), ScriptedModel("Hi")

    async def sneak(ctx: RunContext) -> None:
        await ctx.invoke(greet, {"who": "Ann"})

    sneaky = CodeFunction(callable=sneak)
    async with Runtime([sneaky, greet], models=model) as runtime, asyncio.timeout(60):
        with pytest.raises(CallGraphError, match="greet: add it to the 'uses' of sneak$"):
            await runtime.invoke(sneaky)
    assert model.requests == []


async def test_a_tool_is_held_to_its_uses_like_any_code():
    leaf = CodeFunction(callable=nothing)

    @tool
    async def sneaky(ctx: RunContext) -> None:
        await ctx.invoke(leaf)

    @tool(uses=[leaf])
    async def honest(ctx: RunContext) -> Any:
        return await ctx.invoke(leaf)

    assert isinstance((await run(sneaky)).exception, CallGraphError)
    assert (await run(honest)).outputs == "nothing"


async def test_a_refusal_can_be_caught_and_the_caller_goes_on():
    leaf = CodeFunction(callable=nothing)

    async def careful(ctx: RunContext) -> str:
        try:
            return await ctx.invoke(leaf)
        except CallGraphError:
            return "then not"

    assert (await run(CodeFunction(callable=careful))).outputs == "then not"


async def test_what_is_declared_is_that_very_function_and_no_namesake():
    declared = CodeFunction(name="leaf", desc="", callable=nothing)
    namesake = CodeFunction(name="leaf", desc="", callable=nothing)

    async def call(ctx: RunContext) -> Any:
        return await ctx.invoke(namesake)

    node = await run(CodeFunction(callable=call, uses=[declared]))
    assert isinstance(node.exception, CallGraphError)


async def test_a_call_graph_error_is_a_value_error_of_the_program():
    leaf = CodeFunction(callable=nothing)

    async def call(ctx: RunContext) -> None:
        await ctx.invoke(leaf)

    error = (await run(CodeFunction(callable=call))).exception
    assert isinstance(error, CallGraphError)
    assert isinstance(error, ValueError)
    assert isinstance(error, TreefoldError)


async def test_a_model_is_offered_what_its_agent_uses_and_can_call_nothing_else():
    ran: list[str] = []

    @tool
    async def allowed() -> str:
        ran.append("allowed")
        return "yes"

    @tool
    async def hidden() -> str:
        ran.append("hidden")
        return "no"

    boss = AgentFunction("boss", "", user_prompt_template="Go.", uses=[allowed])
    model = ScriptedModel([ToolUse("a", "hidden"), ToolUse("b", "allowed")], "done")
    async with Runtime([boss, hidden], models=model) as runtime, asyncio.timeout(60):
        assert await runtime.invoke(boss) == "done"
    assert model.requests[0].functions == ("allowed",)
    refused, answered = told(model.requests[1])
    assert refused.is_error
    assert "hidden" in refused.content
    assert (answered.content, answered.is_error) == ("yes", False)
    assert ran == ["allowed"]


async def test_turns_that_a_tool_starts_are_not_checked():
    @tool
    async def leaf() -> str:
        return "leaf"

    @tool
    async def starter() -> Any:
        return await Turn(leaf).returning()

    assert (await run(starter)).outputs == "leaf"


# --- recursion


def countdown(**options: Any) -> CodeFunction:
    async def count(ctx: RunContext, n: int) -> int:
        if n == 0:
            return 0
        return 1 + await ctx.invoke(ctx.node.function, {"n": n - 1})

    return CodeFunction(callable=count, **options)


async def test_a_function_may_not_call_itself_unless_it_says_so():
    node = await run(countdown(), {"n": 1})
    assert isinstance(node.exception, CallGraphError)


async def test_a_function_that_says_so_calls_itself_without_listing_itself():
    node = await run(countdown(uses_recursion=True), {"n": 5})
    assert node.outputs == 5


async def test_recursion_is_bounded_by_the_greatest_depth():
    fine = await run(countdown(uses_recursion=True, max_depth=3), {"n": 2})
    assert fine.outputs == 2  # three calls, one in the other
    deep = await run(countdown(uses_recursion=True, max_depth=3), {"n": 3})
    assert isinstance(deep.exception, RecursionError)
    assert isinstance(deep.exception, TreefoldError)
    assert "count" in str(deep.exception)


async def test_recursion_is_at_most_ten_deep_if_nothing_is_said():
    endless = await run(countdown(uses_recursion=True), {"n": 1000})
    assert isinstance(endless.exception, RecursionError)
    depth, below = 0, [endless]
    while below:
        depth, below = depth + 1, _flat(below[0])
    assert depth <= 11


async def test_an_agent_that_may_call_itself_is_offered_itself():
    solve = AgentFunction(
        "solve",
        "Solve it, or a part of it.",
        args=[FunctionArg("part", str)],
        user_prompt_template="Solve {part}.",
        uses_recursion=True,
    )
    model = ScriptedModel([ToolUse("a", "solve", {"part": "half"})], "half done", "all done")
    node = await run_agent(solve, {"part": "all"}, models=model)
    assert node.outputs == "all done"
    assert model.requests[0].functions == ("solve",)
    assert [result.content for result in told(model.requests[2])] == ["half done"]


async def test_an_agent_that_goes_too_deep_is_told_and_comes_back_up():
    solve = AgentFunction(
        "solve", "Solve it.", user_prompt_template="Go.", uses_recursion=True, max_depth=2
    )

    def deeper(request: Any) -> Any:
        results = told(request)
        return f"up: {results[-1].content}" if results else [ToolUse("a", "solve")]

    node = await run_agent(solve, models=ScriptedModel(deeper))
    assert node.state is NodeState.Success
    assert node.outputs.startswith("up: up: RecursionDepthError")


# --- calling


async def test_an_agent_can_be_called_like_a_function_in_the_current_runtime():
    greet = greeter()
    async with Runtime([greet], models=ScriptedModel("Hi Ann")) as runtime, asyncio.timeout(60):
        node = greet(who="Ann")
        assert await node == "Hi Ann"
        assert isinstance(node, AgentNode)
        assert runtime.list_toplevel() == [node]


async def test_an_agent_can_be_called_like_a_function_without_a_runtime():
    greet = greeter(default_model=ScriptedModel("Hi Ann"))
    async with asyncio.timeout(60):
        assert await greet(who="Ann") == "Hi Ann"


def test_an_agent_that_is_called_where_no_loop_runs_says_how_to_call_it():
    with pytest.raises(UsageError, match=r"runtime.invoke\(...\).result\(\)"):
        greeter()(who="Ann")


async def test_a_wrong_argument_is_a_value_error_that_names_it():
    greet, model = greeter(), ScriptedModel("Hi")
    async with Runtime([greet], models=model) as runtime:
        for args, name in [({"who": 3}, "who"), ({}, "who"), ({"who": "x", "whom": "y"}, "whom")]:
            node = await ended(runtime.invoke(greet, args))
            assert node.state is NodeState.Error
            assert isinstance(node.exception, ValueError)
            assert name in str(node.exception)
    assert model.requests == []


async def test_a_turn_can_run_an_agent():
    greet = greeter()
    async with Runtime([greet], models=ScriptedModel("Hi Ann")) as runtime, asyncio.timeout(60):
        assert await Turn(greet, kwargs={"who": "Ann"}).returning() == "Hi Ann"
        [node] = runtime.list_toplevel()
        assert isinstance(node, AgentNode)


async def test_an_agent_with_a_queue_runs_agents_with_prompts_too():
    greet = greeter()
    async with Runtime([greet], models=ScriptedModel("Hi Ann")), asyncio.timeout(60):
        queue = Agent("queue", "Runs turns", [greet])
        await queue.put(Turn(greet, kwargs={"who": "Ann"}))
        assert [value async for _, value in queue.run()] == ["Hi Ann"]


async def test_code_is_told_a_wrong_argument_of_the_agent_it_calls():
    greet = greeter()

    async def call(ctx: RunContext) -> str:
        with pytest.raises(ValueError, match="who"):
            await ctx.invoke(greet, {"wo": "Ann"})
        return await ctx.invoke(greet, {"who": "Ann"})

    node = await run(CodeFunction(callable=call, uses=[greet]), models=ScriptedModel("Hi"))
    assert node.outputs == "Hi"
