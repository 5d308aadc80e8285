"""Claude, through Anthropic's API."""

from collections.abc import Sequence
from typing import ClassVar

from treefold.core.function import Function
from treefold.core.model import ModelSettings
from treefold.core.provider import Provider
from treefold.models.anthropic.dialect import AnthropicDialect
from treefold.models.attempt import Endpoint
from treefold.models.wire_model import WireModel, required_package


class AnthropicModel(WireModel):
    """A model of Anthropic, by default with the largest thinking budget of its family.

    Example:
        >>> from treefold.models import AnthropicModel
        >>> AnthropicModel("claude-opus-5-5").profile.context_window
        1000000
    """

    provider = Provider.Anthropic
    key_names: ClassVar[tuple[str, ...]] = ("ANTHROPIC_API_KEY",)
    url_name: ClassVar[str] = "ANTHROPIC_BASE_URL"
    sdk: ClassVar[str] = "anthropic"

    def dialect(
        self, system: str, functions: Sequence[Function], settings: ModelSettings
    ) -> AnthropicDialect:
        return AnthropicDialect(self.model, self.profile, system, functions, settings)

    def endpoint(self) -> Endpoint:
        sdk = required_package("anthropic", "anthropic[aiohttp]>=2", "anthropic", self.name)
        from treefold.models.http_endpoint import HttpEndpoint  # noqa: PLC0415 - loads aiohttp
        from treefold.models.sdk_client import SdkClient  # noqa: PLC0415 - loads httpx2

        return HttpEndpoint(
            SdkClient(sdk, "AsyncAnthropic", self.base_url, "v1/messages", self.profile.headers),
            self.key(),
            self.key_name,
        )
