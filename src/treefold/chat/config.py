"""The server and the model to use, from arguments, environment variables and defaults."""

import os
from typing import Final

from treefold.core.errors import InvalidValueError
from treefold.core.provider import BASE_URL_VARIABLE, MODEL_VARIABLE
from treefold.models.openai.model import LOCAL_SERVERS

_DEFAULT_PROVIDER: Final = "lmstudio"


def get_base_url(provider: str | None = None, base_url: str | None = None) -> str:
    """Return the address of the server to talk to.

    The first that is given of: *base_url*, the variable ``TREEFOLD_BASE_URL``, the default address
    of *provider* (``llamacpp``, ``lmstudio``, ``ollama`` or ``vllm``), that of LM Studio.

    Raises:
        InvalidValueError: *provider* is none of these (a ValueError).

    Example:
        >>> from treefold import get_base_url
        >>> get_base_url(base_url="http://localhost:9999/v1")
        'http://localhost:9999/v1'
    """
    if given := base_url or os.environ.get(BASE_URL_VARIABLE):
        return given
    default = LOCAL_SERVERS.get((provider or _DEFAULT_PROVIDER).lower())
    if default is None:
        raise InvalidValueError(
            f"nobody knows where {provider!r} listens: give base_url, set {BASE_URL_VARIABLE}, or"
            f" name one of {', '.join(LOCAL_SERVERS)}"
        )
    return default


def get_model(model: str | None = None, *, prefer_env: bool = True) -> str:
    """Return the name of the model to talk to.

    That is the variable ``TREEFOLD_MODEL`` if it is set, otherwise *model*. With
    ``prefer_env=False``, *model* comes first.

    Raises:
        InvalidValueError: neither is given (a ValueError).

    Example:
        >>> from treefold import get_model
        >>> get_model("qwen3", prefer_env=False)
        'qwen3'
    """
    from_environment = os.environ.get(MODEL_VARIABLE)
    found = (from_environment or model) if prefer_env else (model or from_environment)
    if not found:
        raise InvalidValueError(f"no model is named: give one, or set {MODEL_VARIABLE}")
    return found
