"""The model of calls that name none."""

from pathlib import Path

import pytest

from treefold.core.errors import InvalidValueError
from treefold.models.choice import Candidate, environment_model, find_candidates, no_model_error
from treefold.models.local.catalogue import QWEN_CODER_15B, SMOLLM2
from wire import ModelServer
from wire.replies import failure

NOBODY = {"nobody": "http://127.0.0.1:9/v1"}
KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")
LISTED = {"data": [{"id": "nomic-embed-text"}, {"id": "qwen3"}]}


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache of local models; there are no keys and settings, either."""
    for name in ("TREEFOLD_MODEL", "TREEFOLD_BASE_URL", *KEYS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TREEFOLD_CACHE", str(tmp_path))
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


@pytest.mark.parametrize(
    ("name", "address", "found"),
    [
        (None, None, None),
        ("", "ollama", None),
        ("local", None, "local"),
        ("anthropic:claude-opus-4-1", None, "anthropic:claude-opus-4-1"),
        ("ollama:qwen3", None, "openai:qwen3@http://localhost:11434/v1"),
        ("qwen3", "ollama", "openai:qwen3@http://localhost:11434/v1"),
        ("qwen3:8b", "http://gpu:8000/v1", "openai:qwen3:8b@http://gpu:8000/v1"),
    ],
)
def test_the_environment_names_it(
    monkeypatch: pytest.MonkeyPatch, name: str | None, address: str | None, found: str | None
):
    for variable, value in (("TREEFOLD_MODEL", name), ("TREEFOLD_BASE_URL", address)):
        if value is not None:
            monkeypatch.setenv(variable, value)
    model = environment_model()
    assert (None if model is None else model.name) == found


def test_a_name_that_no_provider_has_is_refused_with_the_variable(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TREEFOLD_MODEL", "qwen3")
    with pytest.raises(
        InvalidValueError, match=r"^TREEFOLD_MODEL=qwen3: no provider .*TREEFOLD_BASE_URL"
    ):
        environment_model()


async def test_keys_and_servers_are_found_and_no_key_is_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GOOGLE_API_KEY", "secret")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("OPENAI_API_KEY", "")
    async with ModelServer() as server:
        server.on_request = lambda _: failure(200, LISTED)
        url = f"{server.url}/v1"
        opus, argon, qwen = (
            "anthropic:claude-opus-5-5",
            "gemini:gemini-4-argon",
            f"openai:qwen3@{url}",
        )
        assert await find_candidates(NOBODY | {"ollama": url}) == [
            Candidate(opus, opus, "ANTHROPIC_API_KEY is set; this costs money"),
            Candidate(argon, argon, "GOOGLE_API_KEY is set; this costs money"),
            Candidate(qwen, qwen, "ollama is running, with 1 more"),
        ]
        option = '@agent(model="{}")'
        error = await no_model_error("greet", option=option, servers=NOBODY | {"ollama": url})
    assert str(error).split("\n")[1:] == [
        f'  @agent(model="{opus}") or TREEFOLD_MODEL={opus} (ANTHROPIC_API_KEY is set; this costs'
        " money)",
        f'  @agent(model="{argon}") or TREEFOLD_MODEL={argon} (GOOGLE_API_KEY is set; this costs'
        " money)",
        f'  @agent(model="{qwen}") or TREEFOLD_MODEL={qwen} (ollama is running, with 1 more)',
        '  @agent(model="local") or TREEFOLD_MODEL=local (embedded: needs no key and no server; is'
        " small, and cannot call functions; 'treefold local fetch' gets it)",
    ]
    assert "secret" not in str(error)


async def test_a_local_model_that_was_fetched_is_a_candidate(cache: Path):
    with open(cache / QWEN_CODER_15B.file, "wb") as file:  # noqa: ASYNC230 - it is empty
        file.truncate(QWEN_CODER_15B.size)
    name = "local:qwen2.5-coder-1.5b"
    assert await find_candidates(NOBODY) == [
        Candidate(name, name, f"embedded: {QWEN_CODER_15B.about}")
    ]


async def test_without_a_key_the_error_says_which_ones_there_are(cache: Path):
    with open(cache / SMOLLM2.file, "wb") as file:  # noqa: ASYNC230 - it is empty
        file.truncate(SMOLLM2.size)
    error = await no_model_error("this command", option="--model {}", servers=NOBODY)
    assert str(error).split("\n")[1:] == [
        "  --model local or TREEFOLD_MODEL=local (embedded: needs no key and no server; is small,"
        " and cannot call functions)",
        "A key adds the models of its provider: ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY"
        " (none of them is set)",
    ]


async def test_with_an_address_the_variable_takes_the_models_of_that_server_only(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    async with ModelServer() as server:
        server.on_request = lambda _: failure(200, LISTED)
        url = f"{server.url}/v1"
        monkeypatch.setenv("TREEFOLD_BASE_URL", f"{url}/")
        option = 'model="{}"'
        error = str(await no_model_error("greet", option=option, servers=NOBODY))
        monkeypatch.setenv("TREEFOLD_BASE_URL", "ollama")
        [_, found] = await find_candidates({"ollama": url})
    assert error.split("\n")[1:] == [
        '  model="anthropic:claude-opus-5-5" (ANTHROPIC_API_KEY is set; this costs money)',
        "  TREEFOLD_MODEL=qwen3 (the server of TREEFOLD_BASE_URL has it)",
        '  model="local" (embedded: needs no key and no server; is small, and cannot call'
        " functions; 'treefold local fetch' gets it)",
    ]
    assert url not in error
    assert found == Candidate(
        f"openai:qwen3@{url}", "qwen3", "the server of TREEFOLD_BASE_URL has it"
    )
