"""Choose the model of a chat, or of a run that names none.

A chat takes the model that is named, the first one of a local server, or else the embedded one.
``treefold run --model auto`` asks which of the available models to use. There the embedded one is
the default: it needs no key and no server, and costs nothing.
"""

import asyncio
import os
import select
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from treefold.chat.config import BASE_URL_VARIABLE, MODEL_VARIABLE
from treefold.core.errors import InvalidValueError, TreefoldError
from treefold.core.provider import Provider
from treefold.core.views import NodeView
from treefold.models.anthropic.model import AnthropicModel
from treefold.models.gemini.model import GeminiModel
from treefold.models.local.catalogue import CATALOGUE, SMOLLM2
from treefold.models.local.weights import find_candidate
from treefold.models.naming import DEFAULTS, find_model
from treefold.models.openai.model import LOCAL_SERVERS, OpenAIModel
from treefold.models.servers import FoundServer, find_servers
from treefold.runtime.observe.observer import attach
from treefold.views.text import printable

_TIMEOUT: Final = 5.0  # seconds for a server that the user named
_KEYED: Final = (AnthropicModel, OpenAIModel, GeminiModel)


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


_EMBEDDED: Final = ModelChoice("local", None, "embedded: needs no key and no server; it is small")


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
    if model := _first_model(found):
        return ModelChoice(model, address, f"{why}; its first model")
    raise InvalidValueError(f"{address} does not list its models: give --model NAME, too")


async def _running(servers: Mapping[str, str]) -> ModelChoice:
    for server in await find_servers(servers):
        if model := _first_model([server]):
            return ModelChoice(model, server.base_url, f"{server.name} is running")
    return ModelChoice("local", None, "no model was named, and no server is running here")


def _first_model(servers: Sequence[FoundServer]) -> str | None:
    """Return the first model of *servers* that is not for embeddings."""
    models = [model for server in servers for model in server.models]
    return next((model for model in models if "embed" not in model.lower()), None)


def ask_for_model(store: str | None, timeout: float = 10.0) -> str:
    """Return the model of an unfinished run, or the user's choice, or else the embedded one.

    Args:
        store: the journal, which may have an unfinished run.
        timeout: seconds to wait for a choice.
    """
    if store is not None and (known := _model_in_use(store)) is not None:
        return known
    others = asyncio.run(find_choices())
    if not others:
        return _EMBEDDED.model
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        _say(f"==> using the embedded model; --model takes another: {_listed(others)}")
        return _EMBEDDED.model
    choices = [_EMBEDDED, *others]
    _say("==> these models are available:")
    for number, choice in enumerate(choices, 1):
        _say(f"    {number}  {choice.model}  ({choice.why})")
    return choices[_ask(len(choices), timeout) - 1].model


async def find_choices(servers: Mapping[str, str] = LOCAL_SERVERS) -> list[ModelChoice]:
    """Return the fetched local models, a model of each provider that has a key, and of each server.

    The names are those that ``find_model`` takes. *servers* are addresses, by name.
    """
    found = [
        ModelChoice(weights.model_name, None, f"embedded: {weights.about}")
        for weights in CATALOGUE
        if weights is not SMOLLM2 and await asyncio.to_thread(find_candidate, weights)
    ]
    for kind in _KEYED:
        if key := next((name for name in kind.key_names if os.environ.get(name)), None):
            name = f"{kind.provider}:{DEFAULTS[Provider(kind.provider)]}"
            found.append(ModelChoice(name, None, f"{key} is set; this costs money"))
    for server in await find_servers(servers):
        if model := _first_model([server]):
            name = f"openai:{model}@{server.base_url}"
            found.append(ModelChoice(name, None, f"{server.name} is running"))
    return found


def _ask(most: int, timeout: float) -> int:
    """Return the number that the user types, or 1 after *timeout* seconds."""
    end = time.monotonic() + timeout
    while True:
        _say(f"    which one? [1, also after {timeout:g} s] ", end="")
        ready, _, _ = select.select([sys.stdin], [], [], max(0.0, end - time.monotonic()))
        line = sys.stdin.readline().strip() if ready else ""
        if not ready:
            _say("")
        if not line:
            return 1
        if line.isdecimal() and 1 <= int(line) <= most:
            return int(line)
        _say(f"    type a number from 1 to {most}")


def _model_in_use(store: str) -> str | None:
    """Return the model of a run that an earlier process left unfinished."""
    if not os.path.exists(store):
        return None
    with attach(store) as observer:
        stack: list[NodeView] = [observer.get_view(one.id) for one in observer.trees() if one.open]
    while stack:
        view = stack.pop()
        if view.model is not None and _is_known(view.model):
            return view.model
        stack.extend(view.children)
    return None


def _is_known(name: str) -> bool:
    try:
        find_model(name)
    except TreefoldError:
        return False
    return True


def _listed(choices: Sequence[ModelChoice]) -> str:
    return ", ".join(f"{choice.model} ({choice.why})" for choice in choices)


def _say(text: str, end: str = "\n") -> None:
    print(printable(text), end=end, file=sys.stderr, flush=True)
