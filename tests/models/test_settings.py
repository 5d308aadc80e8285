"""Wrong settings, functions and exchanges are named; what is left out is told."""

from typing import Any

import pytest

from treefold import registries, tool
from treefold.core.errors import DefinitionError, InvalidValueError
from treefold.core.model_events import Noticed
from treefold.core.transcript import UserText
from treefold.models import Caching, LocalModel, ModelSettings, Profile, find_model
from wire.protocols import PROTOCOLS, Protocol, answer

OPENAI, ANTHROPIC, _ = PROTOCOLS

with registries():

    @tool
    async def look() -> None: ...


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
        ({"thinking": -1}, "thinking must be a number of tokens, or 0 for no thinking, got -1"),
        ({"caching": "1hr"}, "caching must be one of none, 5m, 1h, got '1hr'"),
    ],
)
def test_settings_that_no_model_takes_are_refused(settings: dict[str, Any], message: str):
    with pytest.raises(InvalidValueError, match=message):
        ModelSettings(**settings)


def test_caching_may_be_given_by_its_name():
    assert ModelSettings(caching="1h").caching is Caching.HOUR  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["", [print]], "decorate it with @tool"),
        (["", look], "must be a list of functions, got"),
        (["", "look"], "must be a list of functions, got"),
        (["", [], {"max_tokens": 5}], "settings must be a ModelSettings"),
    ],
)
def test_what_open_cannot_use_is_named(args: list[Any], message: str):
    with pytest.raises((DefinitionError, InvalidValueError), match=message):
        find_model("ollama:qwen3").open(*args)


def test_saved_data_has_to_be_made_into_exchanges_first():
    with pytest.raises(InvalidValueError, match=r"got dict: .* Exchange\.from_dict"):
        find_model("ollama:qwen3").open(exchanges=[{"dialect": "x"}])  # pyright: ignore[reportArgumentType]


async def test_settings_that_a_model_does_not_take_are_left_out_and_that_is_told_once():
    async with ANTHROPIC.server(*[ANTHROPIC.text("ok")] * 2) as server:
        session = ANTHROPIC.model(server).open(settings=ModelSettings(temperature=0.5))
        first = await answer(session, UserText("Hi"))
        second = await answer(session, UserText("Hi"))
    told = [event.text for event in first if isinstance(event, Noticed)]
    assert told == ["claude-opus-4-1 takes no temperature or top_p; they were not sent"]
    assert Noticed not in map(type, second)
    assert "temperature" not in server.requests[0].json


@pytest.mark.parametrize(
    ("model", "settings", "told"),
    [
        ("anthropic:claude-opus-4-1", {"top_p": 0.5}, "takes no temperature or top_p"),
        ("anthropic:claude-opus-4-1", {"thinking": 500}, "takes no thinking budget of 500"),
        ("anthropic:claude-opus-4-6", {"thinking": 5000}, "takes no thinking budget of 5000"),
        ("ollama:qwen3", {"thinking": 5000}, "takes no thinking budget of 5000"),
    ],
)
def test_each_setting_that_is_left_out_is_told(
    model: str, settings: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key-for-it")
    dialect = find_model(model).dialect("", [], ModelSettings(**settings))  # pyright: ignore[reportAttributeAccessIssue]
    [notice] = dialect.notices
    assert told in notice


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"messages": []}, "messages cannot be set by 'extra'"),
        ({"x": float("nan")}, "cannot be sent to a model"),
        ({"x": {1, 2}}, "cannot be sent to a model"),
    ],
)
def test_extra_fields_that_cannot_be_sent_are_refused(extra: dict[str, Any], message: str):
    with pytest.raises(InvalidValueError, match=message):
        find_model("ollama:qwen3").open(settings=ModelSettings(extra=extra))


def test_a_family_may_have_a_temperature_of_its_own():
    model = LocalModel("x.gguf", profile=Profile(temperature=0.3))
    assert model.dialect("", [], ModelSettings()).fields("")["temperature"] == 0.3
    own = ModelSettings(temperature=0.7)
    assert model.dialect("", [], own).fields("")["temperature"] == 0.7


async def test_models_with_headers_of_their_own_do_not_share_them():
    async with OPENAI.server(*[OPENAI.text("ok")] * 3) as server:
        for headers in ({"x-team": "a"}, {"x-team": "b"}, {}):
            model = OPENAI.model(server, profile=Profile(headers=headers))
            await answer(model.open(), UserText("Hi"))
    assert [r.headers.get("x-team") for r in server.requests] == ["a", "b", None]


async def test_a_session_says_what_it_is(protocol: Protocol):
    async with protocol.server(protocol.text("ok")) as server:
        session = protocol.model(server).open()
        await answer(session, UserText("Hi"))
    assert repr(session).startswith("<Session with ")
    assert repr(session).endswith(", 1 exchanges>")


def test_local_servers_can_be_named_first():
    assert find_model("ollama:llama3").name == find_model("openai:llama3@ollama").name
    with pytest.raises(InvalidValueError, match="is not an address"):
        find_model("openai:m@http://")
