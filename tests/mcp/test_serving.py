"""``treefold mcp``, with clients of the official SDK and from the command line."""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

import warm_python
from mcp_servers import SERVERS, TOKEN, WITH_TOKEN
from support import heed_interrupts, processes_in, wait
from treefold import attach
from treefold.mcp import McpServer

ROOT = Path(__file__).parent.parent.parent
WORK = str(SERVERS / "work.py")
COMMAND = ["-W", "error", "-m", "treefold", "mcp"]
ENVIRONMENT = os.environ | {"TREEFOLD_MCP_TOKEN": TOKEN}
CLIENT = ["-W", "error", str(SERVERS / "client.py")]


@contextmanager
def served_http(*args: str) -> Generator[str, None, None]:
    """Serve over HTTP with a token of ours, and give the address."""
    command = warm_python.command(*COMMAND, *args, "--http", "0")
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if "serving" in line:
                    yield line.rpartition("(")[2].strip().removesuffix(")")
                    break
        finally:  # or it would be waited for without end
            process.terminate()
        rest = process.stderr.read()
        assert (process.wait(60), "Traceback" in rest) == (143, False)


@dataclass(frozen=True)
class Meeting:
    """A client and a server that met: how, and what came of it."""

    mode: str
    transport: str
    able: str
    told: dict[str, Any]
    errors: str  # what both wrote to stderr


