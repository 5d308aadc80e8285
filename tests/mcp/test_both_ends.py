"""treefold's own MCP client and server together."""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult
from pydantic import BaseModel, Field

import warm_python
from mcp_servers import SERVERS, TOKEN, WITH_TOKEN, until
from support import processes_in, settle
from treefold import (
    AgentFunction,
    CancellationException,
    CodeFunction,
    FunctionArg,
    NodeState,
    RunContext,
    Runtime,
    SessionScope,
    ToolUse,
    tool,
)
from treefold.core.errors import DuplicateNameError, InvalidValueError
from treefold.mcp import McpConnectionError, McpServer, McpToolError, serve
from treefold.testing import ScriptedModel


def work() -> list[str]:
    """Return the command that serves our own functions."""
    return warm_python.command("-m", "treefold", "mcp", str(SERVERS / "work.py"))


@asynccontextmanager
async def serving(*functions: Any, **options: Any) -> AsyncGenerator[str, None]:
    """Serve *functions* over HTTP in this loop, and give the address."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        coroutine = serve(functions, http="0", token=TOKEN, on_ready=ready.set_result, **options)
        task = group.create_task(coroutine)
        try:
            yield await ready
        finally:
            task.cancel()


async def test_functions_and_agents_cross_two_processes():
    async with asyncio.timeout(60), McpServer(work(), prefix="far") as server, Runtime() as runtime:
        far = {function.name: function for function in server.functions}
        assert far["far_double"].repeatable
        assert await runtime.invoke(far["far_double"], {"n": 4}) == 8
        assert await runtime.invoke(far["far_chatter"]) == {"said": "enough"}
        assert await runtime.invoke(far["far_planner"], {"goal": "rest"}) == "the answer is 42"
        with pytest.raises(McpToolError, match="^LookupError: the key is under no mat$"):
            await runtime.invoke(far["far_fail"])
        nodes = [runtime.invoke(far["far_many"], {"n": 3}) for _ in range(50)]
        assert [await node for node in nodes] == [[0, 2, 4]] * 50


class Place(BaseModel):
    town: str
    inside: "Place | None" = None
    size: Annotated[int, Field(ge=0, serialization_alias="people")] = 0


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (int, 3, 3),
        (str, "half \ud83d", "half \ufffd"),
        (list[Place], [Place(town="Ulm")], [{"town": "Ulm", "inside": None, "people": 0}]),
        (Place, Place(town="Ulm"), {"town": "Ulm", "inside": None, "people": 0}),
        (Place | None, None, None),
        (dict[str, int], {"result": 1}, {"result": 1}),
        (date, date(2026, 1, 2), "2026-01-02"),
        (Any, {"a": 1}, {"a": 1}),
        (object, "text", "text"),
        (Runtime, 1, "1"),  # no schema describes it
    ],
    ids=str,
)
async def test_results_arrive_as_the_values_that_they_are(kind: Any, value: Any, expected: Any):
    async def give(ctx: RunContext) -> Any:
        return value

    give.__annotations__["return"] = kind
    served = serving(CodeFunction(callable=give))
    async with served as url, McpServer(url, headers=WITH_TOKEN) as server:
        assert await server.call("give") == expected


async def test_a_stream_of_values_arrives_as_their_list():
    @tool
    async def count(to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number

    async with serving(count) as url, McpServer(url, headers=WITH_TOKEN) as server:
        assert await server.call("count", {"to": 3}) == [0, 1, 2]


async def test_a_result_that_does_not_fit_its_annotation_is_a_failed_call():
    @tool
    async def lie() -> int:
        return "many"  # pyright: ignore[reportReturnType]

    @tool
    async def sink() -> Place:
        return Place.model_construct(town="Ulm", size=-1)

    async with serving(lie, sink) as url, McpServer(url, headers=WITH_TOKEN) as server:
        with pytest.raises(McpToolError, match="lie returned a value that does not fit its return"):
            await server.call("lie")
        with pytest.raises(McpToolError, match="does not fit.*-1"):
            await server.call("sink")


async def test_cancelling_here_ends_the_programs_there(tmp_path: Path):
    async with asyncio.timeout(60), McpServer(work()) as server, Runtime() as runtime:
        (nap,) = [function for function in server.functions if function.name == "nap"]
        node = runtime.invoke(nap, {"folder": str(tmp_path)})
        await until(tmp_path, "sleep 300")
        node.cancel("enough")
        with pytest.raises(CancellationException, match="enough"):
            await node
        while processes_in(tmp_path):  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.02)
        assert (tmp_path / "ended").exists()


async def test_leaving_here_ends_the_programs_there(tmp_path: Path):
    async with asyncio.timeout(60), Runtime() as runtime:
        async with McpServer(work()) as server:
            (nap,) = [function for function in server.functions if function.name == "nap"]
            node = runtime.invoke(nap, {"folder": str(tmp_path)})
            await until(tmp_path, "sleep 300")
        assert processes_in(tmp_path) == []
        with pytest.raises(Exception, match="is disconnected"):
            await node


async def test_a_served_agent_is_a_tree_of_the_runtime_that_runs_it():
    @tool
    async def double(n: int) -> int:
        return 2 * n

    helper = AgentFunction(
        "helper",
        "Helps.",
        args=[FunctionArg("n", int)],
        user_prompt_template="Double {n}",
        uses=[double],
        default_model=ScriptedModel(ToolUse("1", "double", {"n": 5}), "it is ten"),
    )
    async with Runtime([helper]) as runtime, serving(helper, runtime=runtime) as address:
        async with McpServer(address, headers=WITH_TOKEN) as server:
            (far,) = server.functions
            model = ScriptedModel(ToolUse("1", far.name, {"n": 5}), "the helper says so")
            boss = AgentFunction(
                "boss", "Asks.", user_prompt_template="Go.", uses=[far], default_model=model
            )
            async with Runtime([boss]) as ours:
                assert await ours.invoke(boss) == "the helper says so"
                assert [n.function.name for n in ours.get_subtree(1)] == ["boss", "helper"]
        (root,) = runtime.list_toplevel()
        nodes = [(node.path, node.function.name) for node in runtime.get_subtree(root.id)]
        assert nodes == [("1", "helper"), ("1.1", "double")]
        assert root.outputs == "it is ten"


async def test_the_runtime_that_runs_the_calls_may_live_elsewhere():
    def add(ctx: RunContext, a: int, b: int) -> int:
        return a + b

    function = CodeFunction(callable=add)
    with Runtime([function]) as runtime:
        async with (
            serving(function, runtime=runtime) as address,
            McpServer(address, headers=WITH_TOKEN) as server,
        ):
            assert await server.call("add", {"a": 1, "b": 2}) == 3
        assert [node.outputs for node in runtime.list_toplevel()] == [3]


async def test_a_client_that_gives_up_cancels_the_tree_and_only_that():
    began = asyncio.Event()
    ended: list[str] = []

    @tool
    async def wait() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("wait")

    @tool(uses=[wait])
    async def job(ctx: RunContext) -> None:
        await ctx.invoke(wait)

    async with (
        Runtime([job]) as runtime,
        serving(job, runtime=runtime) as address,
        McpServer(address, headers=WITH_TOKEN) as server,
        asyncio.TaskGroup() as group,
    ):
        call = group.create_task(server.call("job"))
        other = group.create_task(server.call("job"))
        await began.wait()
        while len(runtime.list_toplevel()) < 2:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)
        first, second = runtime.list_toplevel()
        call.cancel()
        while not (first.state.final or second.state.final):  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)
        await settle()
        gone, left = (first, second) if first.state.final else (second, first)
        assert (gone.state, left.state) == (NodeState.Canceled, NodeState.Running)
        assert "the client cancelled the call" in str(gone.exception)
        assert ended == ["wait"]
        other.cancel()


async def test_ending_the_serving_ends_the_calls_at_both_ends():
    began, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def call(server: McpServer) -> None:
        with pytest.raises(McpConnectionError, match="MCP server http://127.0.0.1:"):
            await server.call("wait")

    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        serving = group.create_task(serve([wait], http="0", token=TOKEN, on_ready=ready.set_result))
        async with McpServer(await ready, headers=WITH_TOKEN) as server:
            calling = group.create_task(call(server))
            await began.wait()
            serving.cancel()
            await ended.wait()
            await calling


async def test_serving_forgets_each_tree_when_its_call_was_answered():
    closed: list[str] = []

    class Notes:
        async def aclose(self) -> None:
            closed.append("notes")

    @tool
    async def note(ctx: RunContext) -> str:
        ctx.get_or_put(SessionScope.Self, "test", "notes", Notes)
        return "noted"

    async with serving(note) as address, McpServer(address, headers=WITH_TOKEN) as server:
        assert await server.call("note") == "noted"
        assert closed == ["notes"]


async def test_values_of_every_kind_cross():
    @tool
    async def give(what: str) -> Any:
        class Odd:
            def __str__(self) -> str:
                return "odd"

        return {
            "object": {"a": [1, None]},
            "list": [1, 2.5],
            "nothing": None,
            "truth": True,
            "half": "\ud800 and \x00",
            "inf": {"x": float("inf")},
            "odd": Odd(),
        }[what]

    async with serving(give) as address, McpServer(address, headers=WITH_TOKEN) as server:
        got = {
            what: await server.call("give", {"what": what})
            for what in ("object", "list", "nothing", "truth", "half", "inf", "odd")
        }
        assert got == {
            "object": {"a": [1, None]},
            "list": "[1, 2.5]",
            "nothing": "[it returned nothing]",
            "truth": "true",
            "half": "\ufffd and \x00",
            "inf": "{'x': inf}",
            "odd": "odd",
        }


async def test_what_cannot_be_served_is_refused():
    def one(ctx: RunContext) -> None: ...

    first, second = CodeFunction(callable=one), CodeFunction(callable=one)
    with pytest.raises(DuplicateNameError, match="two functions are called 'one'"):
        await serve([first, second])
    with pytest.raises(InvalidValueError, match="there is nothing to serve"):
        await serve([])
    with pytest.raises(InvalidValueError, match="other machines could reach 0.0.0.0"):
        await serve([first], http="0.0.0.0:0")


async def ask_colour(ctx: RunContext) -> str:
    return f"it is {await ctx.ask('Which colour?')}"


async def test_an_answer_of_a_client_is_kept_though_another_program_has_the_journal_locked(
    tmp_path: Path,
):
    path = tmp_path / "run.db"
    asking = CodeFunction(callable=ask_colour, name="ask", repeatable=True)
    other = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    freeing = threading.Timer(1.0, other.execute, ["ROLLBACK"])

    async def elicited(context: Any, params: Any) -> ElicitResult:
        other.execute("BEGIN IMMEDIATE")
        freeing.start()
        return ElicitResult(action="accept", content={"answer": "blue"})

    async with (
        Runtime([asking], store=path) as runtime,
        serving(asking, runtime=runtime) as address,
        httpx2.AsyncClient(headers=WITH_TOKEN, timeout=60, trust_env=False) as http,
        Client(
            streamable_http_client(address, http_client=http),
            mode="legacy",
            elicitation_callback=elicited,
        ) as client,
    ):
        result: Any = await client.call_tool("ask", {})
    freeing.join()
    other.close()
    assert (result.is_error, result.content[0].text) == (False, "it is blue")


class Trip(BaseModel):
    city: str
    nights: int = 2


async def book(ctx: RunContext) -> str:
    trip = await ctx.ask(Trip, "Which trip?")
    return f"{trip.nights} in {trip.city}, {await ctx.ask(list[int], 'Which days?')}"


async def test_a_client_shows_the_form_of_a_question_and_asks_again_if_it_is_filled_in_wrongly():
    shown: list[Any] = []
    answers: list[dict[str, Any]] = [
        {"city": "Rome", "nights": "many"},
        {"city": "Rome", "nights": 3},
        {"answer": "[1, 2]"},
    ]

    async def elicited(context: Any, params: Any) -> ElicitResult:
        shown.append(params.requested_schema)
        return ElicitResult(action="accept", content=answers.pop(0))

    async with (
        serving(CodeFunction(callable=book)) as address,
        httpx2.AsyncClient(headers=WITH_TOKEN, timeout=60, trust_env=False) as http,
        Client(
            streamable_http_client(address, http_client=http),
            mode="legacy",
            elicitation_callback=elicited,
        ) as client,
    ):
        result: Any = await client.call_tool("book", {})
    assert result.content[0].text == "3 in Rome, [1, 2]"
    assert list(shown[0]["properties"]) == ["city", "nights"]
    assert shown[0]["required"] == ["city"]
    assert "a list as JSON" in shown[2]["properties"]["answer"]["description"]


async def test_a_question_that_is_put_to_the_client_is_not_warned_of(
    caplog: pytest.LogCaptureFixture,
):
    asking = CodeFunction(callable=ask_colour, name="ask")

    async def elicited(context: Any, params: Any) -> ElicitResult:
        # A person takes longer than the moment after which a program is warned.
        async with asyncio.timeout(60):
            while "Which colour?" not in caplog.text:  # noqa: ASYNC110 - nobody tells us
                await asyncio.sleep(0.01)
        return ElicitResult(action="accept", content={"answer": "blue"})

    with caplog.at_level(logging.INFO, "treefold"):
        async with (
            serving(asking) as address,
            httpx2.AsyncClient(headers=WITH_TOKEN, timeout=60, trust_env=False) as http,
            Client(
                streamable_http_client(address, http_client=http),
                mode="legacy",
                elicitation_callback=elicited,
            ) as client,
        ):
            result: Any = await client.call_tool("ask", {})
    assert result.content[0].text == "it is blue"
    ours = [one for one in caplog.records if one.name.startswith("treefold")]
    assert not [one.getMessage() for one in ours if one.levelno >= logging.WARNING]
