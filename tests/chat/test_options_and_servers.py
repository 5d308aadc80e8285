"""`AgentOptions`, and how the address of a server and a model are found."""

from dataclasses import fields, replace
from typing import Any

import pytest

from chat_helpers import OPENAI, add, asked, options, serving
from treefold import (
    HOOK_PRE_TOOL_USE,
    AgentOptions,
    Client,
    TextBlock,
    get_base_url,
    get_model,
)
from treefold.core.errors import InvalidValueError
from treefold.testing import ScriptedModel

LOCAL = "http://localhost:1234/v1"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TREEFOLD_BASE_URL", raising=False)
    monkeypatch.delenv("TREEFOLD_MODEL", raising=False)


def test_options_have_the_defaults_of_the_document():
    given = AgentOptions(system_prompt="You help.", model="qwen2.5", base_url=LOCAL)
    defaults = {
        "tools": [],
        "auto_execute_tools": False,
        "max_tool_iterations": 5,
        "max_turns": 1,
        "max_tokens": 4096,
        "temperature": 0.7,
        "timeout": 60.0,
        "api_key": "not-needed",
        "hooks": None,
        "allowed_tools": None,
        "allow_lenient_tool_json": False,
        "tool_use_deltas": False,
    }
    assert {name: getattr(given, name) for name in defaults} == defaults
    assert list(given.disallowed_tools) == []
    assert (given.system_prompt, given.model, given.base_url) == ("You help.", "qwen2.5", LOCAL)


def test_options_are_a_plain_mutable_dataclass_that_shares_nothing():
    one = AgentOptions("You help.", "qwen2.5", LOCAL)
    two = AgentOptions("You help.", "qwen2.5", LOCAL)
    assert one == two
    assert one.tools is not two.tools
    one.tools = [add]
    one.temperature = 0.1
    assert (two.tools, two.temperature) == ([], 0.7)
    assert replace(one, model="qwen3").model == "qwen3"
    assert [field.name for field in fields(AgentOptions)][:12] == [
        "system_prompt",
        "model",
        "base_url",
        "tools",
        "auto_execute_tools",
        "max_tool_iterations",
        "max_turns",
        "max_tokens",
        "temperature",
        "timeout",
        "api_key",
        "hooks",
    ]


def test_a_system_prompt_is_required_and_no_model_is_the_default_of_the_runtime():
    given: dict[str, Any] = {"model": "qwen2.5"}
    with pytest.raises(TypeError, match="system_prompt"):
        AgentOptions(**given)
    assert AgentOptions("You help.").model is None
    with pytest.raises(InvalidValueError, match="base_url='ollama' goes with the name of a model"):
        AgentOptions("You help.", base_url="ollama")


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": 0},
        {"max_tokens": -5},
        {"timeout": 0},
        {"timeout": -1.0},
        {"max_tool_iterations": 0},
        {"max_turns": 0},
        {"temperature": "hot"},
        {"base_url": "nowhere"},
        {"model": ""},
        {"system_prompt": None},
        {"hooks": {"no_such_hook": []}},
        {"hooks": {HOOK_PRE_TOOL_USE: 7}},
        {"allowed_tools": "add"},
    ],
    ids=str,
)
def test_values_that_make_no_sense_are_refused(wrong: dict[str, Any]):
    given: dict[str, Any] = {"system_prompt": "You help.", "model": "qwen2.5", "tools": [add]}
    given["base_url"] = LOCAL
    with pytest.raises(InvalidValueError):
        Client(AgentOptions(**given | wrong))


@pytest.mark.parametrize("name", ["llamacpp", "lmstudio", "ollama", "vllm"])
async def test_local_servers_have_names(name: str):
    async with Client(AgentOptions("You help.", "qwen2.5", name)) as client:
        assert client.history == []


async def test_the_name_of_a_model_is_taken_literally_if_there_is_an_address():
    name = "anthropic:claude-opus-4-1"
    async with serving(OPENAI.text("ok")) as server, Client(options(server, model=name)) as client:
        await asked(client, "Hi")
    assert server.requests[0].json["model"] == name


async def test_without_an_address_a_model_is_found_by_its_name():
    async with serving(OPENAI.text("ok")) as server:
        given = AgentOptions("You help.", f"openai:qwen3@{server.url}/v1")
        async with Client(given) as client:
            assert await asked(client, "Hi") == [TextBlock("ok")]
    assert server.requests[0].json["model"] == "qwen3"
    assert server.requests[0].headers["authorization"] == "Bearer not-needed"


async def test_a_model_may_be_an_object():
    async with Client(AgentOptions("You help.", ScriptedModel("Hello!"))) as client:
        assert await asked(client, "Hi") == [TextBlock("Hello!")]


async def test_a_gateway_is_a_server_like_any_other():
    async with serving(OPENAI.text("From the cloud.")) as server:
        given = options(server, model="qwen3-coder:480b-cloud")
        async with Client(given) as client:
            assert await asked(client, "Hi") == [TextBlock("From the cloud.")]
    assert server.requests[0].json["model"] == "qwen3-coder:480b-cloud"


# --- where the server is


@pytest.mark.parametrize(
    ("provider", "address"),
    [
        ("lmstudio", "http://localhost:1234/v1"),
        ("ollama", "http://localhost:11434/v1"),
        ("llamacpp", "http://localhost:8080/v1"),
        ("vllm", "http://localhost:8000/v1"),
        (None, "http://localhost:1234/v1"),
    ],
)
def test_a_provider_has_its_usual_address(provider: str | None, address: str):
    assert get_base_url(provider) == address
    assert get_base_url(provider=provider) == address


def test_an_address_that_is_given_comes_first_and_then_the_environment(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("TREEFOLD_BASE_URL", "http://box:9000/v1")
    assert get_base_url("ollama", base_url="http://mine:1/v1") == "http://mine:1/v1"
    assert get_base_url("ollama") == "http://box:9000/v1"
    assert get_base_url() == "http://box:9000/v1"


# --- which model


def test_a_model_comes_from_the_environment_or_from_the_program(monkeypatch: pytest.MonkeyPatch):
    assert get_model("mine") == "mine"
    monkeypatch.setenv("TREEFOLD_MODEL", "theirs")
    assert get_model("mine") == "theirs"
    assert get_model("mine", prefer_env=False) == "mine"
    assert get_model(prefer_env=False) == "theirs"
    assert get_model() == "theirs"


def test_no_model_at_all_is_an_error():
    with pytest.raises(ValueError, match="TREEFOLD_MODEL"):
        get_model()


async def test_what_they_find_can_be_used(monkeypatch: pytest.MonkeyPatch):
    async with serving(OPENAI.text("ok")) as server:
        monkeypatch.setenv("TREEFOLD_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("TREEFOLD_MODEL", "qwen2.5")
        given = AgentOptions("You help.", get_model(), get_base_url())
        async with Client(given) as client:
            assert await asked(client, "Hi") == [TextBlock("ok")]
    assert server.requests[0].json["model"] == "qwen2.5"
