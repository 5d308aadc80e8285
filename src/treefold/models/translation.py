"""Converts exchanges of other providers into the dialect of a session, by way of plain exchanges.

Plain exchanges do not contain what only one provider can read, such as the signature of its
thinking. The translation of an exchange depends on it and on those before and beside it alone, so
that it is the same in every request.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from treefold.core.exchange import PLAIN, Exchange, Finish
from treefold.core.fact import replace
from treefold.core.failures import failed
from treefold.core.transcript import ModelText, ToolResult, ToolUse, TranscriptPart, UserText
from treefold.core.usage import NO_USAGE, TokenUsage
from treefold.models.decoder import INVALID_ARGS_KEY
from treefold.models.dialect import Dialect
from treefold.models.json_text import parse_json, parse_json_object, to_json

_CALL_TEXT: Final = "[I asked for a call of {name} with {arguments}]"
_RESULT_TEXT: Final = "[The result of an earlier call of {name}: {content}]"
_UNDERSTOOD: Final = "Understood."
_NO_RESULT: Final = "There is no result: the call was not made, or it was interrupted."


def result_text(name: str, content: str) -> str:
    """Return the text that stands for the result of a call which is missing, or text as well."""
    return _RESULT_TEXT.format(name=name, content=content)


def missing_result(call: ToolUse) -> ToolResult:
    """Return a failed result for a call that has none."""
    return ToolResult(call.id, failed(call.name, call.fault or _NO_RESULT), is_error=True)


def head_exchange(texts: Sequence[str], calls: Sequence[ToolUse]) -> Exchange:
    """Return a plain exchange in which the user said *texts*, and the model asked for *calls*."""
    sent = [{"role": "user", "content": text} for text in texts]
    return _plain(sent, "" if calls else _UNDERSTOOD, calls, NO_USAGE)


def to_plain(exchange: Exchange, parts: Sequence[TranscriptPart]) -> Exchange:
    """Return *exchange*, which added *parts* to the transcript, as a plain one without thinking."""
    sent: list[dict[str, Any]] = []
    text: list[str] = []
    calls: list[ToolUse] = []
    for part in parts:
        match part:
            case UserText():
                sent.append({"role": "user", "content": part.text})
            case ToolResult():
                sent.append({"role": "tool", "content": part.content, "is_error": part.is_error})
            case ModelText():
                text.append(part.text)
            case ToolUse():
                calls.append(part)
            case _:
                pass
    plain = _plain(sent, "".join(text), calls, exchange.usage)
    return replace(plain, finish=exchange.finish)


def _plain(
    sent: Sequence[Mapping[str, Any]], text: str, calls: Sequence[ToolUse], usage: TokenUsage
) -> Exchange:
    asked: list[dict[str, Any]] = []
    for call in calls:
        # Calls that could not be made were told so: they have results, too.
        written = to_json(dict(call.args)) if call.fault is None else call.written or ""
        function = {"name": call.name, "arguments": written}
        asked.append({"id": call.id, "type": "function", "function": function})
    return Exchange(
        dialect=PLAIN,
        sent=tuple(map(to_json, sent)),
        received=(to_json({"content": text, "tool_calls": asked}),),
        finish=Finish.TOOL_USE if calls else Finish.ANSWERED,
        usage=usage,
    )


def to_dialect(
    exchange: Exchange,
    dialect: Dialect,
    pending: Sequence[ToolUse] = (),
    following: Exchange | None = None,
    used: set[str] | None = None,
) -> Exchange:
    """Return *exchange* in *dialect* if it is a plain one; otherwise *exchange* itself.

    *pending* are the calls whose results it holds, and *following* is the exchange after it. Its
    own calls become text if *dialect* accepts only results of calls that its model has made. They
    keep their ids unless *used* is given, the ids of earlier calls: then they get ids that the
    provider accepts beside these.
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
    if calls and not _are_calls(calls, dialect, following):
        written = [
            _CALL_TEXT.format(name=call.name, arguments=to_json(dict(call.args))) for call in calls
        ]
        text, calls = "\n".join(filter(None, [text, *written])), []
    if used is not None:
        calls = _renamed(calls, dialect, following, used)
    # A model for which the calls were text got their results as text.
    results += map(missing_result, pending[len(results) :])
    return Exchange(
        dialect=dialect.name,
        sent=tuple(dialect.write(list(zip(pending, results, strict=True)), texts)),
        received=(dialect.write_response(text, calls),) if received else (),
        finish=Finish.TOOL_USE if calls else Finish.ANSWERED,
        usage=exchange.usage,
    )


def _are_calls(calls: Sequence[ToolUse], dialect: Dialect, following: Exchange | None) -> bool:
    """Whether *calls* are calls in *dialect*, and not text."""
    if following is None:
        return dialect.accepts_foreign_calls
    if following.dialect == PLAIN:
        return True
    # The conversation was continued in this dialect: they are what they were then.
    return bool(_answered(calls, dialect, following))


def _answered(calls: Sequence[ToolUse], dialect: Dialect, following: Exchange) -> list[str]:
    """Return the ids of the calls whose results *following* has, which is in *dialect*."""
    parts = [part for message in following.sent for part in dialect.read(message, 0, calls)]
    return [part.tool_use_id for part in parts if isinstance(part, ToolResult)]


def _renamed(
    calls: Sequence[ToolUse], dialect: Dialect, following: Exchange | None, used: set[str]
) -> list[ToolUse]:
    """Return *calls* with ids that the provider accepts, and add these to *used*."""
    ids: list[str] = []
    if following is not None and following.dialect != PLAIN:
        # They were sent with these ids when the conversation was continued.
        ids = _answered(calls, dialect, following)
    if len(ids) != len(calls):
        ids = []
        for call in calls:
            ids.append(dialect.call_ids.accepted(call.id, used))
            used.add(ids[-1])
    return [replace(call, id=id) for call, id in zip(calls, ids, strict=True)]


def _call(call: dict[str, Any]) -> ToolUse:
    function = call["function"]
    written = function["arguments"]
    args = parse_json_object(written)
    return ToolUse(
        call["id"], function["name"], {INVALID_ARGS_KEY: written} if args is None else args
    )
