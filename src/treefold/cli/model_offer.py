"""Ask which of the available models a run is to use (``treefold run --model auto``).

The embedded one is the default: it needs no key and no server, and costs nothing.
"""

import asyncio
import os
import select
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

from treefold.cli.model_choice import ModelChoice, first_model
from treefold.core.errors import TreefoldError
from treefold.core.provider import Provider
from treefold.core.views import NodeView
from treefold.models.anthropic.model import AnthropicModel
from treefold.models.gemini.model import GeminiModel
from treefold.models.naming import DEFAULTS, find_model
from treefold.models.openai.model import LOCAL_SERVERS, OpenAIModel
from treefold.models.servers import find_servers
from treefold.runtime.observer import attach
from treefold.views.text import printable

_EMBEDDED: Final = ModelChoice("local", None, "embedded: needs no key and no server; it is small")
_KEYED: Final = (AnthropicModel, OpenAIModel, GeminiModel)


def offered_model(store: str | None, timeout: float = 10.0) -> str:
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
    """Return a model of each provider that has a key, and of each local server that is running.

    The names are those that ``find_model`` takes. *servers* are addresses, by name.
    """
    found: list[ModelChoice] = []
    for kind in _KEYED:
        if key := next((name for name in kind.key_names if os.environ.get(name)), None):
            name = f"{kind.provider}:{DEFAULTS[Provider(kind.provider)]}"
            found.append(ModelChoice(name, None, f"{key} is set; this costs money"))
    for server in await find_servers(servers):
        if model := first_model([server]):
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
