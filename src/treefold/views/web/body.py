"""What a request carries: JSON of known fields, and not too much of it."""

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn, cast

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

LARGEST: Final = 1_000_000  # bytes

_KINDS: Final[Mapping[str, tuple[type, str]]] = {
    "args": (dict, "an object"),
    "at": (int, "a whole number"),
    "model": (str, "text"),
    "prompt": (str, "text"),
    "reason": (str, "text"),
    "result": (object, "anything"),
    "text": (str, "text"),
}


async def fields_of(request: Request, names: tuple[str, ...]) -> dict[str, Any]:
    """Return those fields that *request* gives, and that are not null; a result may be.

    Raises:
        HTTPException: it is too much, no JSON, or has something else in it.
    """
    body = _parsed(await _read(request))
    unknown = [name for name in body if name not in names]
    if unknown:
        may = ", ".join(names) or "nothing"
        raise HTTPException(400, f"there is no field {unknown[0][:100]!r} here; it takes {may}")
    given = {name: body[name] for name in body if body[name] is not None or name == "result"}
    for name, value in given.items():
        kind, shown = _KINDS[name]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise HTTPException(400, f"{name} has to be {shown}")
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
        raise HTTPException(400, "it was cut off") from None
    return bytes(body)


def _check_size(size: int) -> None:
    if size > LARGEST:
        raise HTTPException(413, f"that is too much at once; send at most {LARGEST:,} bytes")


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        value: Any = json.loads(body or b"{}", parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise HTTPException(400, "that is no JSON; send an object") from None
    if not isinstance(value, dict):
        raise HTTPException(400, "that is JSON, but no object; send one")
    return cast("dict[str, Any]", value)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
