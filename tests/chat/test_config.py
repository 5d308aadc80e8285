"""Which server and which model: what the program says, the environment, and the usual."""

import pytest

from treefold import get_base_url, get_model


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TREEFOLD_BASE_URL", raising=False)
    monkeypatch.delenv("TREEFOLD_MODEL", raising=False)


@pytest.mark.parametrize(
    ("provider", "url"),
    [
        (None, "http://localhost:1234/v1"),
        ("", "http://localhost:1234/v1"),
        ("lmstudio", "http://localhost:1234/v1"),
        ("ollama", "http://localhost:11434/v1"),
        ("llamacpp", "http://localhost:8080/v1"),
        ("vLLM", "http://localhost:8000/v1"),
    ],
)
def test_a_provider_is_where_it_usually_listens(provider: str | None, url: str):
    assert get_base_url(provider) == url


def test_the_address_given_comes_first_then_the_environment_then_the_provider(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("TREEFOLD_BASE_URL", "http://env:1/v1")

    assert get_base_url("ollama", "http://given:1/v1") == "http://given:1/v1"
    assert get_base_url("ollama") == "http://env:1/v1"
    assert get_base_url() == "http://env:1/v1"

    monkeypatch.setenv("TREEFOLD_BASE_URL", "")
    assert get_base_url("ollama", "") == "http://localhost:11434/v1"


def test_a_provider_that_nobody_knows_is_a_value_error_unless_the_address_is_known():
    with pytest.raises(ValueError, match="'olama' listens.*one of llamacpp, lmstudio, ollama"):
        get_base_url("olama")

    assert get_base_url("olama", "http://given:1/v1") == "http://given:1/v1"


def test_the_environment_names_the_model_unless_it_comes_second(monkeypatch: pytest.MonkeyPatch):
    assert get_model("qwen3") == "qwen3"

    monkeypatch.setenv("TREEFOLD_MODEL", "llama")
    assert get_model("qwen3") == "llama"
    assert get_model() == "llama"
    assert get_model("qwen3", prefer_env=False) == "qwen3"
    assert get_model(prefer_env=False) == "llama"


@pytest.mark.parametrize("prefer_env", [True, False])
def test_no_model_at_all_is_a_value_error(*, prefer_env: bool):
    with pytest.raises(ValueError, match="no model is named.*TREEFOLD_MODEL"):
        get_model(prefer_env=prefer_env)
