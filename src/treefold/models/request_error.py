"""What went wrong with a request, whoever reports it; whether to try again, and what to do if not.

The providers' packages have an exception for everything. Here each becomes one RequestError.
"""

import email.utils
import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from treefold.models.decoder import StreamFailedError
from treefold.models.json_text import objects_in
from treefold.models.secret import Secret, public_url
from treefold.models.sse import BrokenStreamError

_TRANSIENT_STATUSES: Final = frozenset({408, 409, 425, 429, 529})
_QUOTA: Final = ("insufficient_quota", "billing_error", "credit_balance", "spend_limit", "PerDay")
_NO_CREDIT: Final = "credit balance is too low"  # Anthropic has no kind of its own for it
TOO_LARGE: Final = "response_too_large"  # kinds of our own: retrying would cost the same again
TOO_LONG: Final = "response_too_long"
_FOR_GOOD: Final = (  # said in a stream, where there is no status
    "invalid", "authentication", "permission", "not_found", "too_large", "context_length", TOO_LONG,
    "INVALID_ARGUMENT", "UNAUTHENTICATED", "PERMISSION_DENIED", "NOT_FOUND", "FAILED_PRECONDITION",
)  # fmt: skip
_NO_TOOLS: Final = (
    "does not support tools",  # Ollama
    "does not support function calling",
    "tools param requires",  # llama.cpp without --jinja
    "tool choice requires",  # vLLM without a parser
    "tools are not supported",
    "tool use is not supported",
)
# Servers have no common words for a schema that they do not take, but they all name the request as
# the fault; a server that calls it a fault of its own has to name the schema.
_BAD_REQUEST: Final = frozenset({400, 422})
_NO_SCHEMA: Final = ("response_format", "json_schema", "json schema", "grammar")
_BAD_OUTPUT: Final = re.compile(r"does not match the expected .{0,80}format")  # llama.cpp
_SHOWN: Final = 2000  # characters of what a server says


@dataclass(eq=False, kw_only=True)
class RequestError(Exception):
    """A failed request, as data."""

    message: str
    status: int | None = None  # None: there was no answer, or it broke off
    kind: str = ""  # the provider's own words
    retry_after: float | None = None
    inner: BaseException | None = None

    def __str__(self) -> str:
        return self.message

    @property
    def is_quota(self) -> bool:
        """Whether there is nothing left to spend: waiting seconds does not help."""
        return _NO_CREDIT in self.message or any(word in self.kind for word in _QUOTA)

    @property
    def is_transient(self) -> bool:
        """Whether the same request may well succeed later."""
        if self.is_quota:
            return False
        if self.status is None:
            return not any(word in self.kind for word in _FOR_GOOD)
        return self.status >= 500 or self.status in _TRANSIENT_STATUSES

    @property
    def is_bad_output(self) -> bool:
        """Whether the server could not parse what the model generated."""
        return self.status == 500 and _BAD_OUTPUT.search(self.message) is not None

    @property
    def is_refused_connection(self) -> bool:
        """Whether no server listens at the address."""
        return self.inner is not None and any(
            isinstance(one, ConnectionRefusedError) for one in _causes(self.inner)
        )

    @property
    def refuses_tools(self) -> bool:
        """Whether the server says that it, or the model, cannot call functions."""
        text = self.message.lower()
        return self.status is not None and any(words in text for words in _NO_TOOLS)

    @property
    def may_refuse_schema(self) -> bool:
        """Whether the reason may be that the request has a response schema."""
        text = self.message.lower()
        return self.status in _BAD_REQUEST or (
            self.status is not None and any(words in text for words in _NO_SCHEMA)
        )

    def without(self, secret: Secret) -> "RequestError":
        """Return it without the key, and without an exception that would show it."""
        inner = self.inner
        if inner is not None and _shows(inner, secret):
            inner = None
        message, kind = secret.scrub(self.message), secret.scrub(self.kind)
        return replace(self, message=message, kind=kind, inner=inner)


def of_stream(error: StreamFailedError | BrokenStreamError) -> RequestError:
    """Return what a decoder reports."""
    if isinstance(error, StreamFailedError):
        return RequestError(message=str(error), status=error.status, kind=error.kind, inner=error)
    return RequestError(message=str(error), inner=error)


