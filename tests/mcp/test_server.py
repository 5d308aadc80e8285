"""Functions from a real server, made with the official SDK, over stdio and over HTTP."""

import asyncio
import gc
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from mcp_servers import SECRET, http_server, open_files, tools, until
from support import processes_in, settle
from treefold import (
    AgentFunction,
    CancellationException,
    NodeState,
    RunContext,
    Runtime,
    ToolResult,
    ToolUse,
    Turn,
    tool,
)
from treefold.core.errors import CallTimeoutError, InvalidArgumentsError, InvalidValueError
from treefold.http_server.serving import listen, serve_on, url_of
from treefold.mcp import McpConnectionError, McpFunction, McpServer, McpToolError
from treefold.testing import ScriptedModel


@pytest.fixture(scope="module")
def address() -> Generator[str, None, None]:
    with http_server(*tools(), "--http") as (url, _):
        yield url


@pytest.fixture(params=["stdio", "http"])
def target(request: pytest.FixtureRequest, address: str) -> str | list[str]:
    return address if request.param == "http" else tools()


@asynccontextmanager
async def connected(
    target: str | list[str], **options: Any
) -> AsyncGenerator[tuple[dict[str, McpFunction], McpServer], None]:
    async with asyncio.timeout(60), McpServer(target, **options) as server:
        yield {function.name: function for function in server.functions}, server


async def noted(functions: dict[str, McpFunction], runtime: Runtime, words: str) -> None:
    async with asyncio.timeout(60):
        while words not in await runtime.invoke(functions["noted"]):  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.02)


async def test_functions_are_as_the_server_describes_them(target: str | list[str]):
    async with connected(target) as (functions, server):
        add = functions["add"]
        assert add.description == "Add two numbers."
        assert add.input_schema == {
            "type": "object",
            "title": "addArguments",
            "properties": {
                "a": {"title": "A", "type": "integer"},
                "b": {"title": "B", "type": "integer", "default": 1},
            },
            "required": ["a"],
        }
        told = {name: (f.repeatable, f.tags) for name, f in functions.items()}
        assert told["add"] == (True, {"mcp", "read_only"})
        assert told["shout"] == (True, {"mcp"})
        assert told["fail"] == (False, {"mcp", "destructive"})
        assert functions["dotted_name_with_spaces"].tool == "dotted.name with spaces"
        async with Runtime(server.functions) as runtime:
            assert runtime.invocable_functions["add"] is add
            assert await runtime.invoke(functions["dotted_name_with_spaces"]) == "dotted"


async def test_results_are_data_or_text_and_never_base64(target: str | list[str]):
    async with connected(target) as (functions, _), Runtime() as runtime:
        assert await runtime.invoke(functions["add"], {"a": 1, "b": 2}) == 3
        assert await runtime.invoke(functions["shout"], {"text": "hé"}) == "HÉ"
        assert await runtime.invoke(functions["blocks"]) == (
            "first\n"
            "[image: image/png, 2.5 KB, not shown]\n"
            "[audio: audio/wav, 2.5 KB, not shown]\n"
            "[resource report: file:///report.pdf, application/pdf, 1.5 MB]\n"
            "[resource file:///a.txt: text/plain]\ninside\n"
            "[resource file:///b.bin: application/octet-stream, 2.5 KB, not shown]\n"
            "last"
        )
        assert await runtime.invoke(functions["controls"]) == "\x1b[31mred\x00\x07\u202e\r\n"
        long = await runtime.invoke(functions["long_text"], {"characters": 10_000_000})
        assert long.startswith("aaa")
        assert "[... 9,900,000 characters left out ...]" in long
        assert len(long) < 100_100


async def test_all_of_a_long_result_is_there_if_wanted(target: str | list[str]):
    async with connected(target, max_chars=None) as (functions, _), Runtime() as runtime:
        long = await runtime.invoke(functions["long_text"], {"characters": 10_000_000})
        assert len(long) == 10_000_000


