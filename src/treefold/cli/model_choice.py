"""Choose the model of a command: the one that it names, or that of the environment.

``--model auto`` asks which of the available models to use. There the embedded one is the default:
it needs no key and no server, and costs nothing.
"""

import asyncio
import os
import select
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from treefold.core.errors import InvalidValueError, StoreError, TreefoldError
from treefold.core.model import Model
from treefold.core.provider import BASE_URL_VARIABLE, MODEL_VARIABLE
from treefold.core.views import NodeView
from treefold.models.choice import find_candidates, no_model_error
from treefold.models.naming import find_model
from treefold.models.openai.model import LOCAL_SERVERS, OpenAIModel
from treefold.models.servers import find_servers
from treefold.runtime.observe.observer import attach
from treefold.stores.urls import is_url
from treefold.views.text import printable

AUTO: Final = "auto"

_TIMEOUT: Final = 5.0  # seconds for a server that the user named
_EMBEDDED: Final = ("local", "embedded: needs no key and no server; it is small")


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

    def find(self) -> Model:
        """Return the model."""
        if self.base_url is None:
            return find_model(self.model)
        return OpenAIModel(self.model, base_url=self.base_url)


async def choose_model(
    model: str | None,
    base_url: str | None,
    *,
    embedded: bool = False,
    servers: Mapping[str, str] = LOCAL_SERVERS,
) -> ModelChoice:
    """Return the model to use: as given, or as the environment says.

    *servers* are the addresses at which a server may run, by name.

    Raises:
        InvalidValueError: there is no such model, or no server at that address.
        NoModelError: none was chosen; the message lists those that are found.
    """
    if embedded:
        if model or base_url:
            raise InvalidValueError("--local names the model: leave out --model and --base-url")
        return ModelChoice("local", None, "--local")
    name, name_from = _given(model, "--model", MODEL_VARIABLE)
    address, address_from = _given(base_url, "--base-url", BASE_URL_VARIABLE)
    if model and not base_url and _is_known(model):
        # A provider that is named is not the server of the environment.
        return ModelChoice(model, None, name_from)
    if name and address:
        return ModelChoice(name, address, f"{name_from} and {address_from}")
    if name:
        return await _named(name, name_from, servers)
    if address:
        raise await _unnamed(servers.get(address, address), address_from)
    raise await no_model_error("this command", option="--model {}", servers=servers)


def _given(value: str | None, option: str, variable: str) -> tuple[str, str]:
    return (value, option) if value else (os.environ.get(variable, ""), variable)


async def _named(name: str, why: str, servers: Mapping[str, str]) -> ModelChoice:
    """Return the model of that name: its prefix names a provider, or a local server has it."""
    try:
        find_model(name)
    except InvalidValueError as error:
        for server in await find_servers(servers):
            if name in server.models:
                return ModelChoice(name, server.base_url, f"{why}; {server.name} has it")
        raise InvalidValueError(f"{why} {name}: {error}, or start a server that has it") from None
    return ModelChoice(name, None, why)


async def _unnamed(address: str, source: str) -> InvalidValueError:
    """Return the error for a server that was given without the name of a model."""
    found = await find_servers({"server": address}, timeout=_TIMEOUT)
    models = ", ".join(model for server in found for model in server.models)
    has = f"it has {models}" if models else "it does not list its models"
    return InvalidValueError(f"{source} is a server, and {has}: give --model NAME, too")


def ask_for_model(store: str | None, timeout: float = 10.0) -> str:
    """Return the model of an unfinished run, or the user's choice, or else the embedded one.

    Args:
        store: the journal, which may have an unfinished run.
        timeout: seconds to wait for a choice.
    """
    if store is not None and (known := recorded_model(store)) is not None:
        return known
    found = asyncio.run(find_candidates())
    others = [(one.name, one.why) for one in found if one.name is not None]
    if not others:
        return _EMBEDDED[0]
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        _say(f"==> using the embedded model; --model takes another: {_listed(others)}")
        return _EMBEDDED[0]
    choices = [_EMBEDDED, *others]
    _say("==> these models are available:")
    for number, (name, why) in enumerate(choices, 1):
        _say(f"    {number}  {name}  ({why})")
    return choices[_ask(len(choices), timeout) - 1][0]


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


def recorded_model(
    store: str, function: str | None = None, args: Mapping[str, Any] | None = None
) -> str | None:
    """Return the model of a run that an earlier process left unfinished.

    With a *function*, only a run that calls it with *args* counts.
    """
    if not is_url(store) and not os.path.exists(store):
        return None
    try:
        observer = attach(store)
    except StoreError:
        if is_url(store):
            return None  # the runtime creates it, or says what is wrong
        raise
    with observer:
        for tree in reversed(observer.trees(open=True)):
            if function is not None and tree.function != function:
                continue
            view = observer.get_view(tree.id)
            if view.inert or (function is not None and dict(view.inputs) != args):
                continue
            if (model := _model_in(view)) is not None:
                return model
    return None


def _model_in(top: NodeView) -> str | None:
    stack = [top]
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


def _listed(choices: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} ({why})" for name, why in choices)


def _say(text: str, end: str = "\n") -> None:
    print(printable(text), end=end, file=sys.stderr, flush=True)
