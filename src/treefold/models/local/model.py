"""A model that runs in this process: no key, no server, no GPU."""

import asyncio
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Final

from treefold.core.errors import UsageError
from treefold.core.provider import Provider
from treefold.models.attempt import ByteStream
from treefold.models.local.gguf import read_metadata
from treefold.models.local.llama import LlamaServer, shared_server
from treefold.models.local.weights import SMOLLM2, cached_weights
from treefold.models.openai.model import OpenAIModel
from treefold.models.profiles import Profile, profile_of
from treefold.models.request_error import RequestError
from treefold.models.retry import Retry, Timers

_CONTEXT: Final = 8192  # tokens
_PACKAGES: Final = {"xllamacpp": "xllamacpp>=2026.10", "openai": "openai[aiohttp]>=3"}


class LocalModel(OpenAIModel):
    """llama.cpp in this process, with any GGUF file; by default a small model to download.

    It starts with the first request, is shared by all sessions, and computes one request at a time
    on *threads* threads, by default one less than there are cores.

    Example:
        >>> from treefold.models import LocalModel
        >>> LocalModel()
        <LocalModel local>
    """

    provider = Provider.Local
    key_names: ClassVar[tuple[str, ...]] = ()
    url_name: ClassVar[str] = ""  # it has no other address

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        threads: int | None = None,
        context: int = _CONTEXT,
        profile: Profile | None = None,
        retry: Retry | None = None,
        timers: Timers | None = None,
    ) -> None:
        self.path = None if path is None else Path(path)
        self.threads = threads
        self.context = context
        model = (self.path or Path(SMOLLM2.file)).stem
        super().__init__(
            model,
            profile=profile or replace(profile_of(Provider.Local, model), context_window=context),
            retry=retry,
            timers=timers,
        )

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "local" if self.path is None else f"local:{self.path}"

    def endpoint(self) -> "LocalEndpoint":
        path = self.path or cached_weights()
        if path is None:
            size = SMOLLM2.size // 1_000_000
            raise UsageError(
                f"the default local model is not downloaded yet: fetch it once ({size} MB) with"
                " 'treefold local fetch', or use a GGUF file of your own: LocalModel('model.gguf')"
            )
        read_metadata(path.expanduser())  # raises if it is not a GGUF file
        for package, requirement in _PACKAGES.items():
            if find_spec(package) is None:
                raise UsageError(f"a package is missing: pip install '{requirement}'")
        return LocalEndpoint(self, path)

    @property
    def _is_known_provider(self) -> bool:
        return False

    @property
    def calls_functions(self) -> bool:
        path = self.path or cached_weights()
        supported = path is None or _template_has_tools(path.expanduser())
        return super().calls_functions and supported


@cache
def _template_has_tools(path: Path) -> bool:
    """Whether the chat template of a model supports functions, as far as the file says."""
    return "tools" in (read_metadata(path).chat_template or "tools")


class LocalEndpoint:
    """A llama.cpp server in this process, started with the first request."""

    key_name = ""

    def __init__(self, model: LocalModel, path: Path) -> None:
        self._model = model
        self._path = path
        self.address = f"this process ({path.name})"

    def scrub(self, error: RequestError) -> RequestError:
        return error  # its key is valid in this process only

    async def open(self, body: bytes) -> ByteStream:
        server = await asyncio.to_thread(self._server)  # loading blocks
        model = OpenAIModel(self._model.model, base_url=server.base_url, api_key=server.api_key)
        return await model.endpoint().open(body)

    def _server(self) -> LlamaServer:
        return shared_server(self._path, threads=self._model.threads, context=self._model.context)
