"""Finds the model servers that run on this machine, and the models that they serve."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from treefold.core.function import checked_timeout
from treefold.models.json_text import objects_in, parse_json
from treefold.models.openai.model import LOCAL_SERVERS
from treefold.models.wire_model import required_package

_OK: Final = 200
_MAX_BODY: Final = 4 * 1024 * 1024  # bytes of a list of models


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A server that answered, and the names of its models.

    Example:
        >>> from treefold.models import FoundServer, OpenAIModel
        >>> found = FoundServer("ollama", "http://localhost:11434/v1", ("qwen3",))
        >>> OpenAIModel(found.models[0], base_url=found.base_url)
        <OpenAIModel openai:qwen3@http://localhost:11434/v1>
    """

    name: str
    base_url: str
    models: tuple[str, ...]


async def find_servers(
    addresses: Mapping[str, str] = LOCAL_SERVERS,
    timeout: float = 0.5,  # noqa: ASYNC109 - it ends the search, and is not an error
) -> list[FoundServer]:
    """Return the servers among *addresses*, by name, that list their models.

    All are queried concurrently. A server without a valid response within *timeout* seconds is
    left out. Proxies are not used: the addresses are those of this machine.

    Example:
        >>> import asyncio
        >>> from treefold.models import find_servers
        >>> asyncio.run(find_servers({"unused": "http://localhost:9/v1"}))
        []
    """
    checked_timeout(timeout, "a search for servers")
    aiohttp: Any = required_package(
        "aiohttp", "openai[aiohttp]>=3", "openai", "a search for servers"
    )
    connection_errors = (aiohttp.ClientError, OSError, TimeoutError, ValueError)
    found: dict[str, FoundServer] = {}

    async def query(name: str, url: str) -> None:
        try:
            async with session.get(f"{url}/models", allow_redirects=False) as response:
                body = await _read(response) if response.status == _OK else b""
        except connection_errors:
            return
        models = _models(body)
        if models is not None:
            found[name] = FoundServer(name, url, models)

    async with aiohttp.ClientSession() as session:
        try:
            async with asyncio.timeout(timeout), asyncio.TaskGroup() as group:
                for name, url in addresses.items():
                    group.create_task(query(name, url.rstrip("/")))
        except TimeoutError:
            pass  # the faster servers have been found
    return [found[name] for name in addresses if name in found]


async def _read(response: Any) -> bytes:
    """Return the body; empty if it is larger than any list of models."""
    body = b""
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > _MAX_BODY:
            return b""
    return body


def _models(body: bytes) -> tuple[str, ...] | None:
    """Return the names in a list of models; None if *body* is not such a list."""
    match parse_json(body.decode("utf-8", "replace")):
        case {"data": None | []}:  # the server has no models yet
            return ()
        case {"data": [*listed]}:
            return (
                tuple([one["id"] for one in objects_in(listed) if isinstance(one.get("id"), str)])
                or None
            )
        case _:
            return None
