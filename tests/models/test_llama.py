"""llama.cpp's server in this process, with the real model."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import httpx
import pydantic_core
import pytest

import warm_python
from treefold.core.errors import InvalidValueError
from treefold.models.local.gguf import read_metadata
from treefold.models.local.llama import LlamaServer, default_threads, shared_server

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Say hello."}]
LONG: dict[str, Any] = {"messages": HELLO, "max_tokens": 4000, "ignore_eos": True}
SERVING = """
import sys, threading, time
from pathlib import Path
import httpx
from treefold.models.local.llama import shared_server

server = shared_server(Path(sys.argv[1]))
"""
BUSY = f"""{SERVING}
headers = {{"authorization": "Bearer " + server.api_key}}
http = httpx.Client(base_url=server.base_url.removesuffix("/v1"), headers=headers, timeout=60)

def ask():
    try:
        http.post("/v1/chat/completions", json={LONG})
    except httpx.HTTPError:
        pass

threading.Thread(target=ask, daemon=True).start()
while not http.get("/slots").json()[0]["is_processing"]:
    time.sleep(0.01)
"""
# Connects again and again and keeps the last connections open until the server's process, which
# holds the other end of its standard input, has ended.
PERSISTENT_CLIENT = """
import collections, socket, sys, time

connections = collections.deque(maxlen=20)
while True:
    try:
        connections.append(socket.create_connection(("127.0.0.1", int(sys.argv[1]))))
        connections[-1].sendall(sys.argv[2].encode())
    except ConnectionRefusedError:
        break
    except OSError:  # shut down by the server
        pass
    print(flush=True)
    time.sleep(0.005)
sys.stdin.read()
"""
CROWDED = f"""{SERVING}
import json, subprocess
body = json.dumps({LONG})
request = (
    "POST /v1/chat/completions HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Length: %d\\r\\n"
    "Authorization: Bearer %s\\r\\n\\r\\n%s"
) % (len(body), server.api_key, body)
port = server.base_url.removesuffix("/v1").rpartition(":")[2]
command = [sys.executable, "-c", sys.argv[2], port, request]
client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for _ in range(5):
    client.stdout.readline()
