"""Servers that crash, hang or send garbage: clear errors, soon, and no process is left."""

import asyncio
import gc
import json
import logging
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest

from mcp_servers import SECRET, bare, open_files, until
from support import processes_in, settle
from treefold import CancellationException, Runtime
from treefold.core.errors import CallTimeoutError, InvalidValueError
from treefold.mcp import McpConnectionError, McpServer, McpToolError


async def failure_of(server: McpServer) -> str:
    with pytest.raises(McpConnectionError) as caught:
        async with asyncio.timeout(60), server:
            pytest.fail("it should not have opened")
    return str(caught.value)


@pytest.mark.parametrize(
    ("manner", "words"),
    [
        (
            "exit",
            [
                "closed the connection during the handshake",
                "(exit code 7)",
                "cannot read config: key ***",
            ],
        ),
        ("garbage", ["100 lines that are not MCP messages", "'Listening on port 8080...'"]),
        ("endless line", ["a line of more than 1,048,576 bytes", "'0000"]),
        ("refuse", ["refused the connection: no entry: ***"]),
        ("silent", ["did not respond within 1 s"]),
        ("endless", ["lists more than 1,000 pages of tools"]),
        ("wrong", ["cannot list its tools", "inputSchema.required"]),
    ],
)
async def test_a_server_that_cannot_be_used_is_said_to_be_so(
    manner: str, words: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    patience = 1 if manner == "silent" else 20
    server = McpServer(bare(manner), cwd=tmp_path, env={"KEY": SECRET}, start_timeout=patience)
    told = await failure_of(server)
    assert all(word in told for word in (*words, "bare.py")), told
    assert SECRET not in told + caplog.text
    assert processes_in(tmp_path) == []


async def test_a_program_that_is_not_there_is_named():
    assert "'no-such-program --port 1' cannot be started" in await failure_of(
        McpServer(["no-such-program", "--port", "1"])
    )
    assert "cannot be started" in await failure_of(McpServer(bare(), cwd="/no/such/folder"))


async def test_a_banner_and_junk_between_messages_do_no_harm():
    async with asyncio.timeout(60), McpServer(bare("banner")) as server:
        assert await server.call("junk", {"text": "fine"}) == "fine"
        assert await server.call("echo", {"text": "still"}) == "still"


async def test_calls_under_way_fail_when_the_server_dies(tmp_path: Path):
    server = McpServer(bare(), cwd=tmp_path, env={"KEY": SECRET})
    async with asyncio.timeout(60), server, Runtime() as runtime:
        functions = {function.name: function for function in server.functions}
        hanging = [runtime.invoke(functions["hang"]) for _ in range(5)]
        await settle()
        last = runtime.invoke(functions["die"], {"text": f"\x1b[31mout of memory {SECRET}"})
        for node in (*hanging, last):
            with pytest.raises(McpConnectionError) as caught:
                await node
            told = str(caught.value)
            assert "is disconnected; its process ended (killed by SIGKILL)" in told
            assert told.endswith("its stderr ends with:\nout of memory ***")
        with pytest.raises(McpConnectionError, match="is disconnected"):
            await runtime.invoke(functions["echo"])
        with pytest.raises(McpConnectionError, match="is disconnected"):
            await server.refresh()
    assert processes_in(tmp_path) == []


async def test_who_calls_from_another_thread_is_told_the_same():
    async with asyncio.timeout(60), McpServer(bare()) as server:
        hang, die = server.functions[1], server.functions[2]

        def elsewhere() -> None:
            with Runtime() as runtime:
                hanging = runtime.invoke(hang)
                dying = runtime.invoke(die, {"text": "farewell"})
                for node in (hanging, dying):
                    with pytest.raises(McpConnectionError, match="SIGKILL.*ends with:\nfarewell"):
                        node.result(60)

        await asyncio.to_thread(elsewhere)


async def test_a_server_that_closes_its_output_is_gone(tmp_path: Path):
    async with asyncio.timeout(60), McpServer(bare(), cwd=tmp_path) as server:
        with pytest.raises(McpConnectionError, match="it closed its stdout"):
            await server.call("close")
    assert processes_in(tmp_path) == []


async def test_its_children_go_with_it_even_if_it_went_first(tmp_path: Path):
    async with asyncio.timeout(60), McpServer(bare(), cwd=tmp_path) as server:
        await server.call("start")
        await until(tmp_path, "sleep 300", count=2)
        with pytest.raises(McpConnectionError, match="killed by SIGKILL"):
            await server.call("die")
    assert processes_in(tmp_path) == []


async def test_a_server_that_does_not_want_to_end_is_killed(tmp_path: Path):
    async with asyncio.timeout(60), McpServer(bare("stubborn"), cwd=tmp_path) as server:
        await server.call("start")
    assert processes_in(tmp_path) == []


async def test_a_server_that_stops_listening_costs_no_more_than_the_timeout(tmp_path: Path):
    server = McpServer(bare("deaf"), cwd=tmp_path, timeout=0.5)
    async with asyncio.timeout(60):
        async with server, Runtime() as runtime:
            begun = time.monotonic()
            with pytest.raises(CallTimeoutError, match="echo of MCP server .* longer than 0.5 s"):
                await runtime.invoke(server.functions[0], {"text": "x" * 1_000_000})
            node = runtime.invoke(server.functions[0], {"text": "x" * 1_000_000})
            await settle()
            node.cancel("enough")
            with pytest.raises(CancellationException, match="enough"):
                await node
            assert time.monotonic() - begun < 30
    assert processes_in(tmp_path) == []


async def test_every_page_of_tools_is_read():
    async with asyncio.timeout(60), McpServer(bare("pages"), prefix="p") as server:
        assert [function.name for function in server.functions] == [
            f"p_page{page}" for page in range(5)
        ]


async def test_a_server_without_tools_has_no_functions():
    async with asyncio.timeout(60), McpServer(bare("no tools")) as server:
        assert server.functions == []


async def test_hostile_tools_are_made_harmless_and_can_be_called():
    async with asyncio.timeout(60), McpServer(bare("hostile")) as server, Runtime() as runtime:
        functions = server.functions
        names = [function.name for function in functions]
        assert len(set(names)) == len(names) == 9
        assert all(len(name) <= 64 and name.isascii() for name in names)
        assert names[3:6] == ["______etc_passwd", "__2", "_"]
        told = functions[0].description
        assert told.startswith("red\nalertxxx")
        assert len(told) < 11_000
        for function in functions:
            args = {"x": 1} if function.name == "_" else {}
            assert await runtime.invoke(function, args) == ""
        assert await runtime.invoke(functions[7], {"anything": 1}) == ""


async def test_leaving_while_calls_run_ends_them_with_a_sentence(tmp_path: Path):
    async with asyncio.timeout(60), Runtime() as runtime:
        async with McpServer(bare(), cwd=tmp_path) as server:
            hang, echo = server.functions[1], server.functions[0]
            nodes = [runtime.invoke(hang) for _ in range(10)]
            await settle()
        for node in nodes:
            with pytest.raises(McpConnectionError, match="is disconnected"):
                await node
        with pytest.raises(McpConnectionError, match="is not connected; use its functions inside"):
            await runtime.invoke(echo)
    assert processes_in(tmp_path) == []


async def test_cancellation_inside_the_block_leaves_it_cleanly(tmp_path: Path):
    opened = asyncio.Event()

    async def use() -> None:
        async with McpServer(bare(), cwd=tmp_path) as server:
            opened.set()
            await server.call("hang")

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(use())
        await opened.wait()
        await settle()
        task.cancel()
    assert task.cancelled()
    assert processes_in(tmp_path) == []


async def test_cancelling_the_start_leaves_nothing(tmp_path: Path):
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(McpServer(bare("silent"), cwd=tmp_path).__aenter__())
        await until(tmp_path, "bare.py")
        task.cancel()
    assert processes_in(tmp_path) == []


def test_a_loop_that_ends_around_it_leaves_no_process(tmp_path: Path):
    async def forget() -> None:
        await McpServer(bare(), cwd=tmp_path).__aenter__()

    asyncio.run(forget())
    assert processes_in(tmp_path) == []


async def test_twenty_connections_leave_no_process_file_or_task(tmp_path: Path):
    async def connect() -> None:
        async with McpServer(bare(), cwd=tmp_path) as server:
            assert await server.call("echo", {"text": "hello"}) == "hello"

    async with asyncio.timeout(60):
        await connect()  # which loads what is loaded once
        gc.collect()
        files, tasks = open_files(), len(asyncio.all_tasks())
        for _ in range(20):
            await connect()
    gc.collect()
    assert processes_in(tmp_path) == []
    assert open_files() == files
    assert len(asyncio.all_tasks()) == tasks


async def test_one_server_may_be_connected_again_but_not_twice(tmp_path: Path):
    server = McpServer(bare())
    async with asyncio.timeout(60):
        async with server:
            echo = server.functions[0]
            with pytest.raises(Exception, match="is open already"):
                await server.__aenter__()
        async with server, Runtime() as runtime:
            assert await runtime.invoke(echo, {"text": "again"}) == "again"


def test_what_cannot_be_right_is_refused_at_once():
    for make, words in [
        (lambda: McpServer("python server.py"), r"as a list: McpServer\(\['python', 'server.py'\]"),
        (lambda: McpServer([]), "a command must be a list of strings"),
        (lambda: McpServer("http://localhost/mcp", env={}), "env and cwd are for commands"),
        (lambda: McpServer(["x"], headers={}), "headers are for URLs"),
        (
            lambda: McpServer("http://x", headers={"a": f"{SECRET}\n"}),
            r"headers\['a'\] has a control",
        ),
        (lambda: McpServer(["x"], only="echo"), "only must be a list of names"),
        (lambda: McpServer(["x"], max_chars=0), "max_chars must be at least 1, or None, got 0"),
    ]:
        with pytest.raises(InvalidValueError, match=words) as caught:
            make()
        assert SECRET not in str(caught.value)


def test_secrets_are_not_shown():
    url = f"https://me:{SECRET}@localhost/mcp?key={SECRET}"
    shown = [
        repr(McpServer(["serve", SECRET], env={"KEY": SECRET})),
        repr(McpServer(url, headers={"Authorization": f"Bearer {SECRET}"})),
    ]
    assert shown == ["<McpServer 'serve ***'>", "<McpServer https://localhost/mcp>"]


def test_nothing_of_it_is_logged(caplog: pytest.LogCaptureFixture):
    async def main() -> None:
        async with McpServer(bare(), env={"KEY": SECRET}) as server:
            await server.call("junk", {"text": "x"})

    with caplog.at_level(logging.DEBUG):
        asyncio.run(main())
    assert SECRET not in caplog.text


def test_an_output_schema_cannot_keep_the_program_busy(tmp_path: Path):
    program = """
        import asyncio, json, sys
        from treefold import Runtime
        from treefold.mcp import McpServer

        async def main():
            async with McpServer(json.loads(sys.argv[1])) as server, Runtime() as runtime:
                functions = {function.name: function for function in server.functions}
                calls = ("pattern", "aaa"), ("pattern", "a" * 60 + "!"), ("references", "x")
                for name, words in calls:
                    node = runtime.invoke(functions[name], {"text": words})
                    try:
                        print(name, await node)
                    except Exception as error:
                        print(name, error)

        asyncio.run(main())
    """
    # A program that hangs there cannot be stopped but by killing it.
    command = [sys.executable, "-c", dedent(program), json.dumps(bare("slow"))]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=True, cwd=tmp_path
    )
    fits, unfit, unchecked = done.stdout.splitlines()
    assert fits == "pattern {'text': 'aaa'}"
    assert "it does not fit the output schema of the tool: 'aaaa" in unfit
    assert unchecked == "references {'text': 'x'}"


async def test_a_result_that_could_not_be_checked_has_a_notice():
    async with asyncio.timeout(60), McpServer(bare("slow")) as server, Runtime() as runtime:
        [function] = [one for one in server.functions if one.name == "references"]
        node = runtime.invoke(function, {"text": "x"})
        assert await node == {"text": "x"}
        notices = runtime.get_view(node.id).notices
    assert notices == (
        "the result was not checked against the output schema of the tool: that takes longer than"
        " 0.25 s",
    )


async def test_a_result_that_does_not_fit_the_output_schema_is_refused():
    async with asyncio.timeout(60), McpServer(bare("slow")) as server, Runtime() as runtime:
        [function] = [one for one in server.functions if one.name == "number"]
        with pytest.raises(McpToolError, match="'x' is not of type 'number'"):
            await runtime.invoke(function, {"text": "x"})
