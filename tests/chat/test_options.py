"""Options that would only be noticed to be wrong when it is too late."""

from typing import Any

import pytest

from treefold import AgentOptions
from treefold.core.errors import InvalidValueError


@pytest.mark.parametrize("key", [5, b"sk-secret", ["sk-secret"]])
def test_a_key_that_is_none_is_refused_and_not_shown(key: Any):
    with pytest.raises(InvalidValueError, match="api_key") as caught:
        AgentOptions("You help.", "qwen3", "ollama", api_key=key)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("address", ["", " "])
def test_an_empty_address_does_not_mean_another_server(address: str):
    with pytest.raises(InvalidValueError, match="base_url"):
        AgentOptions("You help.", "qwen3", address)


def test_a_retry_is_not_a_number():
    with pytest.raises(InvalidValueError, match="Retry"):
        AgentOptions("You help.", "qwen3", "ollama", retry=3)  # pyright: ignore[reportArgumentType]
