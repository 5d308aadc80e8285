"""Failed requests: their cause, whether to retry them, and otherwise what the user can do.

Every failure, of a connection, an HTTP response or a stream, becomes one RequestError.
"""

import email.utils
import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from treefold.models.decoder import TOO_LONG_TEXT, TOO_MANY_CALLS, StreamFailedError
from treefold.models.json_text import objects_in
from treefold.models.secret import Secret, public_url
from treefold.models.sse import BrokenStreamError

_TRANSIENT_STATUSES: Final = frozenset({408, 409, 425, 429, 529})
_QUOTA: Final = ("insufficient_quota", "billing_error", "credit_balance", "spend_limit", "PerDay")
_NO_CREDIT: Final = "credit balance is too low"  # Anthropic has no error type for it
# Kinds of our own; they are not retried, because a retry would cost the same again.
TOO_LARGE: Final = "response_too_large"
TOO_LONG: Final = "response_too_long"
# Kinds of permanent errors in a stream, where there is no status.
_PERMANENT: Final = (
    "invalid", "authentication", "permission", "not_found", "too_large", "context_length", TOO_LONG,
    TOO_LONG_TEXT,
    TOO_MANY_CALLS,
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
# Servers have no common wording for a response schema that they do not accept, but each of these
# names what it is about. Other bad requests would be rejected as well without the schema.
_ABOUT_SCHEMA: Final = (
    "response_format",  # LM Studio, DeepSeek, FastAPI in the path of the field
    "response format",
    "schema",  # llama.cpp, Ollama
    "grammar",  # llama.cpp, vLLM, TGI
    "structured",  # "structured output" in vLLM and gateways
    "guided",  # vLLM: "guided decoding"
    "required for format",  # Ollama: "model vocabulary required for format"
)
_ABOUT_MODEL: Final = re.compile(
    r"\bmodels?\b.{0,80}(not found|not exist|not available|not loaded|unknown|not supported)"
    r"|(unknown|no such|invalid|unsupported) model"
)
_ABOUT_KEY: Final = re.compile(r"\bapi[ _-]?key|\bcredentials?\b|\bunauthori[sz]ed|\bauthenticat")
# That a request does not fit into the context window, in the words of each provider and server.
_TOO_LONG: Final = re.compile(
    r"context[_ ](length|size|window|limit)|prompt is too long|input is too long|too many tokens"
    r"|token count .{0,40}exceeds|exceeds? .{0,60}(maximum|number of) .{0,20}tokens"
    r"|prompt length|request_too_large"
)
_RATE: Final = re.compile(r"rate[ _-]?limit|per[ _-]?min|throttl|please wait")
_MAY_BE_TOO_LONG: Final = frozenset({None, 400, 413, 422})  # None: in a stream
# The window that such an error states.
_WINDOW: Final = re.compile(
    r"(?:context (?:length|size|window|limit)(?!\D{0,30}\bby\b)[^\d>]{0,30}|> "
    r"|tokens allowed\D{0,5}|prompt length\D{0,5}|\bn_ctx\D{0,4})(\d[\d,]{2,})(?![\d,]|\s*\+)"
)
_BAD_OUTPUT: Final = re.compile(r"does not match the expected .{0,80}format")  # llama.cpp
_MAX_MESSAGE: Final = 2000  # characters of a server's message


@dataclass(eq=False, kw_only=True)
class RequestError(Exception):
    """A failed request, as data.

    Attributes:
        message: what happened, as the provider puts it.
        status: of the response; None if there was none, or its stream broke.
        kind: the provider's error types and codes, and the parameter that is wrong.
        retry_after: seconds that the provider asks to wait.
        inner: the exception behind it, such as the SDK's.
    """

    message: str
    status: int | None = None
    kind: str = ""
    retry_after: float | None = None
    inner: BaseException | None = None

    def __str__(self) -> str:
        return self.message

    @property
    def is_quota(self) -> bool:
        """Whether a quota is exhausted, so that waiting for seconds does not help."""
        return _NO_CREDIT in self.message or any(word in self.kind for word in _QUOTA)

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later."""
        if self.is_quota:
            return False
        if self.status is None:
            return not any(word in self.kind for word in _PERMANENT)
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
    def is_too_long(self) -> bool:
        """Whether the request does not fit into the context window."""
        text = f"{self.message} {self.kind}".lower()
        if self.status not in _MAY_BE_TOO_LONG or _RATE.search(text):
            return False
        return bool(_TOO_LONG.search(text))

    @property
    def context_window(self) -> int | None:
        """The window in tokens that the error states, if the request does not fit into it."""
        found = _WINDOW.search(f"{self.message} {self.kind}".lower()) if self.is_too_long else None
        return None if found is None else int(found[1].replace(",", "")) or None

    @property
    def is_about_model(self) -> bool:
        """Whether there is no such model."""
        if self.status == 404:
            return True
        text = f"{self.message} {self.kind}".lower()
        # One that is there may be away for a while.
        return not self.is_transient and bool(_ABOUT_MODEL.search(text))

    @property
    def is_about_key(self) -> bool:
        """Whether the key is missing, wrong or not enough."""
        kind = self.kind
        if self.status in {401, 403} or "authentication" in kind or "UNAUTHENTICATED" in kind:
            return True
        if "API_KEY" in kind:
            return True
        # A rate may be limited for each key, and functions may have such names.
        return not self.is_transient and bool(_ABOUT_KEY.search(self.message.lower()))

    @property
    def refuses_tools(self) -> bool:
        """Whether the server reports that it, or the model, cannot call functions."""
        text = self.message.lower()
        return self.status is not None and any(words in text for words in _NO_TOOLS)

    @property
    def refuses_schema(self) -> bool:
        """Whether the server reports that it does not accept the response schema."""
        text = f"{self.message} {self.kind}".lower()
        return self.status is not None and any(words in text for words in _ABOUT_SCHEMA)

    def scrubbed(self, secret: Secret) -> "RequestError":
        """Return the error without the key, and without an exception that would reveal it."""
        inner = self.inner
        if inner is not None and not _scrub(inner, secret):
            inner = None
        message, kind = secret.scrub(self.message), secret.scrub(self.kind)
        return replace(self, message=message, kind=kind, inner=inner)


def from_stream(error: StreamFailedError | BrokenStreamError) -> RequestError:
    """Return the error for a failure that a decoder reports."""
    if isinstance(error, StreamFailedError):
        return RequestError(message=str(error), status=error.status, kind=error.kind, inner=error)
    return RequestError(message=str(error), inner=error)


def from_connection(error: BaseException) -> RequestError:
    """Return the error for a failed connection."""
    *_, cause = _causes(error)  # the transport's wrapper says less than the first cause
    message = (str(cause) or str(error))[:_MAX_MESSAGE]
    name = type(cause).__name__
    return RequestError(message=f"{name}: {message}" if message else name, inner=error)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield *error* and its chain of causes, down to the first."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def from_response(
    status: int, body: Any, headers: Mapping[str, str], inner: BaseException | None = None
) -> RequestError:
    """Return the error in an HTTP response."""
    fields = _error_fields(body)
    listed = fields.get("details")
    details = objects_in(listed if isinstance(listed, list) else [listed])
    kinds = [fields.get(key) for key in ("code", "type", "status", "param")]
    kinds += [kind for detail in details for kind in _detail_kinds(detail)]
    if isinstance(window := fields.get("n_ctx"), int):  # llama.cpp
        kinds.append(f"n_ctx {window}")
    retry_after = _retry_after(headers)
    if retry_after is None:
        delays = [_retry_delay(detail) for detail in details]
        retry_after = next((delay for delay in delays if delay is not None), None)
    message = str(fields.get("message") or _detail(fields.get("detail"))).strip()
    message = message or f"HTTP {status}"
    if status < 400:
        message = f"HTTP {status}, redirect to {public_url(headers.get('location') or 'nowhere')}"
    return RequestError(
        message=message[:_MAX_MESSAGE],
        status=status,
        kind=" ".join(kind for kind in kinds if isinstance(kind, str))[:_MAX_MESSAGE],
        retry_after=retry_after,
        inner=inner,
    )


def _error_fields(body: Any) -> dict[str, Any]:
    """Return the fields of the error in *body*, in any of the usual wrappers."""
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


def _detail(detail: Any) -> str:
    """Return FastAPI's description of an error: a text, or what is wrong with which fields."""
    if isinstance(detail, str):
        return detail
    faults = objects_in(detail)
    return "; ".join(f"{_path(fault.get('loc'))}: {fault.get('msg')}" for fault in faults)


def _path(place: Any) -> str:
    names = cast("list[Any]", place) if isinstance(place, list) else []
    return ".".join(map(str, names))


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
    """Return the delay in Google's RetryInfo."""
    delay = detail.get("retryDelay")
    seconds = _number(delay.removesuffix("s")) if isinstance(delay, str) else None
    return None if seconds is None else max(0.0, seconds)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _detail_kinds(detail: dict[str, Any]) -> list[Any]:
    """Return the quotas, reasons and codes in which Google and Anthropic specify an error."""
    quotas = [violation.get("quotaId") for violation in objects_in(detail.get("violations"))]
    return [*quotas, detail.get("error_code"), detail.get("reason")]


def _scrub(error: BaseException, secret: Secret) -> bool:
    """Remove the key from an exception and its causes; return whether that succeeded."""
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
            return False
    return True


def _described(error: BaseException) -> str:
    try:
        return f"{error} {error!r} {error.args!r} {vars(error)!r}"
    except Exception as fault:  # noqa: BLE001 - foreign code; without a text nothing is revealed
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


def remedy_for(
    error: RequestError, *, key_name: str, address: str, longest: float, by_schema: bool = False
) -> str:
    """Return what the user can do about a permanent error: the first remedy that applies.

    *by_schema* says whether the request has a response schema that a function could replace.
    """
    status, kind = error.status, error.kind
    wait = error.retry_after or 0.0
    silent = status is None and not kind
    remedies = (
        (
            kind == TOO_LARGE,
            "raise max_response_bytes in the model's profile to read longer responses",
        ),
        (kind == TOO_LONG, "raise Timers.total of the model to wait longer"),
        (
            kind == TOO_MANY_CALLS,
            "none of them was made; ask for less at once, use a larger model, or raise"
            " max_response_calls in the model's profile",
        ),
        (
            kind == TOO_LONG_TEXT,
            "no call was made; ask for less at once, or raise max_response_chars in the model's"
            " profile",
        ),
        (
            error.is_bad_output,
            "the server runs, but cannot parse what the model wrote: use a larger model, fewer"
            " tools, or another chat template",
        ),
        (error.is_quota, "the account's quota is exhausted: check its limits and billing"),
        (
            error.is_transient and wait > longest,
            f"the provider asks to wait {wait:g} s, which is more than Retry.longest",
        ),
        (
            silent and isinstance(error.inner, BrokenStreamError),
            f"check that the server at {address} speaks this protocol",
        ),
        (
            error.is_refused_connection,
            f"nothing listens at {address}: start the server, or set another address",
        ),
        (silent, f"is the server at {address} running and reachable?"),
        (
            status is not None and status < 400,
            "redirects are not followed: set base_url to the right address",
        ),
        (
            error.is_about_key,
            f"check the key: set {key_name}, or give api_key= to the model"
            if key_name
            else "check the key: give another api_key= to the model",
        ),
        (error.is_about_model, f"check the model's name and the address {address}"),
        (status == 429, "the provider limits the rate of requests: send fewer at once, or wait"),
        (
            error.is_too_long or status == 413,
            "the request is too large: give the agent compaction='auto', shorten the conversation,"
            " or use a larger model",
        ),
        (error.is_transient, "the provider has a problem: try again later"),
        (
            by_schema,
            "the provider rejects this request as it is; if it does not accept response schemas,"
            " set results_by_schema=False in the profile",
        ),
        (True, "the provider rejects this request as it is"),
    )
    return next(remedy for applies, remedy in remedies if applies)