"""


@pytest.fixture(scope="module")
def server(smollm2: Path) -> Iterator[LlamaServer]:
    server = LlamaServer.start(smollm2)
    yield server
    server.close()


def client(server: LlamaServer) -> httpx.Client:
    headers = {"authorization": f"Bearer {server.api_key}"}
    return httpx.Client(base_url=server.base_url, headers=headers, timeout=30)


def answers(server: LlamaServer) -> bool:
    with client(server) as http:
        reply = http.post("/chat/completions", json={"messages": HELLO, "max_tokens": 3})
    return bool(reply.json()["choices"][0]["message"]["content"])


def run(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_it_streams_an_answer(server: LlamaServer, capfd: pytest.CaptureFixture[str]):
    body: dict[str, Any] = {"messages": HELLO, "max_tokens": 8, "stream": True}
    with client(server) as http, http.stream("POST", "/chat/completions", json=body) as reply:
        lines = [line.removeprefix("data: ") for line in reply.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    pieces = [json.loads(line)["choices"][0]["delta"].get("content") or "" for line in lines]
    assert len([piece for piece in pieces if piece]) > 1
    assert capfd.readouterr() == ("", "")


def test_tools_are_accepted(server: LlamaServer):
    function = {"name": "add", "parameters": {"type": "object", "properties": {}}}
    tools = [{"type": "function", "function": function}]
    with client(server) as http:
        body = {"messages": HELLO, "max_tokens": 2, "tools": tools}
        assert http.post("/chat/completions", json=body).status_code == 200


def test_only_this_machine_with_the_key_reaches_it(server: LlamaServer):
    assert server.base_url.startswith("http://127.0.0.1:")
    port = httpx.URL(server.base_url).port or 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=5)
    assert httpx.get(f"{server.base_url}/models").status_code == 401
    with client(server) as http:
        assert http.get("/models").json()["data"][0]["id"] == "SmolLM2-135M-Instruct.Q4_1"


def test_the_context_is_at_most_what_the_model_was_trained_for(server: LlamaServer, smollm2: Path):
    assert (read_metadata(smollm2).trained_context, server.context) == (8192, 8192)


@pytest.mark.parametrize("words", [20, 3000], ids=["answering", "reading the prompt"])
def test_a_request_that_is_given_up_is_computed_no_further(server: LlamaServer, words: int):
    body = LONG | {"messages": [{"role": "user", "content": "dog " * words}]}
    with client(server) as http, pytest.raises(httpx.ReadTimeout):
        http.post("/chat/completions", json=body, timeout=0.3)
    deadline = time.monotonic() + 60
    spent = 1.0
    while spent > 0.02:
        assert time.monotonic() < deadline
        before = time.process_time()  # of all threads, llama.cpp's too
        time.sleep(0.1)
        spent = time.process_time() - before


def test_closing_ends_what_is_open_and_leaves_the_others(server: LlamaServer, smollm2: Path):
    other = LlamaServer.start(smollm2, context=4096)
    assert (answers(server), answers(other), other.context) == (True, True, 4096)
    body = LONG | {"stream": True}
    with (
        ThreadPoolExecutor(1) as pool,
        client(other) as http,
        http.stream("POST", "/chat/completions", json=body) as abandoned,
    ):
        assert next(abandoned.iter_lines())
        waiting = pool.submit(answers, other)
        before = time.monotonic()
        other.close()
        assert time.monotonic() - before < 30
        assert isinstance(waiting.exception(10), httpx.TransportError)
    other.close()
    assert other.closed
    with pytest.raises(httpx.ConnectError):
        httpx.get(other.base_url)
    assert answers(server)


def test_a_server_may_be_closed_as_soon_as_it_was_started(smollm2: Path):
    for _ in range(3):
        started = LlamaServer.start(smollm2, context=256)
        started.close()
        assert started.closed


def test_who_asks_for_the_same_gets_the_same(smollm2: Path):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: shared_server(smollm2, context=256), range(4)))
    assert len(set(found)) == 1
    found[0].close()
    again = shared_server(smollm2, context=256)
    assert again is not found[0]
    assert answers(again)
    again.close()


def test_what_is_no_model_is_refused_before_and_by_llama_cpp(
    smollm2: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    text, cut = tmp_path / "text.gguf", tmp_path / "cut.gguf"
    text.write_text("hello")
    with smollm2.open("rb") as file:
        cut.write_bytes(file.read(5_000_000))
    for path, words in [
        (text, "text.gguf is not a GGUF file"),
        (tmp_path / "none.gguf", "none.gguf cannot be read: No such file or directory"),
        (tmp_path, "cannot be read: Is a directory"),
        (cut, "llama.cpp cannot run .*cut.gguf: .* data is not within the file bounds"),
    ]:
        with pytest.raises(InvalidValueError, match=words):
            LlamaServer.start(path)
    with pytest.raises(InvalidValueError, match="context must be at least 1 .*got 0"):
        LlamaServer.start(smollm2, context=0)
    assert capfd.readouterr() == ("", "")


def test_without_xllamacpp_it_says_what_to_install(smollm2: Path):
    code = "import sys; sys.modules['xllamacpp'] = None\n" + SERVING
    done = warm_python.run("-c", code, str(smollm2))
    said = "UsageError: a local model needs a package that is not installed: pip install 'xllamacpp"
    assert said in done.stderr


def importing(folder: Path, smollm2: Path) -> str:
    """Return what a program reports that finds xllamacpp in *folder*."""
    begin = f"import sys; sys.path.insert(0, {str(folder)!r})\n"
    return warm_python.run("-c", begin + SERVING, str(smollm2)).stderr


@pytest.mark.skipif(sys.platform != "linux", reason="it is about the messages of its loader")
def test_without_a_library_of_the_system_it_says_which(smollm2: Path, tmp_path: Path):
    # A real extension module, which now wants a library that is nowhere.
    [module] = Path(pydantic_core.__file__).parent.glob("_pydantic_core*.so")
    wanted, absent = b"\0libgcc_s.so.1\0", b"\0libabsent.so\0\0"
    data = module.read_bytes()
    assert wanted in data
    changed = data.replace(wanted, absent)
    (tmp_path / f"xllamacpp{EXTENSION_SUFFIXES[-1]}").write_bytes(changed)
    said = importing(tmp_path, smollm2)
    assert "UsageError: xllamacpp is installed, but needs the shared library libabsent.so" in said
    assert "install it with the system's package manager" in said
    assert "pip install" not in said


def test_without_libgomp_it_says_what_to_install(smollm2: Path, tmp_path: Path):
    words = "libgomp.so.1: cannot open shared object file: No such file or directory"
    (tmp_path / "xllamacpp.py").write_text(f"raise ImportError({words!r})")
    said = importing(tmp_path, smollm2)
    assert "needs the shared library libgomp.so.1, which this system does not have" in said
    assert "Debian and Ubuntu: apt install libgomp1" in said


def test_a_package_that_cannot_be_imported_is_not_called_missing(smollm2: Path, tmp_path: Path):
    (tmp_path / "xllamacpp.py").write_text("from sys import no_such_name")
    said = importing(tmp_path, smollm2)
    assert "xllamacpp is installed, but cannot be imported (cannot import name 'no_such" in said
    assert "pip install --force-reinstall 'xllamacpp>=2026.10'" in said


def test_a_process_ends_well_while_a_request_is_open(smollm2: Path):
    done = run(BUSY, str(smollm2))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_process_ends_well_while_another_keeps_connecting(smollm2: Path):
    done = run(CROWDED, str(smollm2), PERSISTENT_CLIENT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_forked_process_ends_well_and_is_told_to_spawn(smollm2: Path):
    fork = """
import multiprocessing
child = multiprocessing.get_context("fork").Process(target=shared_server, args=[Path(sys.argv[1])])
child.start()
child.join(60)
child.kill()
sys.exit(child.exitcode)
"""
    done = run(SERVING + fork, str(smollm2))
    assert done.returncode == 1
    assert "UsageError: SmolLM2-135M-Instruct.Q4_1.gguf cannot run here" in done.stderr
    assert done.stderr.count("Traceback") == 1


def test_a_core_is_left_free():
    assert default_threads() >= 1
