"""Which model a call uses: never a guess."""

import asyncio
from pathlib import Path

import pytest

from agent_scripts import worker
from support import add
from treefold import (
    AgentOptions,
    CallGraphError,
    Client,
    Runtime,
    ToolUse,
    query,
    registries,
)
from treefold.errors import DefinitionError, ModelProviderException, NoModelError
from treefold.models import OpenAIModel, Profile
from treefold.testing import ScriptedModel
from treefold.toolbox import human_in_loop
from wire import ModelServer, openai_wire

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")
WITHOUT_FUNCTIONS = OpenAIModel("mute", base_url="ollama", profile=Profile(calls_functions=False))


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TREEFOLD_CACHE", str(tmp_path / "cache"))  # no local models
    for name in ("TREEFOLD_MODEL", "TREEFOLD_BASE_URL", *KEYS):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def environment_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name a model that would fail: no server listens there."""
    monkeypatch.setenv("TREEFOLD_MODEL", "qwen3")
    monkeypatch.setenv("TREEFOLD_BASE_URL", "http://127.0.0.1:9/v1")


@pytest.mark.usefixtures("environment_is_set")
async def test_the_call_comes_before_the_function_the_runtime_and_the_environment():
    own, plain = worker("own", default_model=ScriptedModel("of the function")), worker("plain")
    async with Runtime([own, plain], models=ScriptedModel("of the runtime")) as runtime:
        called = ScriptedModel("of the call")
        assert await runtime.invoke(own, model=called) == "of the call"
        assert await runtime.invoke(own) == "of the function"
        assert await runtime.invoke(plain) == "of the runtime"


async def test_the_environment_is_the_last_to_name_it(monkeypatch: pytest.MonkeyPatch):
    plain = worker("plain")
    async with ModelServer([openai_wire.text("of the environment")]) as server:
        monkeypatch.setenv("TREEFOLD_MODEL", "qwen3")
        monkeypatch.setenv("TREEFOLD_BASE_URL", f"{server.url}/v1")
        async with Runtime([plain], models={"other": ScriptedModel()}) as runtime:
            assert await runtime.invoke(plain) == "of the environment"
    assert [request.json["model"] for request in server.requests] == ["qwen3"]


async def test_a_wrong_name_in_the_environment_fails_the_calls_that_would_use_it(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("TREEFOLD_MODEL", "clod")
    plain = worker("plain")
    async with Runtime([plain]) as runtime:
        assert await runtime.invoke(plain, model=ScriptedModel("of the call")) == "of the call"
        with pytest.raises(ModelProviderException, match="TREEFOLD_MODEL=clod: no provider is"):
            await runtime.invoke(plain)


async def test_a_model_of_the_environment_that_cannot_call_functions_fails_no_other_calls(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("TREEFOLD_MODEL", "local")
    with registries():
        user = worker("user", add)
    async with Runtime([user]) as runtime:
        assert await runtime.invoke(user, model=ScriptedModel("of the call")) == "of the call"
        with pytest.raises(DefinitionError, match="local cannot call functions, and this uses add"):
            await runtime.invoke(user)


async def test_without_any_the_call_fails_and_the_error_lists_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    plain = worker("plain")
    async with Runtime([plain]) as runtime:
        with pytest.raises(NoModelError) as raised:
            await runtime.invoke(plain)
    head, *lines = str(raised.value).split("\n")
    assert head.startswith("no model is chosen for plain")
    assert lines[0].startswith('  @agent(model="anthropic:claude-opus-5-5") or TREEFOLD_')
    assert lines[-1].startswith('  @agent(model="local") or TREEFOLD_MODEL=local (embedded')
    assert "secret" not in str(raised.value)


async def test_a_chat_without_a_model_has_that_of_the_runtime_or_fails_the_same_way():
    options = AgentOptions("You are brief.")
    with pytest.raises(NoModelError, match="no model is chosen for this chat"):
        async for _ in query("Hello", options):
            pass
    async with Runtime(models=ScriptedModel("of the runtime")), Client(options) as client:
        await client.query("Hello")
        assert [block async for block in client.receive_messages()]
    assert client.history[-1]["content"] == "of the runtime"
    assert repr(client) == "<Client default, 1 turns>"


@pytest.mark.usefixtures("environment_is_set")
async def test_an_agent_in_a_chat_has_the_model_of_the_client():
    with registries():
        sub = worker("sub")
    model = ScriptedModel(ToolUse("1", "sub"), "of the client", "Done.")
    options = AgentOptions("You are brief.", model, tools=[sub], auto_execute_tools=True)
    async with Client(options) as client:
        await client.query("Hello")
        assert [block async for block in client.receive_messages()]
        assert client.history[-2]["content"] == "of the client"


@pytest.mark.parametrize("later", [None, "openai:second@ollama"])
async def test_a_recorded_conversation_continues_with_its_own_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, later: str | None
):
    go = worker("go", human_in_loop)
    asks = openai_wire.calls([("c", "human_in_loop", '{"question": "Go?"}')])
    async with ModelServer([asks, openai_wire.text("Gone.")]) as server, asyncio.timeout(60):
        monkeypatch.setenv("TREEFOLD_MODEL", f"openai:first@{server.url}/v1")
        async with Runtime([go], store=tmp_path / "run.db") as runtime:
            node = runtime.invoke(go, key="it")
            async for _ in runtime.watch(node):
                if runtime.questions():
                    break
        monkeypatch.delenv("TREEFOLD_MODEL")
        if later is not None:
            monkeypatch.setenv("TREEFOLD_MODEL", later)
        async with Runtime([go], store=tmp_path / "run.db") as runtime:
            node = runtime.invoke(go, key="it")
            runtime.answer(runtime.questions()[0].id, "yes")
            assert await node == "Gone."
    assert [request.json["model"] for request in server.requests] == ["first", "first"]


@pytest.mark.parametrize("returns", [None, int])
async def test_an_agent_with_functions_needs_a_model_that_calls_them(returns: type | None):
    fault = r"openai:mute@.* cannot call functions, and this uses add: choose a model that can"
    with registries():
        user = worker("user", add, returns=returns)
    with pytest.raises(CallGraphError, match=f"user: {fault}"):
        Runtime([user], models=WITHOUT_FUNCTIONS)
    async with Runtime([user], models=ScriptedModel()) as runtime:
        with pytest.raises(DefinitionError, match=fault):
            await runtime.invoke(user, model=WITHOUT_FUNCTIONS)
    options = AgentOptions("You help.", WITHOUT_FUNCTIONS, tools=[add])
    async with Client(options) as client:
        with pytest.raises(CallGraphError, match=fault):
            await client.query("Hello")
