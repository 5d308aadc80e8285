"""Estimates how many tokens a history takes, and shortens it.

The functions take plain messages, as in ``client.history``, and do not modify them. A client never
calls them by itself: only the program decides what to leave out.
"""

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from treefold.chat.encodings import find_encoding
from treefold.core.errors import InvalidValueError
from treefold.core.messages import Message

_OVERHEAD: Final = 4  # tokens around each message
_CHARACTERS: Final = 4  # in one token, roughly


def estimate_tokens(messages: Sequence[Message], model: str = "gpt-3.5-turbo") -> int:
    """Return an estimate of the number of tokens in *messages*.

    With ``treefold[context]`` installed and tiktoken's data for *model* on this machine, texts and
    calls are counted in tokens: nearly exact for OpenAI's models, less so for others. Otherwise
    every four characters count as a token. Nothing is downloaded. Leave a margin of 10 to 20
    percent.

    Example:
        >>> from treefold import estimate_tokens
        >>> messages = [{"role": "user", "content": "Hello! " * 100}]
        >>> 100 < estimate_tokens(messages) < 250
        True
    """
    _check(messages)
    encoding = find_encoding(model)
    if encoding is None:
        return sum(len(str(value)) for m in messages for value in m.values()) // _CHARACTERS
    return sum(
        _OVERHEAD + sum(len(encoding.encode_ordinary(text)) for text in _texts(message))
        for message in messages
    )


def truncate_messages(
    messages: Sequence[Message],
    keep: int = 10,
    preserve_system: bool = True,  # noqa: FBT001, FBT002 - the documented signature
) -> list[Message]:
    """Return the last *keep* of *messages*, preceded by the first if it is a system message.

    Exactly that many are kept, even if this separates a call from its result; a client repairs such
    a history when it sends it. ``compact_messages`` keeps calls and results together.

    Example:
        >>> from treefold import truncate_messages
        >>> history = [
        ...     {"role": "system", "content": "Be brief."},
        ...     {"role": "user", "content": "Hello"},
        ...     {"role": "assistant", "content": "Hi!"},
        ... ]
        >>> [message["role"] for message in truncate_messages(history, keep=1)]
        ['system', 'assistant']
    """
    _check(messages)
    if not isinstance(keep, int) or isinstance(keep, bool) or keep < 0:
        raise InvalidValueError(f"keep={keep!r} is the number of messages to keep: 0 or more")
    if len(messages) <= keep:
        return list(messages)
    newest = messages[len(messages) - keep :]
    if preserve_system and messages[0].get("role") == "system":
        return [messages[0], *newest]
    return list(newest)


def compact_messages(
    messages: Sequence[Message], max_tokens: int, model: str = "gpt-3.5-turbo"
) -> list[Message]:
    """Return as many whole exchanges from the end of *messages* as fit into *max_tokens*.

    An exchange is a user message and all that follows it, up to the next user message. No call is
    separated from its result. System messages and the last exchange are always kept, even if they
    take more than *max_tokens*.

    Example:
        >>> from treefold import compact_messages
        >>> history = [
        ...     {"role": "system", "content": "Be brief."},
        ...     {"role": "user", "content": "Tell me about bees." * 100},
        ...     {"role": "assistant", "content": "They buzz."},
        ...     {"role": "user", "content": "And birds?"},
        ...     {"role": "assistant", "content": "They sing."},
        ... ]
        >>> [message["content"] for message in compact_messages(history, max_tokens=100)]
        ['Be brief.', 'And birds?', 'They sing.']
    """
    _check(messages)
    if not isinstance(max_tokens, int | float) or isinstance(max_tokens, bool) or max_tokens < 0:
        raise InvalidValueError(f"max_tokens={max_tokens!r} is a number of tokens: 0 or more")
    starts = _exchanges(messages)

    def newest(exchanges: int) -> list[Message]:
        start = starts[-exchanges]
        system = [message for message in messages[:start] if message.get("role") == "system"]
        return [*system, *messages[start:]]

    # More exchanges never take fewer tokens, so a binary search finds how many fit.
    fitting = bisect_right(
        range(1, len(starts) + 1), max_tokens, key=lambda n: estimate_tokens(newest(n), model)
    )
    return newest(max(1, fitting))


def _check(messages: Sequence[Message]) -> None:
    for message in messages:
        if not isinstance(message, Mapping):
            raise InvalidValueError(
                f"a message is a dict with 'role' and 'content', as in client.history, not"
                f" {message!r}"
            )


def _texts(message: Message) -> Iterator[str]:
    """Yield the texts of a message that are counted: its content and its calls."""
    content = message.get("content")
    for part in cast("list[Any]", content) if isinstance(content, list) else [content]:
        match part:
            case None:
                pass
            case str(text) | {"type": "text", "text": str(text)}:
                yield text
            case _:
                yield _json(part)
    for call in message.get("tool_calls") or ():
        match call:
            case {"function": {"name": str(name), "arguments": arguments}}:
                yield name
                yield arguments if isinstance(arguments, str) else _json(arguments)
            case _:
                yield _json(call)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _exchanges(messages: Sequence[Message]) -> list[int]:
    """Return the index at which each exchange begins; the first is 0."""
    # For each message with calls, the index of the last of their results.
    result_of: dict[int, int] = {}
    for result, call in _calls_of_results(messages).items():
        result_of[call] = max(result, result_of.get(call, 0))
    starts, awaited = [0], 0
    for i, message in enumerate(messages):
        if message.get("role") == "user" and i > awaited:
            starts.append(i)
        awaited = max(awaited, result_of.get(i, 0))
    return starts


def _calls_of_results(messages: Sequence[Message]) -> dict[int, int]:
    """Return, by the index of each result, the index of its call.

    A server may use an id again for a later call; the newest call before the result counts.
    """
    made: dict[Any, int] = {}
    found: dict[int, int] = {}
    for i, message in enumerate(messages):
        for call in message.get("tool_calls") or ():
            if isinstance(call, Mapping):
                made[cast("Message", call).get("id")] = i
        if message.get("role") == "tool" and message.get("tool_call_id") in made:
            found[i] = made[message["tool_call_id"]]
    return found
