"""Helpers for programs that talk to an OpenAI-compatible server themselves; a Client needs none."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from treefold.agents.prompts import SystemFunction
from treefold.chat.blocks import TextBlock, ToolUseBlock, ToolUseError
from treefold.chat.options import AgentOptions
from treefold.chat.parts import block_of
from treefold.core.errors import InvalidValueError
from treefold.core.exchange import Exchange
from treefold.core.function import Function
from treefold.core.messages import Message
from treefold.core.model_events import ModelEvent, TextDelta
from treefold.core.usage import TokenUsage
from treefold.models.decoder import RefusedError, StreamFailedError
from treefold.models.json_text import to_json
from treefold.models.openai.decoder import OpenAIDecoder
from treefold.models.openai.dialect import OpenAIDialect
from treefold.models.openai.model import OpenAIModel
from treefold.models.profiles import Profile
from treefold.models.reading import read_exchanges
from treefold.models.sse import BrokenStreamError
from treefold.runtime.limits.model_names import ModelNames

_DONE: Final = b"data: [DONE]\n\n"


def create_client(options: AgentOptions) -> Any:
    """Return an ``openai.AsyncOpenAI`` for the server of *options*; the caller has to close it.

    Raises:
        InvalidValueError: the model does not speak OpenAI's protocol.

    Example:
        >>> from treefold.chat import AgentOptions, create_client
        >>> create_client(AgentOptions("You are brief.", "qwen3", "ollama")).base_url
        URL('http://localhost:11434/v1/')
    """
    model = options.find_model(ModelNames())
    if not isinstance(model, OpenAIModel):
        raise InvalidValueError(
            f"{model.name} does not speak OpenAI's protocol: give the base_url of a server"
            " that does"
        )
    return model.create_client()


def format_messages(
    system_prompt: str | SystemFunction,
    user_prompt: str,
    history: Sequence[Message] | None = None,
) -> list[Message]:
    """Return the messages of a request: the system prompt, *history*, and the user prompt.

    An empty *user_prompt* is left out, since servers refuse empty messages.

    Raises:
        InvalidValueError: the system prompt is a function, which only a chat can call.

    Example:
        >>> from treefold.chat import format_messages
        >>> [message["role"] for message in format_messages("You are brief.", "Hello!")]
        ['system', 'user']
    """
    if not isinstance(system_prompt, str):
        raise InvalidValueError(f"the system prompt of a request is a text, not {system_prompt!r}")
    messages: list[Message] = [{"role": "system", "content": system_prompt}, *(history or ())]
    if user_prompt:
        messages.append({"role": "user", "content": user_prompt})
    return messages


def format_tools(tools: Sequence[Function]) -> list[dict[str, Any]]:
    """Return *tools* in OpenAI's format.

    Example:
        >>> from treefold.chat import format_tools, tool
        >>> @tool("add", "Add two numbers.", {"a": int, "b": int})
        ... async def add(args):
        ...     return args["a"] + args["b"]
        >>> format_tools([add])[0]["function"]["name"]
        'add'
    """
    return [tool.to_openai_format() for tool in tools]


class ToolCallAggregator:
    """Collects the tool calls of a streamed chat completion, with the decoder that a Client uses.

    Example:
        >>> from treefold.chat import ToolCallAggregator
        >>> aggregator = ToolCallAggregator()
        >>> call = {"index": 0, "id": "c", "function": {"name": "add", "arguments": '{"a": 1}'}}
        >>> aggregator.process_chunk({"choices": [{"delta": {"content": "Let me see."}}]})
        TextBlock(text='Let me see.', type='text')
        >>> aggregator.process_chunk({"choices": [{"delta": {"tool_calls": [call]}}]})
        >>> aggregator.finalize_tools()
        [ToolUseBlock(id='c', name='add', input={'a': 1}, type='tool_use')]
    """

    def __init__(self) -> None:
        self._decoder = self._new_decoder()

    def _new_decoder(self) -> OpenAIDecoder:
        return OpenAIDecoder(Profile(max_response_calls=None, max_response_chars=None))

    def process_chunk(self, chunk: Any) -> TextBlock | None:
        """Decode *chunk*, an object of the SDK or a dict; return the new text in it, if any."""
        return _text(self._decoder.feed(b"data: %b\n\n" % to_json(_plain(chunk)).encode()))

    def finalize_tools(self) -> list[TextBlock | ToolUseBlock | ToolUseError]:
        """Return the calls of the response, and reset for the next one.

        The decoder holds back text that could be the beginning of a tag; if there is such text
        left, it comes first.
        """
        decoder, self._decoder = self._decoder, self._new_decoder()
        held = _text([*decoder.feed(_DONE), *decoder.end()])
        try:
            response = decoder.response()
        except (BrokenStreamError, StreamFailedError, RefusedError):
            # The response was empty or a refusal.
            return [held] if held else []
        exchange = Exchange(
            dialect=OpenAIDialect.name,
            sent=(),
            received=(response.message,) if response.message is not None else (),
            finish=response.finish,
            usage=TokenUsage(),
        )
        [parts] = read_exchanges([exchange])
        blocks = [block_of(part) for part in parts]
        calls = [block for block in blocks if isinstance(block, ToolUseBlock | ToolUseError)]
        return [held, *calls] if held else [*calls]


def _text(events: Sequence[ModelEvent]) -> TextBlock | None:
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    return TextBlock(text) if text else None


def _plain(value: Any) -> Any:
    """Return *value*, an object of the SDK or one with the same attributes, as JSON data."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {key: _plain(inner) for key, inner in fields.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("list[Any]", value)]
    if value is None or isinstance(value, str | int | float):
        return value
    return _plain(cast("dict[str, Any]", vars(value)))
