"""The model of calls that name none: that of the environment, or an error that lists candidates.

Nothing is guessed. A key or a server that is found here is listed in the error, and never used.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from treefold.core.errors import InvalidValueError, NoModelError, UsageError
from treefold.core.model import Model
from treefold.core.provider import BASE_URL_VARIABLE, MODEL_VARIABLE, Provider
from treefold.models.anthropic.model import AnthropicModel
from treefold.models.gemini.model import GeminiModel
from treefold.models.local.catalogue import CATALOGUE, SMOLLM2
from treefold.models.local.weights import find_candidate
from treefold.models.naming import DEFAULTS, find_model
from treefold.models.openai.model import LOCAL_SERVERS, OpenAIModel
from treefold.models.servers import FoundServer, find_servers

KEYED: Final = (AnthropicModel, OpenAIModel, GeminiModel)  # models of providers that need a key

_LOCAL: Final = "embedded: needs no key and no server; is small, and cannot call functions"
_NO_MODEL: Final = (
    "no model is chosen for {whom}, and none is taken unasked. Write one of these, for what was"
    " found here:"
)
_NO_KEY: Final = "A key adds the models of its provider: {keys} (none of them is set)"


def environment_model() -> Model | None:
    """Return the model that ``TREEFOLD_MODEL`` names; None if it is not set.

    With ``TREEFOLD_BASE_URL`` it is the name of a model on that server, as in ``AgentOptions``;
    otherwise it is whatever ``find_model`` takes.

    Raises:
        InvalidValueError: there is no such model.
    """
    name, address = os.environ.get(MODEL_VARIABLE), os.environ.get(BASE_URL_VARIABLE)
    if not name:
        return None
    try:
        return OpenAIModel(name, base_url=address) if address else find_model(name)
    except InvalidValueError as error:
        hint = "" if address else f"; or set {BASE_URL_VARIABLE} to the server that has it"
        raise InvalidValueError(f"{MODEL_VARIABLE}={name}: {error}{hint}") from None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that could be chosen.

    Attributes:
        name: the model, as programs name it; None if that would need an address from a variable.
        variable: the model, as ``TREEFOLD_MODEL`` takes it; None if that takes only the models of
            the server that ``TREEFOLD_BASE_URL`` names.
        why: what was found, in words.
    """

    name: str | None
    variable: str | None
    why: str


async def find_candidates(servers: Mapping[str, str] = LOCAL_SERVERS) -> list[Candidate]:
    """Return the fetched local models, and a model of each provider with a key and of each server.

    *servers* are addresses, by name; that of ``TREEFOLD_BASE_URL`` is queried, too.
    """
    own = os.environ.get(BASE_URL_VARIABLE, "")
    own = servers.get(own.lower(), own).rstrip("/")
    found: list[Candidate] = []
    for weights in CATALOGUE:
        if weights is not SMOLLM2 and await asyncio.to_thread(find_candidate, weights):
            name = weights.model_name
            found.append(Candidate(name, None if own else name, f"embedded: {weights.about}"))
    for kind in KEYED:
        if key := next((name for name in kind.key_names if os.environ.get(name)), None):
            name = f"{kind.provider}:{DEFAULTS[Provider(kind.provider)]}"
            found.append(Candidate(name, None if own else name, f"{key} is set; this costs money"))
    asked = dict(servers)
    if own and own not in asked.values():
        asked[BASE_URL_VARIABLE] = own
    try:
        answered = await find_servers(asked)
    except UsageError:  # the package that queries servers is not installed
        answered = []
    chats = [(server, model) for server in answered if (model := _first_model(server))]
    return found + [_candidate(server, model, own) for server, model in chats]


def _candidate(server: FoundServer, model: str, own: str) -> Candidate:
    others = len(server.models) - 1
    why = f"{server.name} is running" + (f", with {others} more" if others else "")
    name = f"openai:{model}@{server.base_url}"
    if LOCAL_SERVERS.get(server.name) == server.base_url:
        name = f"{server.name}:{model}"
    if not own:
        return Candidate(name, name, why)
    if server.base_url != own:
        return Candidate(name, None, why)
    # Its address is the value of a variable, which may not be meant to be shown.
    shown = None if server.name == BASE_URL_VARIABLE else name
    return Candidate(shown, model, f"the server of {BASE_URL_VARIABLE} has it")


def _first_model(server: FoundServer) -> str | None:
    """Return the first model of *server* that is not for embeddings, and can be shown."""
    names = (name for name in server.models if name.isprintable())
    return next((name for name in names if "embed" not in name.lower()), None)


async def no_model_error(
    whom: str, *, option: str, servers: Mapping[str, str] = LOCAL_SERVERS
) -> NoModelError:
    """Return the error for *whom*, who has no model: it lists the keys and servers found here.

    *option* is how *whom* can be given a model; ``{}`` stands for its name. The search takes half
    a second at most, in a thread: loading what it needs would block the event loop.
    """
    found = await asyncio.to_thread(lambda: asyncio.run(find_candidates(servers)))
    fetched = await asyncio.to_thread(find_candidate, SMOLLM2)
    why = _LOCAL + ("" if fetched else f"; '{SMOLLM2.fetch_command}' gets it")
    local = Candidate("local", None if os.environ.get(BASE_URL_VARIABLE) else "local", why)
    lines = [_NO_MODEL.format(whom=whom)]
    for one in [*found, local]:
        ways = [option.format(one.name)] if one.name else []
        ways += [f"{MODEL_VARIABLE}={one.variable}"] if one.variable else []
        lines.append(f"  {' or '.join(ways)} ({one.why})")
    if not any(os.environ.get(name) for kind in KEYED for name in kind.key_names):
        lines.append(_NO_KEY.format(keys=", ".join(kind.key_names[0] for kind in KEYED)))
    return NoModelError("\n".join(lines))
