"""Claude, through Anthropic's API."""

from collections.abc import Sequence
from typing import ClassVar

from ramify.core.function import Function
from ramify.core.model import ModelSettings
from ramify.core.provider import Provider
from ramify.models.anthropic.dialect import AnthropicDialect
from ramify.models.attempt import Endpoint
from ramify.models.wire_model import SdkClient, WireModel, required_package


class AnthropicModel(WireModel):
    """A model of Anthropic's, by default with as much thinking as its family allows.

    Example:
        >>> from ramify.models import AnthropicModel
        >>> AnthropicModel("claude-opus-4-1").profile.thinking_budget
        64000
    """

    provider = Provider.Anthropic
    key_names: ClassVar[tuple[str, ...]] = ("ANTHROPIC_API_KEY",)
    url_name: ClassVar[str] = "ANTHROPIC_BASE_URL"

    def dialect(
        self, system: str, functions: Sequence[Function], settings: ModelSettings
    ) -> AnthropicDialect:
        return AnthropicDialect(self.model, self.profile, system, functions, settings)

    def endpoint(self) -> Endpoint:
        sdk = required_package("anthropic", "anthropic[aiohttp]>=2")
        from ramify.models.httpx_endpoint import HttpxEndpoint  # noqa: PLC0415 - loads aiohttp

        return HttpxEndpoint(
            SdkClient(sdk, "AsyncAnthropic", self.base_url, "v1/messages", self.profile.headers),
            self.key(),
            self.key_names[0],
        )
