"""What went wrong with a request, whoever reports it; whether to try again, and what to do if not.

The providers' packages have an exception for everything. Here each becomes one RequestError.
"""

import email.utils
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from ramify.models.decoder import StreamFailedError
from ramify.models.secret import Secret
from ramify.models.sse import BrokenStreamError

_TRANSIENT_STATUSES: Final = frozenset({408, 409, 425, 429, 529})
_TRANSIENT_KINDS: Final = frozenset({
    "overloaded_error", "api_error", "rate_limit_error", "timeout_error", "server_error",
    "UNAVAILABLE", "INTERNAL", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "ABORTED",
})  # fmt: skip
_QUOTA: Final = (
    "insufficient_quota",
    "billing",
    "credit balance",
    "credit_balance",
    "spend_limit",
    "PerDay",
)
_NO_TOOLS: Final = (
    "does not support tools",  # Ollama
    "does not support function calling",
    "tools param requires",  # llama.cpp without --jinja
    "tool choice requires",  # vLLM without a parser
    "tools are not supported",
    "tool use is not supported",
)


@dataclass(eq=False, kw_only=True)
class RequestError(Exception):
    """A failed request, as data."""

    message: str
    status: int | None = None  # None: there was no answer, or it broke off
    kind: str = ""  # the provider's own word
    retry_after: float | None = None
    inner: BaseException | None = None

    @property
    def is_quota(self) -> bool:
        """Whether there is nothing left to spend: waiting seconds does not help."""
        return any(word in self.kind or word in self.message for word in _QUOTA)

    @property
    def is_transient(self) -> bool:
        """Whether the same request may well succeed later."""
        if self.is_quota:
            return False
        if self.status is None:
            return not self.kind or self.kind in _TRANSIENT_KINDS
        return self.status >= 500 or self.status in _TRANSIENT_STATUSES

    @property
    def refuses_tools(self) -> bool:
        """Whether the server says that it, or the model, cannot call functions."""
        text = self.message.lower()
        return any(words in text for words in _NO_TOOLS)

    def without(self, secret: Secret) -> "RequestError":
        """Return it without the key, and take that out of what it came from, too."""
        if self.inner is not None:
            _scrub(self.inner, secret)
        return replace(self, message=secret.scrub(self.message))


def of_stream(error: StreamFailedError | BrokenStreamError) -> RequestError:
    """Return what a decoder reports."""
    if isinstance(error, StreamFailedError):
        return RequestError(message=str(error), status=error.status, kind=error.kind, inner=error)
    return RequestError(message=str(error), inner=error)


def of_connection(error: BaseException) -> RequestError:
    """Return what a connection that failed amounts to."""
    cause = error
    while cause.__cause__ is not None:  # the transport wraps what happened, and not well
        cause = cause.__cause__
    said = str(cause) or str(error)
    name = type(cause).__name__
    return RequestError(message=f"{name}: {said}" if said else name, inner=error)


def of_status(
    status: int, body: Any, headers: Mapping[str, str], inner: BaseException | None = None
) -> RequestError:
    """Return what an HTTP answer reports."""
    error: Any = body
    match body:
        case {"error": {**fields}}:
            error = fields
        case {"error": str(text)}:
            error = {"message": text}
        case _:
            pass
    if not isinstance(error, dict):
        return RequestError(
            message=str(error or "").strip()[:2000] or f"HTTP {status}",
            status=status,
            retry_after=_retry_after(headers),
            inner=inner,
        )
    fields = cast("dict[str, Any]", error)
    kinds = [fields.get(key) for key in ("code", "type", "status")]
    kind = " ".join(kind for kind in kinds if isinstance(kind, str))
    raw: Any = fields.get("details")
    details = cast("list[Any]", raw if isinstance(raw, list) else [raw])
    finer = " ".join(_finer_words(details))
    return RequestError(
        message=str(fields.get("message") or f"HTTP {status}")[:2000],
        status=status,
        kind=f"{kind} {finer}".strip(),
        retry_after=_retry_after(headers) or _retry_delay(details),
        inner=inner,
    )


def _retry_after(headers: Mapping[str, str]) -> float | None:
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            return max(0.0, float(value) / unit)
        except ValueError:
            when = email.utils.parsedate_tz(value)
            if when is not None:
                return max(0.0, email.utils.mktime_tz(when) - time.time())
    return None


def _retry_delay(details: list[Any]) -> float | None:
    """Return what Google's RetryInfo says."""
    for detail in details:
        match detail:
            case {"retryDelay": str(delay)} if delay.endswith("s"):
                try:
                    return max(0.0, float(delay[:-1]))
                except ValueError:
                    return None
            case _:
                pass
    return None


def _finer_words(details: list[Any]) -> list[str]:
    """Return the finer words that Google and Anthropic have for it: quotas, reasons, codes."""
    found: list[str] = []
    for detail in details:
        match detail:
            case {"violations": [*violations]}:
                found += [str(violation.get("quotaId", "")) for violation in violations]
            case {"error_code": str(code)} | {"reason": str(code)}:
                found.append(code)
            case _:
                pass
    return found


def _scrub(error: BaseException, secret: Secret) -> None:
    """Take the key out of an exception and all that it came from."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        pending += [one.__cause__, one.__context__]
        one.args = tuple(_scrubbed(arg, secret) for arg in one.args)
        for name, value in list(vars(one).items()):
            clean = _scrubbed(value, secret)
            if clean != value:
                setattr(one, name, clean)


def _scrubbed(value: Any, secret: Secret) -> Any:
    match value:
        case str():
            return secret.scrub(value)
        case dict():
            fields = cast("dict[Any, Any]", value)
            return {key: _scrubbed(inner, secret) for key, inner in fields.items()}
        case list():
            return [_scrubbed(item, secret) for item in cast("list[Any]", value)]
        case _:
            return value


def advice(error: RequestError, *, key_name: str, address: str, longest: float) -> str:
    """Return what to do about an error that trying again does not mend."""
    if error.is_transient and error.retry_after is not None and error.retry_after > longest:
        return f"it asks to wait {error.retry_after:g} s, which is more than Retry.longest"
    if error.is_quota:
        return "the account has nothing left to spend: see its limits and billing"
    if error.status in {401, 403} or "API_KEY" in error.kind:
        return f"check the key: set {key_name}, or give api_key="
    if error.status == 404:
        return f"check the model's name and the address {address}"
    if error.status == 413 or "context" in error.message.lower():
        return "the request is too large: shorten the conversation, or use a larger model"
    if error.status is None and not error.kind:
        return f"is the server at {address} running and reachable?"
    if error.status == 429:
        return "the provider limits how much it is asked: ask less at once, or wait"
    if error.is_transient:
        return "the provider is in trouble: try again later"
    return "the provider does not take this request as it is"
