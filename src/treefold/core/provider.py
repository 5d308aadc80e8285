"""The providers of models, and the variables that name the model of calls that name none."""

from enum import StrEnum
from typing import Final

MODEL_VARIABLE: Final = "TREEFOLD_MODEL"
BASE_URL_VARIABLE: Final = "TREEFOLD_BASE_URL"


class Provider(StrEnum):
    """The provider whose protocol a model speaks.

    Example:
        >>> from treefold import Provider
        >>> Provider("anthropic") is Provider.Anthropic
        True
    """

    OpenAI = "openai"  # and compatible servers
    Anthropic = "anthropic"
    Gemini = "gemini"
    Local = "local"
