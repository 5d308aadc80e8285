"""Failed requests as the exceptions that the providers' SDKs raise.

Requests do not pass through the typed layers of the SDKs, so their exceptions are created here.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from treefold.core.loaded_module import loaded_module
from treefold.models.decoder import StreamFailedError
from treefold.models.request_error import RequestError

_BY_STATUS: Final = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    409: "ConflictError",
    413: "RequestTooLargeError",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
    503: "ServiceUnavailableError",
    504: "DeadlineExceededError",
    529: "OverloadedError",
}
_FIRST_SERVER_ERROR: Final = 500


def sdk_exception(sdk: str, error: RequestError, address: str) -> BaseException | None:
    """Return the exception that the module *sdk* raises for *error*.

    Without a loaded SDK it is ``error.inner``.
    """
    package: Any = loaded_module(sdk)
    if package is None:
        return error.inner
    if sdk == "google.genai":
        return _google_exception(package, error)
    raised = _httpx_exception(package, error, address)
    raised.__cause__ = error.inner
    return raised


def _google_exception(package: Any, error: RequestError) -> BaseException | None:
    errors = package.errors
    inner: Any = error.inner
    # The SDK does not wrap the exceptions of connections.
    if not isinstance(inner, errors.APIError):
        return inner
    status = error.status or 0
    kind = errors.ServerError if status >= _FIRST_SERVER_ERROR else errors.ClientError
    return kind(status, inner.details, inner.response)


def _httpx_exception(package: Any, error: RequestError, address: str) -> BaseException:
    """Return the exception of an SDK that is built on httpx2: OpenAI's or Anthropic's."""
    import httpx2  # noqa: PLC0415 - comes with those SDKs

    inner: Any = error.inner
    if isinstance(inner, package.APIStatusError):
        body = _unwrapped(inner.body) if package.__name__ == "openai" else inner.body
        return _status_class(package, inner.status_code)(
            str(inner), response=inner.response, body=body
        )
    request = httpx2.Request("POST", address if "://" in address else "")
    if isinstance(inner, StreamFailedError):
        return package.APIError(error.message, request, body=None)
    if error.status is not None:
        response = httpx2.Response(error.status, request=request)
        kind = _status_class(package, error.status)
        return kind(error.message, response=response, body=None)
    if isinstance(inner, TimeoutError):
        return package.APITimeoutError(request)
    return package.APIConnectionError(message=error.message, request=request)


def _status_class(package: Any, status: int) -> Any:
    default = "InternalServerError" if status >= _FIRST_SERVER_ERROR else "APIStatusError"
    return getattr(package, _BY_STATUS.get(status, default), None) or getattr(package, default)


def _unwrapped(body: Any) -> Any:
    """Return the error in *body*; OpenAI's SDK reads its code, parameter and type."""
    if not isinstance(body, Mapping):
        return body
    return cast("Mapping[str, Any]", body).get("error", cast("Any", body))
