"""Choose the model of a chat: the one that is named, one of a local server, or the embedded one."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from treefold.chat.config import BASE_URL_VARIABLE, MODEL_VARIABLE
from treefold.core.errors import InvalidValueError
from treefold.models.naming import find_model
from treefold.models.openai.model import LOCAL_SERVERS
from treefold.models.servers import FoundServer, find_servers

_TIMEOUT: Final = 5.0  # seconds for a server that the user named


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model, and why it was chosen.

    Attributes:
        model: its name, as ``AgentOptions`` takes it.
        base_url: its server, if the name is one of that server.
        why: the reason for the choice, for the user.
    """

    model: str
    base_url: str | None
    why: str

    def __str__(self) -> str:
        return f"{self.model} at {self.base_url}" if self.base_url else self.model


async def choose_model(
    model: str | None,
    base_url: str | None,
    *,
    embedded: bool = False,
    servers: Mapping[str, str] = LOCAL_SERVERS,
) -> ModelChoice:
    """Return the model to talk to: as given, as the environment says, or one that is found.

    *servers* are the addresses at which a server may run, by name.

    Raises:
        InvalidValueError: there is no such model, or no server at that address.
    """
    if embedded:
        if model or base_url:
            raise InvalidValueError("--local names the model: leave out --model and --base-url")
        return ModelChoice("local", None, "--local")
    name, name_from = _given(model, "--model", MODEL_VARIABLE)
    address, address_from = _given(base_url, "--base-url", BASE_URL_VARIABLE)
    if name and address:
        return ModelChoice(name, address, f"{name_from} and {address_from}")
    if name:
        return await _named(name, name_from, servers)
    if address:
        return await _at(servers.get(address, address), address_from)
    return await _running(servers)


def _given(value: str | None, option: str, variable: str) -> tuple[str, str]:
    return (value, option) if value else (os.environ.get(variable, ""), variable)


async def _named(name: str, why: str, servers: Mapping[str, str]) -> ModelChoice:
    """Return the model of that name: its prefix names a provider, or a local server has it."""
    try:
        find_model(name)
    except InvalidValueError:
        for server in await find_servers(servers):
            if name in server.models:
                return ModelChoice(name, server.base_url, f"{why}; {server.name} has it")
        raise
    return ModelChoice(name, None, why)


async def _at(address: str, why: str) -> ModelChoice:
    found = await find_servers({"server": address}, timeout=_TIMEOUT)
    if model := first_model(found):
        return ModelChoice(model, address, f"{why}; its first model")
    raise InvalidValueError(f"{address} does not list its models: give --model NAME, too")


async def _running(servers: Mapping[str, str]) -> ModelChoice:
    for server in await find_servers(servers):
        if model := first_model([server]):
            return ModelChoice(model, server.base_url, f"{server.name} is running")
    return ModelChoice("local", None, "no model was named, and no server is running here")


def first_model(servers: Sequence[FoundServer]) -> str | None:
    """Return the first model of *servers* that is not for embeddings."""
    models = [model for server in servers for model in server.models]
    return next((model for model in models if "embed" not in model.lower()), None)