def of_connection(error: BaseException) -> RequestError:
    """Return what a connection that failed amounts to."""
    *_, cause = _causes(error)  # the transport wraps what happened, and not well
    said = (str(cause) or str(error))[:_SHOWN]
    name = type(cause).__name__
    return RequestError(message=f"{name}: {said}" if said else name, inner=error)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield *error*, and what caused it, down to the first cause."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def of_status(
    status: int, body: Any, headers: Mapping[str, str], inner: BaseException | None = None
) -> RequestError:
    """Return what an HTTP answer reports."""
    fields = _error_fields(body)
    details = fields.get("details")
    finer = objects_in(details if isinstance(details, list) else [details])
    kinds = [fields.get(key) for key in ("code", "type", "status")]
    kinds += [word for detail in finer for word in _finer_words(detail)]
    retry_after = _retry_after(headers)
    if retry_after is None:
        delays = [_retry_delay(detail) for detail in finer]
        retry_after = next((delay for delay in delays if delay is not None), None)
    message = str(fields.get("message") or "").strip() or f"HTTP {status}"
    if status < 400:
        message = f"HTTP {status}, to {public_url(headers.get('location') or 'nowhere')}"
    return RequestError(
        message=message[:_SHOWN],
        status=status,
        kind=" ".join(kind for kind in kinds if isinstance(kind, str))[:_SHOWN],
        retry_after=retry_after,
        inner=inner,
    )


def _error_fields(body: Any) -> dict[str, Any]:
    """Return the fields of the error in *body*, whatever it is wrapped in."""
    if isinstance(body, list):
        body = cast("list[Any]", body)[0] if body else {}
    match body:
        case {"error": {**fields}}:
            return fields
        case {"error": str(text)} | str(text):
            return {"message": text}
        case {**fields}:
            return fields
        case _:
            return {}


def _retry_after(headers: Mapping[str, str]) -> float | None:
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        value = headers.get(name)
        if value is None:
            continue
        seconds = _number(value)
        if seconds is not None:
            return max(0.0, seconds / unit)
        try:
            when = email.utils.parsedate_tz(value)
            return None if when is None else max(0.0, email.utils.mktime_tz(when) - time.time())
        except (ValueError, OverflowError):
            return None
    return None


def _retry_delay(detail: dict[str, Any]) -> float | None:
    """Return what Google's RetryInfo says."""
    delay = detail.get("retryDelay")
    seconds = _number(delay.removesuffix("s")) if isinstance(delay, str) else None
    return None if seconds is None else max(0.0, seconds)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _finer_words(detail: dict[str, Any]) -> list[Any]:
    """Return the finer words that Google and Anthropic have for it: quotas, reasons, codes."""
    quotas = [violation.get("quotaId") for violation in objects_in(detail.get("violations"))]
    return [*quotas, detail.get("error_code"), detail.get("reason")]


def _shows(error: BaseException, secret: Secret) -> bool:
    """Take the key out of an exception and all that it came from; whether it shows all the same."""
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
        if secret.is_in(_described(one)):
            return True
    return False


def _described(error: BaseException) -> str:
    try:
        return f"{error} {error!r} {error.args!r} {vars(error)!r}"
    except Exception as fault:  # noqa: BLE001 - foreign code; what cannot be shown shows nothing
        return type(fault).__name__


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
    """Return what to do about an error that trying again does not mend: the first that applies."""
    status, kind = error.status, error.kind
    wait = error.retry_after or 0.0
    silent = status is None and not kind
    key = "API_KEY" in kind or "authentication" in kind or "UNAUTHENTICATED" in kind
    remedies = (
        (
            kind == TOO_LARGE,
            "raise max_response_bytes in the model's profile if it should be read",
        ),
        (kind == TOO_LONG, "raise Timers.total of the model if it may take longer"),
        (
            error.is_bad_output,
            "the server runs, but cannot parse what the model wrote: use a larger model, fewer"
            " tools, or another chat template",
        ),
        (error.is_quota, "the account has nothing left to spend: see its limits and billing"),
        (
            error.is_transient and wait > longest,
            f"it asks to wait {wait:g} s, which is more than Retry.longest",
        ),
        (
            silent and isinstance(error.inner, BrokenStreamError),
            f"is it the right kind of server, at {address}?",
        ),
        (silent, f"is the server at {address} running and reachable?"),
        (
            status is not None and status < 400,
            "requests are not sent on to another address: give the right one",
        ),
        (
            status in {401, 403} or key,
            f"check the key: set {key_name}, or give api_key= to the model"
            if key_name
            else "check the key: give another api_key= to the model",
        ),
        (status == 404, f"check the model's name and the address {address}"),
        (status == 429, "the provider limits how much it is asked: ask less at once, or wait"),
        (
            status == 413 or "context" in error.message.lower(),
            "the request is too large: shorten the conversation, or use a larger model",
        ),
        (error.is_transient, "the provider is in trouble: try again later"),
        (True, "the provider does not take this request as it is"),
    )
    return next(remedy for applies, remedy in remedies if applies)
