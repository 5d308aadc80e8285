"""What OpenAI streams for a chat completion."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from wire.replies import Reply, Step, compact, failure, stream

MODEL = "gpt-wire-1"
USAGE: dict[str, Any] = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 2,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}
DONE = b"data: [DONE]\n\n"

ERRORS: dict[str, tuple[int, str, str | None, str | None, str]] = {
    # kind: status, type, param, code, message
    "invalid_request": (400, "invalid_request_error", "messages", None, "Invalid request."),
    "context_length": (
        400,
        "invalid_request_error",
        "messages",
        "context_length_exceeded",
        "This model's maximum context length is 128000 tokens. However, your messages resulted in "
        "128001 tokens. Please reduce the length of the messages.",
    ),
    "invalid_key": (
        401,
        "invalid_request_error",
        None,
        "invalid_api_key",
        "Incorrect API key provided: sk-wire.",
    ),
    "forbidden": (
        403,
        "request_forbidden",
        None,
        "unsupported_country_region_territory",
        "Country, region, or territory not supported",
    ),
    "no_model": (
        404,
        "invalid_request_error",
        None,
        "model_not_found",
        f"The model `{MODEL}` does not exist or you do not have access to it.",
    ),
    "rate_limit": (
        429,
        "tokens",
        None,
        "rate_limit_exceeded",
        f"Rate limit reached for {MODEL} on tokens per min (TPM): Limit 10000, Used 9999, "
        "Requested 18. Please try again in 1s.",
    ),
    "insufficient_quota": (
        429,
        "insufficient_quota",
        None,
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    "server": (
        500,
        "server_error",
        None,
        None,
        "The server had an error while processing your request. Sorry about that!",
    ),
    "overloaded": (503, "server_error", None, None, "The engine is currently overloaded."),
}


def completion(
    *deltas: Mapping[str, Any] | Step,
    finish: str | None = "stop",
    usage: Mapping[str, Any] | None = USAGE,
    done: bool = True,
) -> Reply:
    """Return a stream of *deltas*; without *usage* the client has not asked for it."""
    steps: list[Step] = []
    for delta in deltas:
        if isinstance(delta, Mapping):
            steps.append(chunk([choice(delta)], usage=usage))
        else:
            steps.append(delta)
    if finish is not None:
        steps.append(chunk([choice({}, finish)], usage=usage))
    if usage is not None:
        steps.append(chunk([], usage=usage))
    if done:
        steps.append(DONE)
    headers = {"x-request-id": "req_wire", "openai-processing-ms": "5"}
    return stream(*steps, content_type="text/event-stream; charset=utf-8", headers=headers)


def text(
    *deltas: str | Step,
    finish: str | None = "stop",
    usage: Mapping[str, Any] | None = USAGE,
    done: bool = True,
) -> Reply:
    """Return a stream of text."""
    opening = {"role": "assistant", "content": "", "refusal": None}
    return completion(opening, *_texts(deltas), finish=finish, usage=usage, done=done)


def calls(
    made: Sequence[Sequence[str]],
    text: Iterable[str | Step] = (),
    finish: str | None = "tool_calls",
    usage: Mapping[str, Any] | None = USAGE,
    *,
    done: bool = True,
) -> Reply:
    """Return a stream of text and calls of tools, each (id, name, *fragments of arguments)."""
    said = list(_texts(text))
    opening: dict[str, Any] = {"role": "assistant", "content": "" if said else None}
    deltas = list(call_deltas(made))
    if not said and len(made) == 1:  # a single call comes with the opening, several come after it
        opening, deltas = {**opening, **deltas[0]}, deltas[1:]
    opening["refusal"] = None
    return completion(opening, *said, *deltas, finish=finish, usage=usage, done=done)


def reasoning(
    *thoughts: str | Step,
    text: Iterable[str | Step] = (),
    calls: Sequence[Sequence[str]] = (),
    field: str = "reasoning_content",
    finish: str | None = None,
    usage: Mapping[str, Any] | None = USAGE,
    done: bool = True,
) -> Reply:
    """Return a stream of thoughts as compatible servers send it, in *field*, before the rest."""
    thinking = [{"content": None, field: t} if isinstance(t, str) else t for t in thoughts]
    return completion(
        {"role": "assistant", "content": None, field: ""},
        *thinking,
        *({**d, field: None} if isinstance(d, dict) else d for d in _texts(text)),
        *call_deltas(calls),
        finish=finish or ("tool_calls" if calls else "stop"),
        usage=usage,
        done=done,
    )


def call_deltas(made: Sequence[Sequence[str]]) -> Iterator[dict[str, Any]]:
    """Yield the deltas of calls: the name first, without arguments, then their fragments."""
    for index, (key, name, *fragments) in enumerate(made):
        function = {"name": name, "arguments": ""}
        first = {"index": index, "id": key, "type": "function", "function": function}
        yield {"tool_calls": [first]}
        for fragment in fragments:
            yield {"tool_calls": [{"index": index, "function": {"arguments": fragment}}]}


def choice(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    """Return the one choice of a chunk."""
    return {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": finish}


def chunk(choices: list[dict[str, Any]], usage: Mapping[str, Any] | None = None) -> bytes:
    """Return one event: when *usage* is told at all, it is null until the choices are over."""
    value: dict[str, Any] = {
        "id": "chatcmpl-wire",
        "object": "chat.completion.chunk",
        "created": 1750000000,
        "model": MODEL,
        "service_tier": "default",
        "system_fingerprint": "fp_wire",
        "choices": choices,
    }
    if usage is not None:
        value["usage"] = None if choices else dict(usage)
    value["obfuscation"] = "x" * (-len(compact(value)) % 16 + 1)
    return f"data: {compact(value)}\n\n".encode()


def error_body(kind: str, message: str | None = None) -> dict[str, Any]:
    """Return the body of an error of one of the kinds in `ERRORS`."""
    _, type_, param, code, usual = ERRORS[kind]
    told = {"message": message or usual, "type": type_, "param": param, "code": code}
    return {"error": told}


def error(kind: str, message: str | None = None, headers: Mapping[str, str] | None = None) -> Reply:
    """Return an error of one of the kinds in `ERRORS`, with its status."""
    return failure(
        ERRORS[kind][0], error_body(kind, message), {"x-request-id": "req_wire", **(headers or {})}
    )


def error_event(kind: str, message: str | None = None) -> bytes:
    """Return an error in the middle of a stream."""
    return f"data: {compact(error_body(kind, message))}\n\n".encode()


def _texts(deltas: Iterable[str | Step]) -> Iterator[dict[str, Any] | Step]:
    return ({"content": d} if isinstance(d, str) else d for d in deltas)
