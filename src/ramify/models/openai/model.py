"""OpenAI, and every server that speaks its protocol."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from ramify.core.function import Function
from ramify.core.model import ModelSettings
from ramify.core.provider import Provider
from ramify.models.attempt import Endpoint
from ramify.models.openai.dialect import OpenAIDialect
from ramify.models.secret import Secret, public_url
from ramify.models.wire_model import SdkClient, WireModel, required_package

# Where the usual local servers listen unless told otherwise.
LOCAL_SERVERS: Final = {
    "llamacpp": "http://localhost:8080/v1",
    "lmstudio": "http://localhost:1234/v1",
    "ollama": "http://localhost:11434/v1",
    "vllm": "http://localhost:8000/v1",
}

_NO_KEY: Final = "not-needed"


class OpenAIModel(WireModel):
    """A model behind OpenAI's chat completions, wherever it runs.

    *base_url* is an address or one of ``llamacpp``, ``lmstudio``, ``ollama``, ``vllm``. Only OpenAI
    itself needs a key.

    Example:
        >>> from ramify.models import OpenAIModel
        >>> OpenAIModel("qwen3", base_url="ollama")
        <OpenAIModel openai:qwen3@http://localhost:11434/v1>
    """

    provider = Provider.OpenAI
    key_names: ClassVar[tuple[str, ...]] = ("OPENAI_API_KEY",)
    url_name: ClassVar[str] = "OPENAI_BASE_URL"
    servers: ClassVar[Mapping[str, str]] = LOCAL_SERVERS

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        at = f"@{public_url(self.base_url)}" if self.base_url else ""
        return f"{self.provider}:{self.model}{at}"

    def dialect(
        self, system: str, functions: Sequence[Function], settings: ModelSettings
    ) -> OpenAIDialect:
        return OpenAIDialect(self.model, self.profile, system, functions, settings)

    def key(self) -> Secret:
        if self._was_told_where and self._api_key is None:  # OpenAI's key is nobody else's business
            return Secret(_NO_KEY)
        return super().key()

    def endpoint(self) -> Endpoint:
        sdk = required_package("openai", "openai[aiohttp]>=3")
        from ramify.models.httpx_endpoint import HttpxEndpoint  # noqa: PLC0415 - loads aiohttp

        return HttpxEndpoint(
            SdkClient(sdk, "AsyncOpenAI", self.base_url, "chat/completions", self.profile.headers),
            self.key(),
            self.key_names[0],
        )
