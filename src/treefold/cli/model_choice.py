"""Which model a chat is with: the one that was named, one that runs here, or the embedded one."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from treefold.chat.config import BASE_URL_VARIABLE, MODEL_VARIABLE
from treefold.core.errors import InvalidValueError
from treefold.models.naming import find_model
from treefold.models.openai.model import LOCAL_SERVERS
from treefold.models.servers import FoundServer, find_servers

_PATIENCE: Final = 5.0  # seconds for a server that was named


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model, and why it was taken.

    Attributes:
        model: its name, as ``AgentOptions`` takes it.
        base_url: its server, if the name is the server's own.
        why: how it came to be chosen.
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
    """Return the model to talk to; what is not given comes from the environment, or is found.

    *servers* are the addresses where one may run, by name.

    Raises:
        InvalidValueError: there is none of that name, or none at that address.
    """
    if embedded:
        if model or base_url:
            raise InvalidValueError("--local is a model of its own: leave out --model, --base-url")
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
    """Return the model of that name: it says where it is, or some server has it."""
    try:
        find_model(name)
    except InvalidValueError:
        for server in await find_servers(servers):
            if name in server.models:
                return ModelChoice(name, server.base_url, f"{why}; {server.name} has it")
        raise
    return ModelChoice(name, None, why)


async def _at(address: str, why: str) -> ModelChoice:
    found = await find_servers({"server": address}, timeout=_PATIENCE)
    if model := first_model(found):
        return ModelChoice(model, address, f"{why}; the first that it has")
    raise InvalidValueError(f"{address} does not say which models it has: give --model NAME, too")


async def _running(servers: Mapping[str, str]) -> ModelChoice:
    for server in await find_servers(servers):
        if model := first_model([server]):
            return ModelChoice(model, server.base_url, f"{server.name} runs there")
    return ModelChoice("local", None, "no model was named, and no server runs here")


def first_model(servers: Sequence[FoundServer]) -> str | None:
    """Return a model that one can talk to."""
    models = [model for server in servers for model in server.models]
    return next((model for model in models if "embed" not in model.lower()), None)
