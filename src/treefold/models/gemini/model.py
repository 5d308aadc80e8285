"""Gemini, through Google's API."""

from collections.abc import Sequence
from typing import ClassVar

from treefold.core.function import Function
from treefold.core.model import ModelSettings
from treefold.core.provider import Provider
from treefold.models.attempt import Endpoint
from treefold.models.gemini.dialect import GeminiDialect
from treefold.models.wire_model import WireModel, required_package


class GeminiModel(WireModel):
    """A Gemini model of Google.

    Example:
        >>> from treefold.models import GeminiModel
        >>> GeminiModel("gemini-4-argon").name
        'gemini:gemini-4-argon'
    """

    provider = Provider.Gemini
    key_names: ClassVar[tuple[str, ...]] = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    url_name: ClassVar[str] = "GOOGLE_GEMINI_BASE_URL"
    sdk: ClassVar[str] = "google.genai"

    def dialect(
        self, system: str, functions: Sequence[Function], settings: ModelSettings
    ) -> GeminiDialect:
        return GeminiDialect(self.model, self.profile, system, functions, settings)

    def endpoint(self) -> Endpoint:
        sdk = required_package("google.genai", "google-genai[aiohttp]>=3,<4", "gemini", self.name)
        from treefold.models.gemini.sdk import GeminiSdk  # noqa: PLC0415 - loads aiohttp
        from treefold.models.http_endpoint import HttpEndpoint  # noqa: PLC0415 - loads aiohttp

        return HttpEndpoint(GeminiSdk(sdk, self.base_url, self.model), self.key(), self.key_name)
