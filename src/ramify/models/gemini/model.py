"""Gemini, through Google's API."""

from collections.abc import Sequence
from typing import ClassVar

from ramify.core.function import Function
from ramify.core.model import ModelSettings
from ramify.core.provider import Provider
from ramify.models.attempt import Endpoint
from ramify.models.gemini.dialect import GeminiDialect
from ramify.models.wire_model import WireModel, required_package


class GeminiModel(WireModel):
    """A model of Google's.

    Example:
        >>> from ramify.models import GeminiModel
        >>> GeminiModel("gemini-2.5-pro").name
        'gemini:gemini-2.5-pro'
    """

    provider = Provider.Gemini
    key_names: ClassVar[tuple[str, ...]] = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    url_name: ClassVar[str] = "GOOGLE_GEMINI_BASE_URL"

    def dialect(
        self, system: str, functions: Sequence[Function], settings: ModelSettings
    ) -> GeminiDialect:
        return GeminiDialect(self.model, self.profile, system, functions, settings)

    def endpoint(self) -> Endpoint:
        sdk = required_package("google.genai", "google-genai[aiohttp]>=3,<4")
        from ramify.models.gemini.endpoint import GeminiEndpoint  # noqa: PLC0415 - loads aiohttp

        return GeminiEndpoint(sdk, self.base_url, self.key(), self.model)