async def test_errors_are_what_the_server_says(target: str | list[str]):
    async with connected(target) as (functions, server), Runtime() as runtime:
        with pytest.raises(McpToolError, match="^Error executing tool fail: the moon is wrong$"):
            await runtime.invoke(functions["fail"], {"reason": "the moon is wrong"})
        with pytest.raises(InvalidArgumentsError, match="unknown argument 'c'; it takes a, b"):
            await runtime.invoke(functions["add"], {"a": 1, "c": 2})
        with pytest.raises(
            InvalidArgumentsError, match="argument 'a': Input should be a valid int"
        ):
            await runtime.invoke(functions["add"], {"a": "one"})
        with pytest.raises(McpToolError, match="nothing"):
            await server.call("nothing")


async def test_fifty_calls_at_once(target: str | list[str]):
    async with connected(target) as (functions, _), Runtime() as runtime:
        nodes = [runtime.invoke(functions["add"], {"a": n, "b": n}) for n in range(50)]
        assert [await node for node in nodes] == [2 * n for n in range(50)]


async def test_a_cancelled_call_is_cancelled_at_the_server_and_nothing_else_is(
    target: str | list[str], request: pytest.FixtureRequest
):
    name = request.node.name
    async with connected(target) as (functions, _), Runtime() as runtime:
        node = runtime.invoke(functions["wait"], {"mark": name})
        other = runtime.invoke(functions["wait"], {"mark": f"other {name}"})
        await noted(functions, runtime, f"{name} began")
        node.cancel("no longer needed")
        with pytest.raises(CancellationException, match="no longer needed"):
            await node
        await noted(functions, runtime, f"{name} was cancelled")
        assert other.state is NodeState.Running
        assert await runtime.invoke(functions["add"], {"a": 1}) == 2
        other.cancel()


async def test_a_call_that_takes_too_long_is_given_up(
    target: str | list[str], request: pytest.FixtureRequest
):
    name = request.node.name
    async with connected(target, timeout=0.5) as (functions, _), Runtime() as runtime:
        with pytest.raises(CallTimeoutError, match="wait of MCP server .* longer than 0.5 s"):
            await runtime.invoke(functions["wait"], {"mark": name})
        await noted(functions, runtime, f"{name} was cancelled")


async def test_a_runtime_in_the_background_may_call(target: str | list[str]):
    async with connected(target) as (functions, server):

        def elsewhere() -> tuple[Any, NodeState]:
            with Runtime(server.functions) as runtime:
                waiting = runtime.invoke(functions["wait"], {"mark": "elsewhere"})
                nodes = [runtime.invoke(functions["add"], {"a": n}) for n in range(20)]
                values = [node.result(60) for node in nodes]
                waiting.cancel()
                with pytest.raises(CancellationException):
                    waiting.result(60)
                return values, waiting.state

        assert await asyncio.to_thread(elsewhere) == (list(range(1, 21)), NodeState.Canceled)


async def test_which_functions_there_are_and_what_they_are_called(target: str | list[str]):
    options = {"prefix": "their", "only": ["add", "shout", "learn"], "without": ["shout"]}
    async with connected(target, tags=["far"], **options) as (functions, _):
        assert list(functions) == ["their_add", "their_learn"]
        assert functions["their_add"].tags == {"mcp", "far", "read_only"}
        async with Runtime() as runtime:
            assert await runtime.invoke(functions["their_add"], {"a": 1}) == 2
    with pytest.raises(InvalidValueError, match="has no tool 'ad'; it has add, shout, "):
        async with connected(target, only=["ad"]):
            pass


async def test_refreshing_finds_new_tools(target: str | list[str]):
    async with connected(target) as (functions, server), Runtime() as runtime:
        assert "learned" not in functions or isinstance(target, str)  # that server lives on
        await runtime.invoke(functions["learn"])
        (learned,) = [f for f in await server.refresh() if f.name == "learned"]
        assert learned in server.functions
        assert await runtime.invoke(learned) == "new"
        assert await runtime.invoke(functions["add"], {"a": 1}) == 2


