"""Which model a chat is with."""

from collections.abc import AsyncIterator

import pytest

from treefold.cli.model_choice import ModelChoice, choose_model
from treefold.core.errors import InvalidValueError
from wire import ModelServer
from wire.replies import failure

NOBODY = {"nobody": "http://127.0.0.1:9/v1"}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TREEFOLD_MODEL", "TREEFOLD_BASE_URL"):
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
    assert (await choose_model(None, None, embedded=True)).model == "local"


async def test_otherwise_it_is_one_of_a_server_that_runs_here(server: ModelServer):
    servers = NOBODY | {"ollama": f"{server.url}/v1"}
    choice = await choose_model(None, None, servers=servers)
    assert choice == ModelChoice("qwen3", f"{server.url}/v1", "ollama is running")
    assert str(choice) == f"qwen3 at {server.url}/v1"
    assert [request.path for request in server.requests] == ["/v1/models"]


async def test_or_else_the_embedded_one():
    choice = await choose_model(None, None, servers=NOBODY)
    assert choice == ModelChoice("local", None, "no model was named, and no server is running here")
    assert str(choice) == "local"


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
        assert await choose_model(None, address, servers=servers) == ModelChoice(
            "qwen3", f"{server.url}/v1", "--base-url; its first model"
        )
    with pytest.raises(InvalidValueError, match="does not list its models: give --model"):
        await choose_model(None, "http://127.0.0.1:9/v1")


async def test_the_embedded_one_cannot_be_another():
    with pytest.raises(InvalidValueError, match="--local names the model"):
        await choose_model("qwen3", None, embedded=True)
