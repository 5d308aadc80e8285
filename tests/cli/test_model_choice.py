"""Which model a chat is with."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_scripts import worker
from command_line import treefold
from treefold import Runtime, attach
from treefold.cli.model_choice import ModelChoice, choose_model
from treefold.core.errors import InvalidValueError, NoModelError
from treefold.toolbox import human_in_loop
from wire import ModelServer, openai_wire
from wire.replies import failure

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")
NOBODY = {"nobody": "http://127.0.0.1:9/v1"}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TREEFOLD_CACHE", str(tmp_path / "cache"))  # no local models
    for name in ("TREEFOLD_MODEL", "TREEFOLD_BASE_URL", *KEYS):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        listed = {"data": [{"id": "nomic-embed-text"}, {"id": "qwen3"}, {"id": "gemma"}]}
        server.on_request = lambda _: failure(200, listed)
        yield server


async def test_what_was_named_is_taken():
    assert await choose_model("qwen3", "ollama") == ModelChoice(
        "qwen3", "ollama", "--model and --base-url"
    )
    assert str(ModelChoice("qwen3", "ollama", "")) == "qwen3 at ollama"
    assert ModelChoice("qwen3", "ollama", "").find().name.startswith("openai:qwen3@http://")
    assert ModelChoice("local", None, "").find().name == "local"
    assert await choose_model("anthropic:claude-opus-4-1", None) == ModelChoice(
        "anthropic:claude-opus-4-1", None, "--model"
    )
    assert await choose_model(None, None, embedded=True) == ModelChoice("local", None, "--local")


async def test_what_was_not_named_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TREEFOLD_MODEL", "gemini:gemini-2.5-pro")
    assert await choose_model(None, None) == ModelChoice(
        "gemini:gemini-2.5-pro", None, "TREEFOLD_MODEL"
    )
    monkeypatch.setenv("TREEFOLD_MODEL", "qwen3")
    monkeypatch.setenv("TREEFOLD_BASE_URL", "http://gpu:8000/v1")
    assert await choose_model(None, None) == ModelChoice(
        "qwen3", "http://gpu:8000/v1", "TREEFOLD_MODEL and TREEFOLD_BASE_URL"
    )
    assert await choose_model("gemma", None) == ModelChoice(
        "gemma", "http://gpu:8000/v1", "--model and TREEFOLD_BASE_URL"
    )
    assert await choose_model("ollama:gemma", None) == ModelChoice("ollama:gemma", None, "--model")
    assert (await choose_model(None, None, embedded=True)).model == "local"


async def test_otherwise_there_is_none_and_the_error_lists_what_is_found(server: ModelServer):
    servers = NOBODY | {"ollama": f"{server.url}/v1"}
    with pytest.raises(NoModelError) as raised:
        await choose_model(None, None, servers=servers)
    head, ollama, local, keys = str(raised.value).split("\n")
    assert head.startswith("no model is chosen for this command, and none is taken unasked")
    name = f"openai:qwen3@{server.url}/v1"
    why = "ollama is running, with 2 more"
    assert ollama == f"  --model {name} or TREEFOLD_MODEL={name} ({why})"
    assert local.startswith("  --model local or TREEFOLD_MODEL=local (embedded")
    assert keys.startswith("A key adds the models of its provider: ANTHROPIC_API_KEY, ")
    assert [request.path for request in server.requests] == ["/v1/models"]


async def test_a_name_without_a_place_is_looked_for_on_the_servers_that_run_here(
    server: ModelServer,
):
    servers = {"ollama": f"{server.url}/v1"}
    assert await choose_model("gemma", None, servers=servers) == ModelChoice(
        "gemma", f"{server.url}/v1", "--model; ollama has it"
    )
    with pytest.raises(InvalidValueError, match="no provider is called 'clod'"):
        await choose_model("clod", None, servers=servers)


async def test_a_place_without_a_name_is_asked_which_models_it_has(server: ModelServer):
    for address in (f"{server.url}/v1", "lmstudio"):
        servers = {"lmstudio": f"{server.url}/v1"}
        found = "--base-url is a server, and it has nomic-embed-text, qwen3, gemma: give --model"
        with pytest.raises(InvalidValueError, match=found):
            await choose_model(None, address, servers=servers)
    with pytest.raises(InvalidValueError, match="does not list its models: give --model"):
        await choose_model(None, "http://127.0.0.1:9/v1")


async def test_the_embedded_one_cannot_be_another():
    with pytest.raises(InvalidValueError, match="--local names the model"):
        await choose_model("qwen3", None, embedded=True)


# As commands


@pytest.fixture
def job(tmp_path: Path) -> str:
    module = tmp_path / "job.py"
    module.write_text(
        "from treefold import agent\n"
        "from treefold.toolbox import human_in_loop\n"
        "@agent(uses=[human_in_loop])\n"
        "def go() -> str:\n"
        "    return 'Go.'\n"
    )
    return f"{module}:go"


@pytest.mark.parametrize("command", ["run", "chat"])
def test_without_a_model_nothing_begins_and_it_says_what_to_write(command: str, job: str):
    args = [job] if command == "run" else []
    done = treefold(command, *args, env={"OPENAI_API_KEY": "secret"})
    assert (done.returncode, done.stdout) == (2, "")
    head, *lines = done.stderr.splitlines()
    assert head.startswith(f"treefold {command}: no model is chosen for this command")
    name = "openai:gpt-6.1-sol"
    assert f"  --model {name} or TREEFOLD_MODEL={name} (OPENAI_API_KEY is set;" in "\n".join(lines)
    assert "secret" not in done.stderr


def test_an_agent_below_code_fails_and_its_error_has_all_lines(tmp_path: Path):
    module = tmp_path / "job.py"
    module.write_text(
        "from treefold import RunContext, agent, tool\n"
        "@agent\n"
        "def go() -> str:\n"
        "    return 'Go.'\n"
        "@tool(uses=[go])\n"
        "async def work(ctx: RunContext) -> str:\n"
        "    return await ctx.invoke(go)\n"
    )
    done = treefold("run", f"{module}:work")
    assert (done.returncode, done.stdout) == (1, "")
    assert "treefold run: NoModelError: no model is chosen for go, and none" in done.stderr
    local, keys = done.stderr.splitlines()[-2:]
    assert local.startswith('  @agent(model="local") or TREEFOLD_MODEL=local (')
    assert keys.startswith("A key adds the models of its provider: ")


def test_a_wrong_name_in_the_environment_is_no_fault_of_code_that_needs_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    module = tmp_path / "plain.py"
    module.write_text("from treefold import tool\n@tool\nasync def go() -> int:\n    return 1\n")
    monkeypatch.setenv("TREEFOLD_MODEL", "clod")
    done = treefold("run", f"{module}:go")
    assert (done.returncode, done.stdout) == (0, "1\n")


def test_the_embedded_model_is_asked_for_by_local(job: str):
    for options in (["--local"], ["--model", "local"]):
        done = treefold("run", job, *options)
        assert done.returncode == 2
        assert "go: local cannot call functions, and this uses human_in_loop" in done.stderr
    done = treefold("run", job, "--local", "--model", "auto")
    assert (done.returncode, done.stderr[:35]) == (2, "treefold run: --local names the mod")


async def test_a_run_resumes_with_the_model_that_it_recorded(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asks = openai_wire.calls([("c", "human_in_loop", '{"question": "Go?"}')])
    store = str(tmp_path / "run.db")
    go = worker("go", human_in_loop)
    async with ModelServer([asks, openai_wire.text("Gone.")]) as server, asyncio.timeout(60):
        monkeypatch.setenv("TREEFOLD_MODEL", f"openai:first@{server.url}/v1")
        async with Runtime([go], store=store) as runtime:
            node = runtime.invoke(go)
            async for _ in runtime.watch(node):
                if runtime.questions():
                    break
        with attach(store) as observer:
            observer.answer(observer.questions()[0].id, "yes")
        done = await asyncio.to_thread(treefold, "run", job, "--store", store)
    assert (done.returncode, done.stdout) == (0, "Gone.\n")
    assert [request.json["model"] for request in server.requests] == ["first", "first"]