async def test_a_program_gets_its_variables_and_its_folder_and_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("OURS", "PGPASSWORD", "TREEFOLD_STORE"):
        monkeypatch.setenv(name, "private")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    async with (
        connected(tools(), env={"KEY": SECRET}, cwd=tmp_path) as (functions, _),
        Runtime() as runtime,
    ):
        environment = functions["environment"]
        assert await runtime.invoke(environment, {"name": "KEY"}) == SECRET
        for name in ("OURS", "PGPASSWORD", "TREEFOLD_STORE"):
            assert await runtime.invoke(environment, {"name": name}) == "(not set)"
        assert await runtime.invoke(environment, {"name": "TZ"}) == "Europe/Berlin"
        assert await runtime.invoke(environment, {"name": "PATH"}) != "(not set)"
        assert await runtime.invoke(functions["folder"]) == str(tmp_path)
        await runtime.invoke(functions["start_others"], {"folder": str(tmp_path)})
        await until(tmp_path, "sleep 300")
    assert processes_in(tmp_path) == []


async def test_headers_are_sent_with_every_request(address: str):
    headers = {"X-Key": SECRET}
    async with connected(address, headers=headers) as (functions, _), Runtime() as runtime:
        assert await runtime.invoke(functions["header"], {"name": "x-key"}) == SECRET


async def test_what_a_tool_prints_does_no_harm():
    async with connected(tools()) as (functions, _), Runtime() as runtime:
        assert await runtime.invoke(functions["print_loudly"]) == "printed"


async def test_agents_turns_and_code_use_them_like_any_function(target: str | list[str]):
    async with connected(target) as (functions, _):
        add, fail = functions["add"], functions["fail"]
        model = ScriptedModel(
            [ToolUse("1", "add", {"a": 2, "b": 3}), ToolUse("2", "fail", {"reason": "no"})],
            [ToolUse("3", "add", {"a": 2, "c": 3})],
            "done",
        )
        agent = AgentFunction(
            "adder", "Adds.", user_prompt_template="Add.", uses=[add, fail], default_model=model
        )

        @tool(uses=[agent, add])
        async def work(ctx: RunContext) -> tuple[Any, Any]:
            return await ctx.invoke(agent), await ctx.invoke(add, {"a": 1})

        async with Runtime([work]) as runtime:
            node = runtime.invoke(work)
            assert await node == ("done", 2)
            names = [one.function.name for one in runtime.get_subtree(node.id)]
            assert names == ["work", "adder", "add", "fail", "add", "add"]
        results = [part for part in model.requests[-1].transcript if isinstance(part, ToolResult)]
        assert results == [
            ToolResult("1", "5"),
            ToolResult("2", "McpToolError: Error executing tool fail: no", is_error=True),
            ToolResult(
                "3",
                "InvalidArgumentsError: add: unknown argument 'c'; it takes a, b",
                is_error=True,
            ),
        ]
        assert await Turn(add, kwargs={"a": 4}).returning() == 5


async def test_a_program_that_dies_in_a_call_says_its_last_words():
    async with connected(tools()) as (functions, _), Runtime() as runtime:
        with pytest.raises(McpConnectionError) as caught:
            await runtime.invoke(functions["die"], {"words": "farewell"})
        assert "tools.py' is disconnected; its process ended (exit code 3); its stderr" in str(
            caught.value
        )
        assert str(caught.value).endswith("farewell")


async def test_an_http_server_that_goes_away_fails_its_calls():
    with http_server(*tools(), "--http") as (url, process):
        async with connected(url) as (functions, _), Runtime() as runtime:
            waiting = runtime.invoke(functions["wait"], {"mark": "here"})
            await noted(functions, runtime, "here began")
            process.kill()
            with pytest.raises(McpConnectionError, match=f"MCP server {url} is disconnected"):
                await waiting
            with pytest.raises(McpConnectionError, match="is disconnected"):
                await runtime.invoke(functions["add"], {"a": 1})


