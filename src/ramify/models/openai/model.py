"""OpenAI, and every server that speaks its protocol."""

from collections.abc import Sequence
from typing import ClassVar, Final

from ramify.core.errors import InvalidValueError
from ramify.core.function import Function
from ramify.core.model import ModelSettings, Provider
from ramify.models.attempt import Endpoint
from ramify.models.openai.dialect import OpenAIDialect
from ramify.models.profiles import Profile
from ramify.models.retry import Retry, Timers
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
        >>> from ramify.models.openai.model import OpenAIModel
        >>> OpenAIModel("qwen3", base_url="ollama")
        <OpenAIModel openai:qwen3@http://localhost:11434/v1>
    """

    provider = Provider.OpenAI
    key_names: ClassVar[tuple[str, ...]] = ("OPENAI_API_KEY",)
    url_name: ClassVar[str] = "OPENAI_BASE_URL"

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        profile: Profile | None = None,
        retry: Retry | None = None,
        timers: Timers | None = None,
    ) -> None:
        super().__init__(
            model,
            base_url=None if base_url is None else address_of(base_url),
            api_key=api_key,
            profile=profile,
            retry=retry,
            timers=timers,
        )
        self._is_elsewhere = base_url is not None

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        at = f"@{public_url(self.base_url)}" if self.base_url else ""
        return f"{self.provider}:{self.model}{at}"

    def dialect(
        self, system: str, functions: Sequence[Function], settings: ModelSettings
    ) -> OpenAIDialect:
        return OpenAIDialect(self.model, self.profile, system, functions, settings)

    def key(self) -> Secret:
        if self._is_elsewhere and self._api_key is None:  # OpenAI's key is nobody else's business
            return Secret(_NO_KEY)
        return super().key()

    def endpoint(self) -> Endpoint:
        sdk = required_package("openai", "openai")
        from ramify.models.httpx_endpoint import HttpxEndpoint  # noqa: PLC0415 - loads aiohttp

        return HttpxEndpoint(
            SdkClient(sdk, "AsyncOpenAI", self.base_url, "chat/completions", self.profile.headers),
            self.key(),
            self.key_names[0],
        )


def address_of(base_url: str) -> str:
    """Return the address that *base_url*, perhaps the name of a local server, stands for."""
    if ":" in base_url:
        return base_url
    if base_url.lower() not in LOCAL_SERVERS:
        known = ", ".join(LOCAL_SERVERS)
        raise InvalidValueError(
            f"base_url {base_url!r} is not an address such as http://localhost:8080/v1, nor one of"
            f" {known}"
        )
    return LOCAL_SERVERS[base_url.lower()]
