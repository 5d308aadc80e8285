"""The format of Anthropic's messages."""

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from treefold.core.errors import DefinitionError
from treefold.core.function import Function
from treefold.core.model import Caching
from treefold.core.transcript import (
    ModelText,
    ThinkingPart,
    ToolResult,
    ToolUse,
    TranscriptPart,
    UserText,
)
from treefold.models.anthropic.decoder import AnthropicDecoder
from treefold.models.call_ids import CallIds
from treefold.models.dialect import Dialect, make_tool_use
from treefold.models.json_text import parse_json, to_json
from treefold.models.profiles import Thinking

_MAX_TOKENS: Final = 32_000  # the protocol requires a number


class AnthropicDialect(Dialect):
    """Messages whose blocks are kept as they were received."""

    name: ClassVar[str] = "anthropic-messages"
    call_ids: ClassVar[CallIds] = CallIds(invalid=re.compile(r"[^a-zA-Z0-9_-]"), once=True)

    def fields(self, system: str) -> dict[str, Any]:
        settings = self.settings
        fields: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self._max_tokens,
            "stream": True,
        }
        if system:
            fields["system"] = system
        thinking = self._thinking()
        if thinking:
            fields["thinking"] = thinking
        fields |= self.sampling
        if self.functions:
            fields["tools"] = tools = [self._tool(function) for function in self.functions.values()]
            names = [tool["name"] for tool in tools]
            if len(set(names)) < len(names):
                raise DefinitionError(f"two functions have the same name for this model: {names}")
            fields["tool_choice"] = {"type": "auto" if settings.call_functions else "none"}
        if settings.response_schema is not None:
            schema = {"type": "json_schema", "schema": settings.response_schema}
            fields["output_config"] = {"format": schema}
        return fields

    @property
    def _max_tokens(self) -> int:
        return self.settings.max_tokens or self.profile.max_tokens or _MAX_TOKENS

    def _thinking(self) -> dict[str, Any] | None:
        if self.profile.thinking is Thinking.ADAPTIVE and self.settings.thinking != 0:
            return {"type": "adaptive"}
        budget = self.thinking
        return {"type": "enabled", "budget_tokens": budget} if budget else None

    @property
    def thinking(self) -> int:
        budget = super().thinking
        # Thinking that is not interleaved with calls is part of max_tokens.
        if not (self.functions and self._interleaves):
            budget = min(budget, self._max_tokens * 3 // 4)
        return budget if budget >= self.profile.least_thinking else 0

    @property
    def _interleaves(self) -> bool:
        # The headers may be others: a key for a gateway, another beta.
        headers = self.profile.headers.items()
        betas = [value for name, value in headers if name.lower() == "anthropic-beta"]
        return any("interleaved-thinking" in value for value in betas)

    def _tool(self, function: Function) -> dict[str, Any]:
        trained = self.profile.trained_tools.get(function.trained_as or "")
        if trained:
            return dict(trained)
        return {
            "name": function.name,
            "description": function.description,
            "input_schema": function.input_schema,
        }

    def _wire_name(self, call: ToolUse) -> str:
        function = self.functions.get(call.name)
        return call.name if function is None else self._tool(function)["name"]

    def _function_name(self, name: str) -> str:
        """Return the name of the function whose name on the wire is *name*."""
        for function in self.functions.values():
            trained = self.profile.trained_tools.get(function.trained_as or "")
            if trained and trained["name"] == name:
                return function.name
        return name

    def write(
        self, results: Sequence[tuple[ToolUse, ToolResult]], texts: Sequence[UserText]
    ) -> list[str]:
        blocks: list[dict[str, Any]] = []
        for call, result in results:
            block = {"type": "tool_result", "tool_use_id": call.id, "content": result.content}
            blocks.append(block | {"is_error": True} if result.is_error else block)
        blocks += [{"type": "text", "text": text.text} for text in texts]
        return [to_json({"role": "user", "content": blocks})] if blocks else []

    def write_response(self, text: str, calls: Sequence[ToolUse]) -> str:
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        for call in calls:
            block = {"type": "tool_use", "id": call.id, "name": self._wire_name(call)}
            blocks.append(block | {"input": dict(call.args)})
        return to_json({"role": "assistant", "content": blocks})

    @property
    def accepts_foreign_calls(self) -> bool:
        # With thinking, a call without the thinking that led to it is rejected.
        return self._thinking() is None

    def add_cache_marker(self, message: str) -> str:
        """Put the cache marker on the last block of the newest message."""
        if self.settings.caching in {None, Caching.NONE}:
            return message
        mark = to_json({"type": "ephemeral", "ttl": self.settings.caching})
        assert message.endswith("}]}")  # as ``write`` encodes it
        return f'{message[:-3]},"cache_control":{mark}}}]}}'

    def read(self, message: str, position: int, pending: Sequence[ToolUse]) -> list[TranscriptPart]:
        match parse_json(message):
            case {"role": str(role), "content": [*blocks]}:
                parts = [self._part(role, block) for block in blocks]
                return [part for part in parts if part is not None]
            case _:
                return []

    def _part(self, role: str, block: Any) -> TranscriptPart | None:
        match block:
            case {"type": "text", "text": str(text)}:
                return UserText(text) if role == "user" else ModelText(text)
            case {"type": "tool_result", "tool_use_id": str(id), "content": str(content)}:
                return ToolResult(id, content, bool(block.get("is_error")))
            case {"type": "tool_use", "id": str(id), "name": str(name), "input": args}:
                return make_tool_use(id, self._function_name(name), args)
            case {"type": "thinking", "thinking": str(text), "signature": str(signature)}:
                return ThinkingPart(text, signature)
            case {"type": "redacted_thinking", "data": str(data)}:
                return ThinkingPart("", data, redacted=True)
            case _:
                return None  # a block that is kept, but has no counterpart in a transcript

    def decoder(self) -> AnthropicDecoder:
        return AnthropicDecoder(self.profile)
