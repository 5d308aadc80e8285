"""The body of a request: a JSON object of known fields, of limited size."""

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn, cast

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from treefold.core.truncation import truncate

LARGEST: Final = 1_000_000  # bytes

_LONGEST_SHOWN: Final = 60  # characters of a value in an error message

_FIELD_TYPES: Final[Mapping[str, tuple[type, str]]] = {
    "args": (dict, "an object"),
    "at": (int, "an integer"),
    "model": (str, "a string"),
    "prompt": (str, "a string"),
    "reason": (str, "a string"),
    "result": (object, "any value"),
    "system": (str, "a string"),
    "text": (str, "a string"),
}


async def read_fields(request: Request, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields in the body of *request* that are not null; a result may be null.

    Raises:
        HTTPException: the body is too large or not JSON, or a field is unknown or of another type.
    """
    body = _parsed(await _read(request))
    unknown = [name for name in body if name not in names]
    if unknown:
        known = ", ".join(names) or "no fields"
        raise HTTPException(400, f"unknown field {unknown[0][:100]!r}; this request takes {known}")
    given = {name: body[name] for name in body if body[name] is not None or name == "result"}
    for name, value in given.items():
        kind, shown = _FIELD_TYPES[name]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            got = truncate(json.dumps(value), _LONGEST_SHOWN)
            raise HTTPException(400, f"{name} must be {shown}, got {got}")
    return given


async def _read(request: Request) -> bytes:
    if (length := request.headers.get("content-length", "")).isdigit():
        _check_size(int(length[:20]))
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            _check_size(len(body))
    except ClientDisconnect:
        raise HTTPException(400, "the request body is incomplete") from None
    return bytes(body)


def _check_size(size: int) -> None:
    if size > LARGEST:
        raise HTTPException(413, f"the request body must have at most {LARGEST:,} bytes")


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        value: Any = json.loads(body or b"{}", parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise HTTPException(400, "the request body is not valid JSON") from None
    if not isinstance(value, dict):
        raise HTTPException(400, "the request body must be a JSON object")
    return cast("dict[str, Any]", value)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
