"""Failed requests as the providers' SDKs raise them.

Requests do not go through the SDKs' typed layers, so that their exceptions are made here.
"""

import sys
from collections.abc import Mapping
from typing import Any, Final, cast

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
_SERVER_FAULT: Final = 500  # the first status that is the server's fault


def sdk_exception(sdk: str, error: RequestError, address: str) -> BaseException | None:
    """Return what the SDK of that module raises for *error*; its ``inner`` if there is no SDK."""
    package: Any = sys.modules.get(sdk)
    if package is None:
        return error.inner
    if sdk == "google.genai":
        return _of_google(package, error)
    made = _of_httpx(package, error, address)
    made.__cause__ = error.inner
    return made


def _of_google(package: Any, error: RequestError) -> BaseException | None:
    errors = package.errors
    inner: Any = error.inner
    if not isinstance(inner, errors.APIError):  # of a connection, which the SDK passes on as it is
        return inner
    status = error.status or 0
    kind = errors.ServerError if status >= _SERVER_FAULT else errors.ClientError
    return kind(status, inner.details, inner.response)


def _of_httpx(package: Any, error: RequestError, address: str) -> BaseException:
    """Return what the SDKs that stand on httpx2 raise: OpenAI's and Anthropic's."""
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
    usual = "InternalServerError" if status >= _SERVER_FAULT else "APIStatusError"
    return getattr(package, _BY_STATUS.get(status, usual), None) or getattr(package, usual)


def _unwrapped(body: Any) -> Any:
    """Return the error in *body*, of which OpenAI's SDK reads code, parameter and type."""
    if not isinstance(body, Mapping):
        return body
    return cast("Mapping[str, Any]", body).get("error", cast("Any", body))
