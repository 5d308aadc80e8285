"""Which servers run here: those at the usual addresses, asked for the models that they have."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from treefold.core.function import checked_timeout
from treefold.models.json_text import objects_in, parse_json
from treefold.models.openai.model import LOCAL_SERVERS
from treefold.models.wire_model import required_package

_ANSWERED: Final = 200
_MOST: Final = 4 * 1024 * 1024  # bytes of a list of models


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
    timeout: float = 0.5,  # noqa: ASYNC109 - it ends the search, and is no failure
) -> list[FoundServer]:
    """Ask all *addresses*, by name, at the same time which models they have.

    Whoever gives no proper answer within *timeout* seconds is not there. Proxies are not asked:
    they know nothing of this machine.

    Example:
        >>> import asyncio
        >>> from treefold.models import find_servers
        >>> asyncio.run(find_servers({"nobody": "http://localhost:9/v1"}))
        []
    """
    checked_timeout(timeout, "a search for servers")
    aiohttp: Any = required_package("aiohttp", "openai[aiohttp]>=3")
    broken = (aiohttp.ClientError, OSError, TimeoutError, ValueError)
    found: dict[str, FoundServer] = {}

    async def ask(name: str, url: str) -> None:
        try:
            async with session.get(f"{url}/models", allow_redirects=False) as response:
                body = await _read(response) if response.status == _ANSWERED else b""
        except broken:
            return
        models = _models(body)
        if models is not None:
            found[name] = FoundServer(name, url, models)

    async with aiohttp.ClientSession() as session:
        try:
            async with asyncio.timeout(timeout), asyncio.TaskGroup() as group:
                for name, url in addresses.items():
                    group.create_task(ask(name, url.rstrip("/")))
        except TimeoutError:
            pass  # whoever was quicker has been found
    return [found[name] for name in addresses if name in found]


async def _read(response: Any) -> bytes:
    """Return the body, or nothing if it is larger than any list of models."""
    body = b""
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > _MOST:
            return b""
    return body


def _models(body: bytes) -> tuple[str, ...] | None:
    """Return the names in a list of models; None if it is something else."""
    match parse_json(body.decode("utf-8", "replace")):
        case {"data": None | []}:  # a server may have nothing yet
            return ()
        case {"data": [*listed]}:
            return (
                tuple([one["id"] for one in objects_in(listed) if isinstance(one.get("id"), str)])
                or None
            )
        case _:
            return None
