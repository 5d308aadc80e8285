"""Models of OpenAI, and of every server that speaks its protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from treefold.core.function import Function
from treefold.core.model import ModelSettings
from treefold.core.provider import Provider
from treefold.models.attempt import Endpoint
from treefold.models.openai.decoder import TEXT_CALLS_NOTICE
from treefold.models.openai.dialect import OpenAIDialect
from treefold.models.secret import Secret, public_url
from treefold.models.wire_model import WireModel, required_package

# The default addresses of the usual local servers.
LOCAL_SERVERS: Final = {
    "llamacpp": "http://localhost:8080/v1",
    "lmstudio": "http://localhost:1234/v1",
    "ollama": "http://localhost:11434/v1",
    "vllm": "http://localhost:8000/v1",
}

# Providers whose servers recognize the calls of their models.
_PROVIDERS: Final = (
    ".openai.com",
    ".azure.com",
    ".anthropic.com",
    ".googleapis.com",
    ".openrouter.ai",
    ".deepseek.com",
    ".mistral.ai",
    ".groq.com",
    ".together.xyz",
    ".together.ai",
    ".fireworks.ai",
    ".x.ai",
    ".perplexity.ai",
    ".cerebras.ai",
    ".sambanova.ai",
    ".cohere.com",
    ".cohere.ai",
    ".moonshot.ai",
    ".moonshot.cn",
    ".z.ai",
    ".bigmodel.cn",
    ".minimax.io",
    ".aliyuncs.com",
    ".amazonaws.com",
    ".nvidia.com",
)

_NO_KEY: Final = "not-needed"


class OpenAIModel(WireModel):
    """A model of any server that implements OpenAI's chat completions.

    *base_url* is an address or one of ``llamacpp``, ``lmstudio``, ``ollama``, ``vllm``. Without
    *base_url* the server is OpenAI's, which needs a key.

    Example:
        >>> from treefold.models import OpenAIModel
        >>> OpenAIModel("qwen3", base_url="ollama")
        <OpenAIModel openai:qwen3@http://localhost:11434/v1>
    """

    provider = Provider.OpenAI
    key_names: ClassVar[tuple[str, ...]] = ("OPENAI_API_KEY",)
    url_name: ClassVar[str] = "OPENAI_BASE_URL"
    sdk: ClassVar[str] = "openai"
    servers: ClassVar[Mapping[str, str]] = LOCAL_SERVERS

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        at = f"@{public_url(self.base_url)}" if self.base_url else ""
        return f"{self.provider}:{self.model}{at}"

    def dialect(
        self, system: str, functions: Sequence[Function], settings: ModelSettings
    ) -> OpenAIDialect:
        profile, is_known = self.profile, self._is_known_provider
        if profile.calls_in_text is None:
            profile = replace(profile, calls_in_text=not is_known)
        if profile.results_by_schema is None:
            profile = replace(profile, results_by_schema=not is_known)
        dialect = OpenAIDialect(self.model, profile, system, functions, settings)
        if self.profile.calls_in_text:
            dialect.noticed.add(TEXT_CALLS_NOTICE)  # it is expected
        return dialect

    @property
    def _is_known_provider(self) -> bool:
        """Whether the server is known to recognize the calls of its models."""
        host = urlsplit(self.base_url).hostname if self.base_url else None
        return host is None or f".{host}".endswith(_PROVIDERS)

    @property
    def key_name(self) -> str:
        # OpenAI's key is not sent to another server.
        return "" if self._has_explicit_url else super().key_name

    def key(self) -> Secret:
        if self._has_explicit_url and self._api_key is None:
            return Secret(_NO_KEY)
        return super().key()

    def create_client(self) -> Any:
        """Return a client of the SDK for this server; the caller closes it."""
        sdk = required_package("openai", "openai[aiohttp]>=3", "openai", self.name)
        return sdk.AsyncOpenAI(
            base_url=self.base_url, api_key=self.key().reveal(), timeout=self.timers.first_byte
        )

    def endpoint(self) -> Endpoint:
        sdk = required_package("openai", "openai[aiohttp]>=3", "openai", self.name)
        from treefold.models.http_endpoint import HttpEndpoint  # noqa: PLC0415 - loads aiohttp
        from treefold.models.sdk_client import SdkClient  # noqa: PLC0415 - loads httpx2

        return HttpEndpoint(
            SdkClient(sdk, "AsyncOpenAI", self.base_url, "chat/completions", self.profile.headers),
            self.key(),
            self.key_name,
        )
