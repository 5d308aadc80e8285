"""A model that runs in this process: no key, no server, no GPU."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final

from treefold.core.errors import InvalidValueError, UsageError
from treefold.core.function import Function
from treefold.core.model import ModelSettings
from treefold.core.provider import Provider
from treefold.models.attempt import ByteStream
from treefold.models.local.call_schema import call_schema
from treefold.models.local.catalogue import QWEN_CODER_15B, SMOLLM2, find_weights, named_weights
from treefold.models.local.gguf import read_metadata
from treefold.models.local.llama import XLLAMACPP, LlamaServer, shared_server
from treefold.models.local.weights import find_candidate, find_verified, not_fetched
from treefold.models.openai.dialect import OpenAIDialect
from treefold.models.openai.model import OpenAIModel
from treefold.models.profiles import Profile, profile_of
from treefold.models.request_error import RequestError
from treefold.models.retry import Retry, Timers
from treefold.models.wire_model import package_is_missing

_CONTEXT: Final = 8192  # tokens
_PACKAGES: Final = {"xllamacpp": XLLAMACPP, "openai": "openai[aiohttp]>=3"}


class LocalModel(OpenAIModel):
    """llama.cpp in this process, with any GGUF file; by default a small model to download.

    It starts with the first request, is shared by all sessions, and computes one request at a time
    on *threads* threads, by default one less than there are cores.

    Args:
        path: a GGUF file, or the name of a model that ``treefold local`` lists.
        threads: the number of computing threads.
        context: the size of the context in tokens, limited to what the model was trained for.
        chat_template: the Jinja template that makes a prompt of the messages and functions; by
            default the one of the profile, or else the one in the file.
        profile: what the model accepts.
        retry: how failed requests are repeated.
        timers: how long to wait for a response.

    Example:
        >>> from treefold.models import LocalModel
        >>> LocalModel()
        <LocalModel local>
        >>> LocalModel("qwen2.5-coder-1.5b")
        <LocalModel local:qwen2.5-coder-1.5b>
    """

    provider = Provider.Local
    key_names: ClassVar[tuple[str, ...]] = ()
    url_name: ClassVar[str] = ""  # it has no other address
    caller: ClassVar[str] = f"a model that can, such as {QWEN_CODER_15B.model_name}"

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        threads: int | None = None,
        context: int = _CONTEXT,
        chat_template: str | None = None,
        profile: Profile | None = None,
        retry: Retry | None = None,
        timers: Timers | None = None,
    ) -> None:
        self._weights = SMOLLM2 if path is None else find_weights(str(path))
        self.path = None if path is None or self._weights is not None else Path(path)
        self._file = self._weights.file if self._weights else Path(path or "").name
        self.threads = threads
        self.context = context
        model = Path(self._file).stem
        super().__init__(
            model,
            profile=profile or replace(profile_of(Provider.Local, model), context_window=context),
            retry=retry,
            timers=timers,
        )
        self.chat_template = _checked_template(chat_template) or self.profile.chat_template

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return f"local:{self.path}" if self._weights is None else self._weights.model_name

    def endpoint(self) -> "LocalEndpoint":
        path = self._candidate()
        if path is None:
            raise UsageError(not_fetched(self._weights or SMOLLM2))
        read_metadata(path)  # raises if it is not a GGUF file
        for package, requirement in _PACKAGES.items():
            if find_spec(package) is None:
                raise UsageError(package_is_missing(requirement, "local"))
        return LocalEndpoint(self, path.name)

    def _candidate(self) -> Path | None:
        """Return the file, which is not verified yet if it is in the hub's cache."""
        if self._weights is not None:
            return find_candidate(self._weights)
        path = (self.path or Path()).expanduser()
        if path.parent == Path() and path.suffix != ".gguf" and not path.exists():
            named_weights(path.name)  # raises
        return path

    def start(self) -> LlamaServer:
        """Return the server that runs the model; the first call verifies and loads the file."""
        path = self._candidate() if self._weights is None else find_verified(self._weights)
        if path is None:
            raise UsageError(not_fetched(self._weights or SMOLLM2))
        return shared_server(
            path, threads=self.threads, context=self.context, chat_template=self.chat_template
        )

    def dialect(
        self, system: str, functions: Sequence[Function], settings: ModelSettings
    ) -> OpenAIDialect:
        if functions and self.profile.calls_in_text and self.calls_functions:
            settings = replace(settings, extra=_text_calls(functions, settings))
        return super().dialect(system, functions, settings)

    @property
    def _is_known_provider(self) -> bool:
        return False

    @property
    def calls_functions(self) -> bool:
        return super().calls_functions and self._template_has_tools()

    def _template_has_tools(self) -> bool:
        """Whether the chat template supports functions, as far as it is known."""
        template = self.chat_template
        if template is None and (path := self._candidate()) is not None:
            template = read_metadata(path).chat_template
        return template is None or "tools" in template


def _checked_template(template: str | None) -> str | None:
    if template is None or "{" in template:
        return template
    raise InvalidValueError(
        f"chat_template must be the text of a Jinja template, got {template!r}; of a file, give"
        " Path(...).read_text()"
    )


def _text_calls(functions: Sequence[Function], settings: ModelSettings) -> dict[str, Any]:
    """Return the fields of a request to a model that writes its calls as text."""
    # llama.cpp then shows the functions to the model and leaves its calls in the text. If it parsed
    # them, it would reject each response that is not exactly as it expects.
    fields: dict[str, Any] = {"tool_choice": "none"}
    # An agent with a declared result ends with a call, so that all its responses are calls. Without
    # a grammar, a small model makes a result up before it has called anything else.
    returns = any(function.answer_schema is not None for function in functions)
    if returns and len(functions) > 1 and settings.call_functions:
        schema = call_schema(functions)
        if schema is not None:
            form = {"name": "call", "schema": schema}
            fields["response_format"] = {"type": "json_schema", "json_schema": form}
    return fields | dict(settings.extra)


class LocalEndpoint:
    """A llama.cpp server in this process, started with the first request."""

    key_name = ""

    def __init__(self, model: LocalModel, file: str) -> None:
        self._model = model
        self.address = f"this process ({file})"

    def scrub(self, error: RequestError) -> RequestError:
        return error  # its key is valid in this process only

    async def open(self, body: bytes) -> ByteStream:
        server = await asyncio.to_thread(self._model.start)  # loading blocks
        model = OpenAIModel(self._model.model, base_url=server.base_url, api_key=server.api_key)
        return await model.endpoint().open(body)
