"""The base of the providers' message formats; all of it pure.

A dialect is created for one session: it knows the system prompt, the functions and the settings,
encodes inputs as messages, builds requests, and decodes messages into parts of a transcript.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, Self, cast

from treefold.core.errors import DefinitionError, InvalidValueError
from treefold.core.function import Function, checked_function
from treefold.core.model import ModelSettings
from treefold.core.parameter import JsonSchema
from treefold.core.transcript import ToolResult, ToolUse, TranscriptPart, UserText
from treefold.models.call_ids import CallIds
from treefold.models.decoder import INVALID_ARGS_KEY, UNNAMED, Decoder
from treefold.models.json_text import to_json
from treefold.models.profiles import Profile, Thinking

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
_SCHEMA_PROMPT: Final = "Answer with JSON of this schema, and nothing else:"


class Dialect(ABC):
    """The wire format of one session.

    Attributes:
        notices: for the user, to be emitted with the next response.
        noticed: notices that decoders have emitted; each is emitted once in a session.
    """

    name: ClassVar[str]  # saved with each exchange
    may_lack_functions: ClassVar[bool] = False  # whether some servers cannot call functions
    messages_key: ClassVar[str] = "messages"
    call_ids: ClassVar[CallIds] = CallIds()

    def __init__(
        self,
        model: str,
        profile: Profile,
        system: str,
        functions: Sequence[Function],
        settings: ModelSettings,
    ) -> None:
        self.model = model
        self.profile = profile
        self.system = system
        self.settings = settings
        self.functions = functions_by_name(functions)
        self._check_settings()
        self.notices = self._notices()
        self.noticed = set[str]()
        fields = self.fields(system)
        try:
            head = to_json(_merged(fields, settings.extra) if settings.extra else fields)
        except (TypeError, ValueError) as error:
            raise InvalidValueError(f"the request cannot be sent to a model: {error}") from None
        first = f"{message}," if (message := self.leading_message(system)) else ""
        self._head = f'{head[:-1]},"{self.messages_key}":[{first}'.encode()

    def _check_settings(self) -> None:
        if self.settings.response_schema is not None and self.functions:
            raise InvalidValueError(
                "response_schema and functions exclude each other: give the model a function that"
                " takes the result instead"
            )
        if fixed := {self.messages_key, "stream"} & self.settings.extra.keys():
            names = ", ".join(sorted(fixed))
            raise InvalidValueError(f"{names} cannot be set by 'extra': the session sets it")

    def _notices(self) -> list[str]:
        settings, notices = self.settings, list[str]()
        if not self.profile.sampling and (settings.temperature, settings.top_p) != (None, None):
            notices.append(f"{self.model} takes no temperature or top_p; they were not sent")
        if settings.thinking and not self.thinking:
            notices.append(f"{self.model} takes no thinking budget of {settings.thinking}")
        return notices

    @property
    def answer_schema(self) -> JsonSchema | None:
        """The schema of an answer that replaces the call of one of the functions, if any."""
        schemas = (function.answer_schema for function in self.functions.values())
        return next((schema for schema in schemas if schema is not None), None)

    @property
    def prefers_schema(self) -> bool:
        """Whether to request the result by a response schema, although the model may call."""
        by_schema = self.profile.results_by_schema and len(self.functions) == 1
        return bool(by_schema) and self.answer_schema is not None

    def without_functions(self) -> Self:
        """Return the same dialect for a server or model that cannot call functions.

        A result that the model would return by a call is requested by a response schema instead.

        Raises:
            DefinitionError: there are other functions besides the one for the result.
        """
        system, settings, schema = self.system, self.settings, self.answer_schema
        if schema is not None:
            if len(self.functions) > 1:
                raise DefinitionError(
                    f"{self.model} cannot call functions, so it cannot both use functions and"
                    " return a result of a declared type; choose a model that can, or leave out"
                    " 'uses' or 'returns'"
                )
            settings = replace(settings, response_schema=schema)
            # A grammar only constrains the answer; the model needs to see the names of the fields.
            system = f"{system}\n\n{_SCHEMA_PROMPT}\n{to_json(schema)}".lstrip()
        return type(self)(self.model, self.profile, system, (), settings)

    @property
    def sampling(self) -> dict[str, Any]:
        """The sampling parameters that are set and that the model accepts."""
        parameters: dict[str, Any] = {}
        if not self.profile.sampling:
            return parameters
        temperature, top_p = self.settings.temperature, self.settings.top_p
        if temperature is None:
            temperature = self.profile.temperature
        if temperature is not None:
            parameters["temperature"] = temperature
        if top_p is not None:
            parameters["top_p"] = top_p
        return parameters

    @property
    def thinking(self) -> int:
        """The thinking budget in tokens; 0 for no thinking, or no explicit budget."""
        profile, requested = self.profile, self.settings.thinking
        if profile.thinking is not Thinking.BUDGET:
            return 0
        budget = profile.thinking_budget if requested is None else requested
        return budget or 0

    @abstractmethod
    def fields(self, system: str) -> dict[str, Any]:
        """Return all fields of a request except the messages."""

    @abstractmethod
    def write(
        self, results: Sequence[tuple[ToolUse, ToolResult]], texts: Sequence[UserText]
    ) -> list[str]:
        """Return inputs as messages, the results in the order of their calls."""

    @abstractmethod
    def write_response(self, text: str, calls: Sequence[ToolUse]) -> str:
        """Return *text* and *calls* as the message of a model that wrote them."""

    @abstractmethod
    def read(self, message: str, position: int, pending: Sequence[ToolUse]) -> list[TranscriptPart]:
        """Return the parts of a message.

        Args:
            message: as JSON text.
            position: of the message in the history.
            pending: the calls whose results it may hold.
        """

    def read_response(self, message: str, position: int) -> tuple[list[TranscriptPart], str]:
        """Return the parts of a received message, and the form in which requests repeat it."""
        return self.read(message, position, ()), message

    @abstractmethod
    def decoder(self) -> Decoder:
        """Return a decoder for one response."""

    @property
    def accepts_foreign_calls(self) -> bool:
        """Whether the provider accepts the result of a call that its model did not make."""
        return True

    def add_cache_marker(self, message: str) -> str:
        """Return the newest message with a marker up to which the provider caches the prompt."""
        return message

    def leading_message(self, system: str) -> str:
        """Return a message that precedes all others, as JSON text; empty if there is none."""
        return ""

    def body(self, history: Sequence[bytes], newest: Sequence[str]) -> bytes:
        """Return the body of a request."""
        messages = [*history, *map(str.encode, newest)]
        if newest:
            messages[-1] = self.add_cache_marker(newest[-1]).encode()
        messages[0] = self._head + messages[0]
        messages[-1] += b"]}"
        return b",".join(messages)  # the only copy of a long history


def functions_by_name(functions: Sequence[Function]) -> dict[str, Function]:
    """Return *functions* by name.

    Raises:
        DefinitionError: a name is not accepted by every provider, or used twice.
    """
    found: dict[str, Function] = {}
    if isinstance(functions, Function | str):
        raise DefinitionError(f"functions must be a list of functions, got {functions!r}")
    for function in functions:
        checked_function(function, "a model")
        if not _NAME.fullmatch(function.name):
            raise DefinitionError(
                f"a model cannot call a function named {function.name!r}: use up to 64 letters,"
                " digits, underscores and dashes, not beginning with a digit or dash"
            )
        if found.setdefault(function.name, function) is not function:
            raise DefinitionError(f"two functions are named {function.name!r}; rename one")
    return found


def _merged(fields: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return *fields* updated with *extra*; nested objects are merged."""
    found = dict(fields)
    for key, value in extra.items():
        known = found.get(key)
        nested = isinstance(known, dict) and isinstance(value, Mapping)
        found[key] = _merged(*cast("Any", (known, value))) if nested else value
    return found


def make_tool_use(id: str, name: str, args: Any) -> ToolUse:
    """Return the call for a message of the history, with its ``fault`` if it has one."""
    if not isinstance(args, dict):
        return ToolUse.unreadable(id, name, f"{args}")
    fields = cast("dict[str, Any]", args)
    if fields.keys() != {INVALID_ARGS_KEY}:
        return ToolUse(id, name, fields)
    if name == UNNAMED:
        return ToolUse(id, name, {}, "the call has no name")
    return ToolUse.unreadable(id, name, f"{fields[INVALID_ARGS_KEY]}")
