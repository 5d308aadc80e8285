"""How one provider writes a conversation down; all of it pure.

A dialect is made for one session: it knows the system prompt, the functions and the settings,
writes inputs as messages, puts requests together, and reads messages as parts of a transcript.
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
from treefold.core.transcript import NOT_JSON, ToolResult, ToolUse, TranscriptPart, UserText
from treefold.models.decoder import INVALID_ARGS_KEY, UNNAMED, Decoder
from treefold.models.json_text import to_json
from treefold.models.profiles import Profile, Thinking

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
_ANSWER: Final = "Answer with JSON of this schema, and nothing else:"


class Dialect(ABC):
    """The wire format of one session."""

    name: ClassVar[str]  # saved with each exchange
    may_lack_functions: ClassVar[bool] = False  # whether servers may be unable to call functions
    messages_key: ClassVar[str] = "messages"

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
        self.functions = checked_names(functions)
        self._check_settings()
        self.notices = self._notices()  # for whoever reads the next response
        self.noticed = set[str]()  # by decoders: each of these is said once in a session
        fields = self._encoded(_merged(self.fields(system), settings.extra))
        first = "".join(f"{message}," for message in self.opening(system))
        self._head = f'{fields[:-1]},"{self.messages_key}":[{first}'.encode()

    def _check_settings(self) -> None:
        if self.settings.response_schema is not None and self.functions:
            raise InvalidValueError(
                "a response_schema and functions exclude each other: give the model a function that"
                " takes the result instead"
            )
        if fixed := {self.messages_key, "stream"} & self.settings.extra.keys():
            names = ", ".join(sorted(fixed))
            raise InvalidValueError(f"{names} cannot be set by 'extra': a session needs its own")

    def _notices(self) -> list[str]:
        settings, notices = self.settings, list[str]()
        if not self.profile.sampling and (settings.temperature, settings.top_p) != (None, None):
            notices.append(f"{self.model} takes no temperature or top_p; they were left out")
        if settings.thinking and not self.thinking:
            notices.append(f"{self.model} takes no budget of {settings.thinking} for thinking")
        return notices

    def _encoded(self, fields: dict[str, Any]) -> str:
        try:
            return to_json(fields)
        except (TypeError, ValueError) as error:
            raise InvalidValueError(f"this cannot be sent to a model: {error}") from None

    @property
    def answer_schema(self) -> JsonSchema | None:
        """The schema of the answer that stands for the call of one of the functions, if any."""
        schemas = (function.answer_schema for function in self.functions.values())
        return next((schema for schema in schemas if schema is not None), None)

    @property
    def prefers_schema(self) -> bool:
        """Whether the result is asked for by a response schema, though the model may call."""
        wished = self.profile.results_by_schema and len(self.functions) == 1
        return bool(wished) and self.answer_schema is not None

    def without_functions(self) -> Self:
        """Return the same dialect for a server or model that cannot call functions.

        A result that the model would give by a call is asked for by a response schema instead.

        Raises:
            DefinitionError: there are other functions beside that one.
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
            # A grammar only shapes the answer; the names of the fields say what is wanted.
            system = f"{system}\n\n{_ANSWER}\n{to_json(schema)}".lstrip()
        return type(self)(self.model, self.profile, system, (), settings)

    @property
    def sampling(self) -> dict[str, Any]:
        """How to sample, as far as it is said and the model takes it."""
        temperature = self.settings.temperature
        if temperature is None:
            temperature = self.profile.temperature
        wished = {"temperature": temperature, "top_p": self.settings.top_p}
        if not self.profile.sampling:
            return {}
        return {name: value for name, value in wished.items() if value is not None}

    @property
    def thinking(self) -> int:
        """The budget for thinking in tokens; 0 for none, or none that is said."""
        profile, wished = self.profile, self.settings.thinking
        if profile.thinking is not Thinking.BUDGET:
            return 0
        budget = profile.thinking_budget if wished is None else wished
        return budget or 0

    @abstractmethod
    def fields(self, system: str) -> dict[str, Any]:
        """Return everything in a request but the messages."""

    @abstractmethod
    def write(
        self, results: Sequence[tuple[ToolUse, ToolResult]], texts: Sequence[UserText]
    ) -> list[str]:
        """Return inputs as messages, the results in the order in which they were asked for."""

    @abstractmethod
    def respond(self, text: str, calls: Sequence[ToolUse]) -> str:
        """Return what a model might have said, as the message that it would have been."""

    @abstractmethod
    def read(self, message: str, position: int, asked: Sequence[ToolUse]) -> list[TranscriptPart]:
        """Return what a message says; *position* is its place, *asked* the calls it may answer."""

    @abstractmethod
    def decoder(self) -> Decoder:
        """Return a decoder for one response."""

    @property
    def takes_foreign_calls(self) -> bool:
        """Whether a call that it never asked for may wait for its result."""
        return True

    def mark_newest(self, message: str) -> str:
        """Return the newest message as it is sent while it is the newest."""
        return message

    def opening(self, system: str) -> list[str]:
        """Return messages that come before all others."""
        return []

    def replayed(self, message: str) -> str:
        """Return a received message as it is sent back."""
        return message

    def body(self, history: Sequence[bytes], newest: Sequence[str]) -> bytes:
        """Return a whole request."""
        sent = [message.encode() for message in newest]
        if newest:
            sent[-1] = self.mark_newest(newest[-1]).encode()
        messages = [*history, *sent]
        messages[0] = self._head + messages[0]
        messages[-1] += b"]}"
        return b",".join(messages)  # the one copy of a long history


def checked_names(functions: Sequence[Function]) -> dict[str, Function]:
    """Return *functions* by name, if every provider takes those names."""
    found: dict[str, Function] = {}
    if isinstance(functions, Function | str):
        raise DefinitionError(f"the functions of a model are a list, not {functions!r}")
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
    """Return *fields* with *extra* put in, object by object."""
    found = dict(fields)
    for key, value in extra.items():
        known = found.get(key)
        inside = isinstance(known, dict) and isinstance(value, Mapping)
        found[key] = _merged(*cast("Any", (known, value))) if inside else value
    return found


def readable(id: str, name: str, args: Any) -> ToolUse:
    """Return the call that the history holds."""
    if not isinstance(args, dict):
        return ToolUse(id, name, {}, f"{NOT_JSON}{args}")
    fields = cast("dict[str, Any]", args)
    if fields.keys() != {INVALID_ARGS_KEY}:
        return ToolUse(id, name, fields)
    if name == UNNAMED:
        return ToolUse(id, name, {}, "the call has no name")
    return ToolUse(id, name, {}, f"{NOT_JSON}{fields[INVALID_ARGS_KEY]}")