async def test_an_http_server_that_is_not_there_or_refuses_is_named():
    with http_server(sys.executable, "-c", _REFUSING) as (url, process):
        headers = {"Authorization": f"Bearer {SECRET}"}
        with pytest.raises(McpConnectionError) as caught:
            async with connected(f"{url}?key={SECRET}", headers=headers):
                pass
        assert f"MCP server {url} refused the connection: " in str(caught.value)
        assert "HTTP 401 Unauthorized" in str(caught.value)
        assert SECRET not in str(caught.value)
        process.kill()
        process.wait()
        with pytest.raises(McpConnectionError, match=f"{url} cannot be reached: ConnectError"):
            async with connected(url):
                pass


async def test_a_server_of_the_old_transport_gets_a_hint():
    ready = asyncio.Event()
    with listen("127.0.0.1", 0) as listening:
        url = url_of(listening, "127.0.0.1")
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            app = MCPServer("old").sse_app()
            task = group.create_task(serve_on(listening, app, ready.set))
            await ready.wait()
            with pytest.raises(McpConnectionError) as caught:
                async with McpServer(f"{url}/sse"):
                    pass
            with pytest.raises(McpConnectionError) as other:
                async with McpServer(f"{url}/elsewhere"):
                    pass
            task.cancel()
    assert "HTTP+SSE transport of 2024-11-05" in str(caught.value)
    assert "often /mcp instead of /sse" in str(caught.value)
    assert "HTTP 405" in str(caught.value)
    assert "HTTP+SSE" not in str(other.value)


async def test_an_http_server_that_never_answers_is_given_up():
    with http_server(sys.executable, "-c", _SILENT) as (url, _):
        server = McpServer(url, start_timeout=0.5)
        with pytest.raises(McpConnectionError, match=f"{url} did not respond within 0.5 s"):
            await server.__aenter__()


_REFUSING = """
import http.server
class Refusing(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(401)
        self.send_header("content-length", "0")
        self.end_headers()
    def log_message(self, *args):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Refusing)
print(server.server_port, flush=True)
server.serve_forever()
"""

_SILENT = """
import socket, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
time.sleep(300)
"""


async def test_twenty_connections_over_http_leave_no_socket_or_task(address: str):
    async def connect() -> None:
        async with connected(address) as (_, server):
            assert await server.call("shout", {"text": "hello"}) == "HELLO"

    await connect()
    gc.collect()
    files, tasks = open_files(), len(asyncio.all_tasks())
    for _ in range(20):
        await connect()
    gc.collect()
    assert open_files() == files
    assert len(asyncio.all_tasks()) == tasks


async def test_leaving_while_calls_run_ends_them(target: str | list[str]):
    async with Runtime() as runtime:
        async with connected(target) as (functions, _):
            nodes = [runtime.invoke(functions["wait"], {"mark": "left"}) for _ in range(5)]
            await settle()
        for node in nodes:
            with pytest.raises(McpConnectionError, match="is disconnected"):
                await node


def test_without_the_package_it_says_what_to_install():
    script = (
        "import asyncio, sys\n"
        "sys.modules['mcp'] = None\n"
        "from treefold import CodeFunction\n"
        "from treefold.core.errors import UsageError\n"
        "from treefold.mcp import McpServer, serve\n"
        "function = CodeFunction(callable=lambda ctx: 1, name='one')\n"
        "for attempt in (lambda: McpServer(['x']).__aenter__(), lambda: serve([function])):\n"
        "    try:\n"
        "        asyncio.run(attempt())\n"
        "    except UsageError as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    line = "MCP needs a package that is not installed (mcp): pip install 'treefold[mcp]'\n"
    assert (done.stdout, done.stderr) == (2 * line, "")


def test_importing_it_loads_neither_the_package_nor_pydantic():
    script = "import sys, treefold.mcp; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert {"mcp", "mcp_types", "anyio", "pydantic", "httpx2", "asyncio"}.isdisjoint(
        done.stdout.split()
    )