@pytest.fixture(
    scope="module",
    params=[
        ("legacy", "stdio", "able"),
        ("legacy", "stdio", "unable"),
        ("legacy", "http", "able"),
        ("auto", "stdio", "able"),
        ("auto", "http", "able"),
    ],
    ids=" ".join,
)
def meeting(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Meeting, None, None]:
    """Have a client call everything there is, in a process of its own."""
    mode, transport, able = request.param
    folder = tmp_path_factory.mktemp("nap")
    with served_http(WORK) if transport == "http" else nullcontext(WORK) as target:
        done = subprocess.run(
            warm_python.command(*CLIENT, mode, able, str(folder), target),
            cwd=ROOT,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == 0, done.stderr
        end = time.monotonic() + 60  # a server over HTTP goes on, and ends its shells by itself
        while processes_in(folder) and time.monotonic() < end:
            time.sleep(0.01)
        assert processes_in(folder) == []
        yield Meeting(mode, transport, able, json.loads(done.stdout), done.stderr)


def test_a_client_is_told_what_functions_and_agents_there_are(meeting: Meeting):
    told = meeting.told
    assert told["server"] == "treefold"
    assert told["version"] == ("2025-11-25" if meeting.mode == "legacy" else "2026-07-28")
    assert told["repeatable"] == ["double"]
    assert list(told["tools"]) == [
        "ask_colour", "chatter", "double", "fail", "leave", "many", "nap", "planner", "remember",
    ]  # fmt: skip
    assert told["tools"]["double"] == [
        "Double a number.",
        {
            "type": "object",
            "properties": {"n": {"type": "integer", "description": "the number."}},
            "required": ["n"],
            "additionalProperties": False,
        },
    ]


def wrapped(schema: object) -> dict[str, object]:
    shape = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
    return {**shape, "x-fastmcp-wrap-result": True}


def test_a_client_is_told_what_functions_and_agents_return(meeting: Meeting):
    outputs = meeting.told["outputs"]
    assert outputs["double"] == wrapped({"type": "integer"})
    assert outputs["many"] == wrapped({"type": "array", "items": {"type": "integer"}})
    assert outputs["planner"] == wrapped({"type": "string"})
    assert outputs["chatter"]["type"] == "object"
    assert "properties" not in outputs["chatter"]
    assert outputs["remember"] is None


def test_a_call_gives_its_value_or_says_what_went_wrong(meeting: Meeting):
    assert meeting.told["calls"] == {
        'double {"n": 4}': ["8", {"result": 8}, False],
        'double {"n": "four"}': [
            "InvalidArgumentsError: double: argument 'n': Input should be a valid integer, unable"
            " to parse string as an integer (got 'four')",
            None,
            True,
        ],
        'double {"m": 4}': [
            "InvalidArgumentsError: double: missing argument 'n'; unknown argument 'm'; it takes n",
            None,
            True,
        ],
        "chatter {}": ['{"said": "enough"}', {"said": "enough"}, False],
        "fail {}": ["LookupError: the key is under no mat", None, True],
        "leave {}": ["SystemExit: 3", None, True],
        "remember {}": ["[it returned nothing]", None, False],
        'many {"n": 3}': ["[0, 2, 4]", {"result": [0, 2, 4]}, False],
        'planner {"goal": "the end"}': [
            "the answer is 42",
            {"result": "the answer is 42"},
            False,
        ],
    }
    assert meeting.told["dubble"] == (
        "there is no tool 'dubble'; did you mean 'double'? tools: ask_colour, chatter, double,"
        " fail, leave, many, nap, planner, remember"
    )


def test_what_functions_print_goes_to_stderr(meeting: Meeting):
    if meeting.transport == "stdio":
        lines = meeting.errors.splitlines()
        assert {
            "this module says hello",
            "and so does a program",
            "chatter, chatter",
            "programs chatter, too",
        } <= set(lines)
    assert "Traceback" not in meeting.errors


def test_cancelling_a_call_ends_all_below_it_and_nothing_else(meeting: Meeting):
    assert meeting.told["afterwards"] == [
        "2",
        {"result": 2},
        False,
    ]  # the fixture looks for what is left


def test_a_client_that_wants_to_know_is_told_how_many_calls_are_done(meeting: Meeting):
    assert meeting.told["many"] == ["[0, 2, 4, 6, 8]", {"result": [0, 2, 4, 6, 8]}, False]
    done = [count for count, _ in meeting.told["progress"]]
    assert done == sorted(set(done))
    assert 1 <= len(done) <= 5
    assert meeting.told["progress"][0][1] == f"{done[0]:g} calls done"


def test_a_question_is_put_to_the_client_or_the_call_fails(meeting: Meeting):
    form = {
        "type": "object",
        "properties": {"answer": {"type": "string", "enum": ["red", "blue"]}},
        "required": ["answer"],
    }
    if (meeting.mode, meeting.able) == ("legacy", "able"):
        (first, shown), (second, _) = meeting.told["asked"]
        assert (first, shown) == ("Which colour?", form)
        assert second.startswith("Which colour?\n('green' does not answer the question")
        told = ["it is blue", {"result": "it is blue"}, False]
        assert meeting.told["colour"] == told
    else:
        text, _, is_error = meeting.told["colour"]
        why = "this client does not support elicitation"
        if meeting.able == "able":
            why = f"treefold cannot ask clients of protocol {meeting.told['version']} yet"
        assert f"was cancelled: it asks a person 'Which colour?', and {why}" in text
        assert "treefold answer" in text
        assert is_error


@contextmanager
def napping(folder: Path, *command: str) -> Generator[subprocess.Popen[str], None, None]:
    """Serve, have a call under way, and let the test end it."""
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    nap = {"name": "nap", "arguments": {"folder": str(folder)}}
    messages = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": nap},
    ]
    with subprocess.Popen(
        warm_python.command(*COMMAND, WORK, *command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        for message in messages:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            process.stdin.flush()
        try:
            assert any("serving" in line for line in process.stderr)
            deadline = time.monotonic() + 60
            while not processes_in(folder):
                assert process.poll() is None
                assert time.monotonic() < deadline
            yield process
        finally:
            process.kill()


async def test_with_a_journal_calls_can_be_looked_at_and_questions_answered_elsewhere(
    tmp_path: Path,
):
    store = str(tmp_path / "run.db")
    with served_http(WORK, "--store", store) as address:
        async with McpServer(address, headers=WITH_TOKEN) as server, asyncio.TaskGroup() as group:
            assert await server.call("double", {"n": 2}) == 4
            # This client cannot be asked.
            call = group.create_task(server.call("ask_colour", {}))
            with attach(store) as observer:
                [question] = await asyncio.to_thread(wait, observer.questions)
                observer.answer(question.id, "red")
            assert await call == "it is red"
    with attach(store) as observer:
        assert [(row.function, row.state.name) for row in observer.trees()] == [
            ("double", "Success"),
            ("ask_colour", "Success"),
        ]


@pytest.mark.parametrize(
    ("how", "code"), [("end of input", 0), (signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_ending_the_server_ends_running_calls(how: str | signal.Signals, code: int, tmp_path: Path):
    with napping(tmp_path) as process:
        if isinstance(how, str):
            assert process.stdin is not None
            process.stdin.close()
        else:
            process.send_signal(how)
        assert process.wait(60) == code
        assert process.stdout is not None
        assert process.stderr is not None
        answers = [json.loads(line) for line in process.stdout]
        assert [answer["id"] for answer in answers] in ([1], [1, 2])
        assert "Traceback" not in process.stderr.read()
    assert (tmp_path / "ended").exists()
    assert processes_in(tmp_path) == []


def treefold(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return warm_python.run(*COMMAND, *args, cwd=ROOT, **options)


def test_without_a_client_it_ends_and_has_said_nothing_on_stdout():
    done = treefold("examples/survey.py")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "treefold mcp: serving measure, note, name_longest, survey (stdio)\n"


def test_what_a_module_imports_is_served_only_if_it_is_named(tmp_path: Path):
    module = tmp_path / "mine.py"
    module.write_text(
        "from treefold import tool\n"
        "from treefold.toolbox import bash as shell\n"
        "@tool\n"
        "async def mine() -> None: ...\n"
        "@tool\n"
        "async def _private() -> None: ...\n"
        "again = mine\n"
    )
    assert "serving mine (stdio)" in treefold(str(module)).stderr
    assert "serving bash, mine (stdio)" in treefold(f"{module}:shell", str(module)).stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nowhere.py"], "there is no file nowhere.py"),
        (["examples/survey.py:nothing"], "it has measure, note, name_longest, survey"),
        (["tests/support.py:settle"], "needs a Function, which <function settle"),
        (["json"], "json has no public functions of its own"),
        (
            ["examples/survey.py", "--http", "here"],
            "address must be PORT or HOST:PORT, such as 8000, got 'here'",
        ),
        (["examples/survey.py", "--http", "99999"], "such as 8000, got '99999'"),
        (["examples/survey.py", "--http", "0.0.0.0:0"], "other machines could reach 0.0.0.0"),
        (["examples/survey.py", "--http", "example.org:80"], "--allow-remote"),
    ],
)
def test_what_cannot_be_served_is_exit_code_2_and_says_why(args: list[str], words: str):
    done = treefold(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_an_address_that_is_taken_is_said_to_be():
    with served_http("examples/survey.py") as address:
        port = address.rpartition(":")[2].removesuffix("/mcp")
        done = treefold("examples/survey.py", "--http", port)
        assert done.returncode == 2
        assert f"cannot listen on 127.0.0.1:{port}: " in done.stderr


def initialize(address: str, headers: dict[str, str]) -> httpx.Response:
    """Send the first request of a client."""
    version = {"protocolVersion": "2025-11-25", "capabilities": {}}
    params = version | {"clientInfo": {"name": "test", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    accept = {"Accept": "application/json, text/event-stream"}
    return httpx.post(address, json=message, headers=accept | headers, timeout=30, trust_env=False)


def test_a_token_is_printed_once_and_every_request_over_http_needs_it():
    args = ["examples/survey.py:measure", "--http", "0.0.0.0:0", "--allow-remote"]
    command = warm_python.command(*COMMAND, *args)
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            address = process.stderr.readline().rpartition("(")[2].strip().removesuffix(")")
            words, _, token = process.stderr.readline().rstrip().rpartition(" ")
            assert "Nothing is encrypted" in process.stderr.readline()
            assert words.endswith("clients send the header Authorization: Bearer")
            assert len(token) >= 43  # 256 bits
            here = address.replace("0.0.0.0", "127.0.0.1")
            right = {"Authorization": f"Bearer {token}"}
            assert initialize(here, right).status_code == 200
            for wrong in {}, {"Authorization": f"Bearer {token}x"}, {"Authorization": token}:
                refused = initialize(here, wrong)
                assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
                assert "send the header 'Authorization: Bearer TOKEN'" in refused.json()["error"]
            assert httpx.get(here.removesuffix("/mcp"), trust_env=False).status_code == 401
            for header in {"Origin": "https://evil.example"}, {"Host": "evil.example"}:
                assert initialize(here, right | header).status_code == 403
        finally:
            process.terminate()
        assert token not in process.stderr.read()
        assert process.wait(60) == 143


def test_the_token_of_the_environment_is_used_and_not_printed_nor_inherited(tmp_path: Path):
    module = tmp_path / "tools.py"
    module.write_text(
        "import os\n"
        "from treefold import tool\n"
        "@tool\n"
        "async def variable() -> str:\n"
        "    return os.environ.get('TREEFOLD_MCP_TOKEN', 'none')\n"
    )
    with served_http(str(module)) as address:
        called = asyncio.run(_call(address, "variable"))
    assert called == "none"
    short = treefold(str(module), "--http", "0", env=os.environ | {"TREEFOLD_MCP_TOKEN": "hunter2"})
    assert (short.returncode, "hunter2" in short.stderr) == (2, False)
    assert "TREEFOLD_MCP_TOKEN must have at least 16 characters, got 7" in short.stderr


async def _call(address: str, name: str) -> Any:
    async with asyncio.timeout(60), McpServer(address, headers=WITH_TOKEN) as server:
        return await server.call(name)


def test_the_help_has_an_example_that_works_and_the_exit_codes():
    shown = warm_python.run(*COMMAND, "--help").stdout
    (example,) = [line for line in shown.splitlines() if line.startswith("example: treefold mcp ")]
    assert "exit codes: 0 the client has disconnected, 2 nothing was served, 130" in shown
    words = example.removeprefix("example: treefold mcp ").split()
    assert words[-2:] == ["--http", "8000"]
    with served_http(*words[:-2]) as address:
        assert address.startswith("http://127.0.0.1:")


def test_a_hostile_web_page_is_refused():
    with served_http("examples/survey.py") as address:
        assert initialize(address, WITH_TOKEN).status_code == 200
        for header in {"Origin": "https://evil.example"}, {"Host": "evil.example"}:
            assert initialize(address, WITH_TOKEN | header).status_code == 403
