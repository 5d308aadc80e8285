"""What Gemini streams for a generated content."""

from collections.abc import Mapping, Sequence
from typing import Any

from wire.replies import Reply, Step, compact, failure, stream

MODEL = "gemini-wire-1"
USAGE: dict[str, Any] = {
    "promptTokenCount": 11,
    "candidatesTokenCount": 7,
    "totalTokenCount": 20,
    "cachedContentTokenCount": 3,
    "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 11}],
    "thoughtsTokenCount": 2,
}
TYPES = "type.googleapis.com/google.rpc"

STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def text(said: str, signature: str | None = None) -> dict[str, Any]:
    """Return a part of text, which may be empty when all it brings is a signature."""
    return _signed({"text": said}, signature)


def thought(said: str, signature: str | None = None) -> dict[str, Any]:
    """Return a part of thinking."""
    return _signed({"text": said, "thought": True}, signature)


def call(
    name: str,
    args: Mapping[str, Any],
    id: str | None = None,
    signature: str | None = None,
) -> dict[str, Any]:
    """Return a call of a function; a signature is base64."""
    made: dict[str, Any] = {"name": name, "args": dict(args)}
    if id is not None:
        made["id"] = id
    return _signed({"functionCall": made}, signature)


def chunk(
    parts: Sequence[Mapping[str, Any]],
    finish: str | None = None,
    usage: Mapping[str, Any] | None = None,
    **candidate: Any,
) -> bytes:
    """Return one event; without parts its candidate has no content, as when one was blocked."""
    told: dict[str, Any] = {}
    if parts:
        told["content"] = {"parts": list(parts), "role": "model"}
    if finish is not None:
        told["finishReason"] = finish
    return event({"candidates": [{**told, "index": 0, **candidate}]}, usage)


def event(value: Mapping[str, Any], usage: Mapping[str, Any] | None = None) -> bytes:
    """Return one event, with what all of them have."""
    told = {"usageMetadata": dict(usage)} if usage is not None else {}
    whole = {**value, **told, "modelVersion": MODEL, "responseId": "wire"}
    return f"data: {compact(whole)}\r\n\r\n".encode()


def reply(*chunks: Step) -> Reply:
    """Return a stream of *chunks*."""
    return stream(*chunks)


def blocked_prompt(reason: str = "SAFETY") -> Reply:
    """Return the answer to a prompt that was blocked, which has no candidate."""
    usage = {"promptTokenCount": 11, "totalTokenCount": 11}
    return reply(event({"promptFeedback": {"blockReason": reason}}, usage))


def error_body(
    code: int,
    status: str | None = None,
    message: str = "It failed.",
    details: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the body of an error; its status follows from *code* unless it is given."""
    told: dict[str, Any] = {"code": code, "message": message, "status": status or STATUSES[code]}
    if details:
        told["details"] = [dict(detail) for detail in details]
    return {"error": told}


def error(
    code: int,
    status: str | None = None,
    message: str = "It failed.",
    details: Sequence[Mapping[str, Any]] = (),
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """Return an error with its status."""
    return failure(code, error_body(code, status, message, details), headers)


def error_event(code: int, status: str | None = None, message: str = "It failed.") -> bytes:
    """Return an error in the middle of a stream."""
    return f"data: {compact(error_body(code, status, message))}\r\n\r\n".encode()


def retry_info(delay: str = "17s") -> dict[str, Any]:
    """Return the detail of an error that says when to try again."""
    return {"@type": f"{TYPES}.RetryInfo", "retryDelay": delay}


def quota_failure(
    quota: str = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier", value: str = "10"
) -> dict[str, Any]:
    """Return the detail of an error that says which quota was used up, by minute or by day."""
    violation = {
        "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
        "quotaId": quota,
        "quotaDimensions": {"location": "global", "model": MODEL},
        "quotaValue": value,
    }
    return {"@type": f"{TYPES}.QuotaFailure", "violations": [violation]}


def error_info(reason: str = "API_KEY_INVALID") -> dict[str, Any]:
    """Return the detail of an error that has a reason: a wrong key is a 400 with this one."""
    service = "generativelanguage.googleapis.com"
    told = {"reason": reason, "domain": "googleapis.com", "metadata": {"service": service}}
    return {"@type": f"{TYPES}.ErrorInfo", **told}


def _signed(part: dict[str, Any], signature: str | None) -> dict[str, Any]:
    return part if signature is None else {**part, "thoughtSignature": signature}
