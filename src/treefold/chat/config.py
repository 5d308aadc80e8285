"""Which server and which model, as programs, their users and their environment want it."""

import os
from typing import Final

from treefold.core.errors import InvalidValueError
from treefold.models.openai.model import LOCAL_SERVERS

BASE_URL_VARIABLE: Final = "TREEFOLD_BASE_URL"
MODEL_VARIABLE: Final = "TREEFOLD_MODEL"
_DEFAULT_PROVIDER: Final = "lmstudio"


def get_base_url(provider: str | None = None, base_url: str | None = None) -> str:
    """Return the address of the server to talk to.

    That is *base_url*, or else what ``TREEFOLD_BASE_URL`` says, or else where *provider*
    (``llamacpp``, ``lmstudio``, ``ollama`` or ``vllm``) usually listens, or else LM Studio.

    Raises:
        InvalidValueError: nobody knows that provider (a ValueError).

    Example:
        >>> from treefold import get_base_url
        >>> get_base_url(base_url="http://localhost:9999/v1")
        'http://localhost:9999/v1'
    """
    told = base_url or os.environ.get(BASE_URL_VARIABLE)
    if told:
        return told
    default = LOCAL_SERVERS.get((provider or _DEFAULT_PROVIDER).lower())
    if default is None:
        raise InvalidValueError(
            f"nobody knows where {provider!r} listens: give base_url, set {BASE_URL_VARIABLE}, or"
            f" name one of {', '.join(LOCAL_SERVERS)}"
        )
    return default


def get_model(model: str | None = None, *, prefer_env: bool = True) -> str:
    """Return the name of the model to talk to.

    That is what ``TREEFOLD_MODEL`` says, or else *model*; the other way round without *prefer_env*.

    Raises:
        InvalidValueError: neither says anything (a ValueError).

    Example:
        >>> from treefold import get_model
        >>> get_model("qwen3", prefer_env=False)
        'qwen3'
    """
    told = os.environ.get(MODEL_VARIABLE)
    found = (told or model) if prefer_env else (model or told)
    if not found:
        raise InvalidValueError(f"no model is named: give one, or set {MODEL_VARIABLE}")
    return found
