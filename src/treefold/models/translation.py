"""Converts plain exchanges into the dialect of a provider.

Conversations move between providers by way of plain exchanges, which do not contain what only one
provider can read, such as the signature of its thinking.
"""

from collections.abc import Sequence
from typing import Any, Final

from treefold.core.exchange import PLAIN, Exchange, Finish
from treefold.core.transcript import ToolResult, ToolUse, UserText
from treefold.models.decoder import INVALID_ARGS_KEY
from treefold.models.dialect import Dialect
from treefold.models.json_text import parse_json, parse_json_object, to_json

_CALL_TEXT: Final = "[I asked for a call of {name} with {arguments}]"


def to_dialect(
    exchange: Exchange, dialect: Dialect, pending: Sequence[ToolUse] = (), *, is_last: bool = False
) -> Exchange:
    """Return *exchange* in *dialect* if it is a plain one; otherwise *exchange* itself.

    *pending* are the calls whose results it holds. Calls of the last exchange wait for their
    results, unless the provider accepts only results of its own calls: then they become text.
    """
    if exchange.dialect != PLAIN:
        return exchange
    texts: list[UserText] = []
    results: list[ToolResult] = []
    for message in map(parse_json, exchange.sent):
        if message["role"] == "tool":
            failed = message.get("is_error") is True
            results.append(ToolResult("", message["content"], failed))
        else:
            texts.append(UserText(message["content"]))
    received = [parse_json(message) for message in exchange.received]
    calls = [_call(call) for message in received for call in message.get("tool_calls") or ()]
    text = "".join(message["content"] for message in received)
    if is_last and calls and not dialect.accepts_foreign_calls:
        written = [
            _CALL_TEXT.format(name=call.name, arguments=to_json(dict(call.args))) for call in calls
        ]
        text, calls = "\n".join(filter(None, [text, *written])), []
    return Exchange(
        dialect=dialect.name,
        sent=tuple(dialect.write(list(zip(pending, results, strict=True)), texts)),
        received=(dialect.write_response(text, calls),) if received else (),
        finish=Finish.TOOL_USE if calls else Finish.ANSWERED,
        usage=exchange.usage,
    )


def _call(call: dict[str, Any]) -> ToolUse:
    function = call["function"]
    written = function["arguments"]
    args = parse_json_object(written)
    return ToolUse(
        call["id"], function["name"], {INVALID_ARGS_KEY: written} if args is None else args
    )
