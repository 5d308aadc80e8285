"""``treefold doctor``: show what is installed and configured, and how to get what is missing.

Environment variables with keys and addresses are shown by name only, never with a part of a value.
"""

import asyncio
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from treefold.cli.exit_codes import DONE, FAILED
from treefold.cli.local import fetch_advice
from treefold.cli.options import STORE_VARIABLE, command, json_option
from treefold.cli.output import print_json
from treefold.cli.packages import Extra, extras_of
from treefold.core.errors import InvalidValueError, StoreError, TreefoldError, UsageError
from treefold.core.provider import BASE_URL_VARIABLE, MODEL_VARIABLE
from treefold.models.anthropic.model import AnthropicModel
from treefold.models.choice import environment_model
from treefold.models.gemini.model import GeminiModel
from treefold.models.local.catalogue import CATALOGUE, Weights
from treefold.models.local.weights import find_candidate
from treefold.models.openai.model import LOCAL_SERVERS, OpenAIModel
from treefold.models.secret import Secret
from treefold.models.servers import find_servers
from treefold.models.wire_model import WireModel
from treefold.stores.database import SQLITE, absolute
from treefold.stores.file_system import read_mounts, refuse_network
from treefold.stores.sqlite_store import SqliteStore
from treefold.version import __version__
from treefold.views.text import printable

_PROVIDERS: Final[tuple[type[WireModel], ...]] = (AnthropicModel, GeminiModel, OpenAIModel)
_SETTINGS: Final = (MODEL_VARIABLE, BASE_URL_VARIABLE, STORE_VARIABLE, "TREEFOLD_CACHE")
_DRAWN: Final = "✓✗·●‖⊘├─└│∥→…"  # the characters that trees are drawn with
_TIMEOUT: Final = 5.0  # seconds; only a slow server takes them
_MOST_MODELS: Final = 5  # of one server that are listed
_UNKNOWN: Final = "unknown: treefold is not installed, but runs from its sources"


@command(
    "doctor",
    exit_codes="0 a model can be used, 1 none can be used, 2 wrong usage,\n130 it was interrupted",
)
@json_option
def doctor(*, json: bool) -> int:
    """Show what is installed, which keys, servers and models are found, whether
    a journal can be kept in this folder, and what the terminal can display.

    example: treefold doctor

    Keys are named, but never shown. To find out whether the folder can hold a journal, a journal
    is created there and removed again.
    """
    found = examine()
    if json:
        print_json(found)
    else:
        print("\n".join(map(printable, _lines(found))))
    return DONE if found["usable"] else FAILED


def examine(servers: Mapping[str, str] = LOCAL_SERVERS) -> dict[str, Any]:
    """Return all findings as JSON data; *servers* are the addresses to ask, by name."""
    extras = extras_of("treefold")
    found: dict[str, Any] = {
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "system": f"{platform.system()} {platform.machine()}",
            "executable": sys.executable,
        },
        "treefold": {"version": __version__, "folder": str(Path(__file__).parent.parent)},
        "extras": [_extra(extra) for extra in extras],
        "keys": [_key(name, kind) for kind in _PROVIDERS for name in kind.key_names],
        "settings": [name for name in _setting_names() if os.environ.get(name)],
        "servers": _servers(servers),
        "weights": [_weights(one) for one in CATALOGUE],
        "default_model": _default_model(),
        "journal": {"sqlite": SQLITE, "folder": os.getcwd(), "fault": _journal_fault(os.getcwd())},
        "terminal": _terminal(),
    }
    return found | {"usable": list(_usable(found))}


def _extra(extra: Extra) -> dict[str, Any]:
    packages = [
        {"name": one.name, "wanted": one.wanted, "version": one.version, "will_do": one.will_do}
        for one in extra.packages
    ]
    target = f"treefold[{extra.name}]" if extra.name else "treefold"
    install = None if extra.ready else f"pip install '{target}'"
    return {"name": extra.name, "ready": extra.ready, "install": install, "packages": packages}


def _key(name: str, kind: type[WireModel]) -> dict[str, Any]:
    value = os.environ.get(name, "")
    fault = None if value.strip() or not value else "it is empty"
    try:
        Secret(value)
    except InvalidValueError:
        fault = "it has characters that no key has; was it copied whole?"
    return {"name": name, "provider": str(kind.provider), "set": bool(value), "fault": fault}


def _setting_names() -> Iterator[str]:
    yield from _SETTINGS
    for kind in _PROVIDERS:
        yield kind.url_name


def _servers(addresses: Mapping[str, str]) -> dict[str, Any]:
    """Return the servers that answer, at *addresses* and at the one that the user has set."""
    own = os.environ.get(BASE_URL_VARIABLE, "")
    asked = dict(addresses)
    if own and own.lower() not in asked and own.rstrip("/") not in asked.values():
        asked[BASE_URL_VARIABLE] = own
    try:
        found = {server.name: server for server in asyncio.run(find_servers(asked, _TIMEOUT))}
    except UsageError as error:
        return {"fault": str(error), "asked": []}
    answers = [
        {
            "name": name,
            "base_url": addresses.get(name),  # the value of a variable is not shown
            "models": list(found[name].models) if name in found else None,
        }
        for name in asked
    ]
    return {"fault": None, "asked": answers}


def _weights(weights: Weights) -> dict[str, Any]:
    path = find_candidate(weights)
    return {
        "model": weights.model_name,
        "file": weights.file,
        "path": None if path is None else str(path),
        "fetch": None if path else fetch_advice(weights),
    }


def _default_model() -> dict[str, Any]:
    """Return the model of calls that name none, as the environment says, or why there is none."""
    try:
        model = environment_model()
    except InvalidValueError as error:
        return {"name": None, "fault": str(error)}
    if model is None:
        return {"name": None, "fault": None}
    # The value of TREEFOLD_BASE_URL is not shown.
    at = f" at {BASE_URL_VARIABLE}" if os.environ.get(BASE_URL_VARIABLE) else ""
    name = os.environ[MODEL_VARIABLE]
    return {"name": f"{name}{at}", "fault": None}


def _journal_fault(folder: str) -> str | None:
    """Return why no journal can be kept in *folder*, or None; a journal is created to find out."""
    try:
        refuse_network(absolute(os.path.join(folder, "run.db")), read_mounts())
        with (
            TemporaryDirectory(prefix=".treefold-doctor-", dir=folder) as inside,
            SqliteStore(os.path.join(inside, "run.db")) as store,
        ):
            store.join()
    except StoreError as error:
        return str(error.args[1])  # without the path of the temporary folder
    except TreefoldError as error:
        return str(error)
    except OSError as error:
        return f"{error.strerror or error}; go to a folder that you may write to, or give --store"
    return None


def _terminal() -> dict[str, Any]:
    size = shutil.get_terminal_size()
    live, dumb = sys.stdout.isatty(), os.environ.get("TERM") == "dumb"
    try:
        _DRAWN.encode(sys.stdout.encoding)
        draws = True
    except (UnicodeError, LookupError):
        draws = False
    return {
        "live": live,
        "columns": size.columns,
        "lines": size.lines,
        "colours": live and not dumb and "NO_COLOR" not in os.environ,
        "unicode": draws,
        "encoding": sys.stdout.encoding,
        "name": os.environ.get("TERM"),
    }


def _usable(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the providers, servers and models that can be used."""
    lacking = {extra["name"] for extra in found["extras"] if not extra["ready"]}
    for key in found["keys"]:
        if key["set"] and key["fault"] is None and key["provider"] not in lacking:
            yield f"{key['provider']} ({key['name']})"
    for server in found["servers"]["asked"]:
        if server["models"] and OpenAIModel.provider not in lacking:
            yield server["name"]
    if "local" not in lacking:
        yield from (one["model"] for one in found["weights"] if one["path"])


# As text


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    python, treefold = found["python"], found["treefold"]
    yield "python"
    kind = f"{python['implementation']}, {python['system']}"
    yield _line(python["version"], f"{kind}, {python['executable']}", good=True)
    yield "treefold"
    yield _line(treefold["version"], treefold["folder"], good=True)
    yield from _extra_lines(found["extras"])
    yield "keys"
    for key in found["keys"]:
        about = "is set" if key["set"] else f"is not set: {key['provider']} needs it"
        good = not key["fault"] if key["set"] else None
        yield _line(key["name"], key["fault"] or about, good=good)
    for name in found["settings"]:
        yield _line(name, "is set", good=True)
    yield "servers"
    yield from _server_lines(found["servers"])
    yield "local models"
    for one in found["weights"]:
        yield _line(one["model"], one["path"] or one["fetch"], good=True if one["path"] else None)
    yield "model of calls that name none"
    yield _default_line(found["default_model"])
    yield "journal"
    journal = found["journal"]
    fault = f"cannot be kept in {journal['folder']}: {journal['fault']}"
    about = fault if journal["fault"] else f"can be kept in {journal['folder']}"
    yield _line(f"SQLite {journal['sqlite']}", about, good=not journal["fault"])
    yield "terminal"
    yield from _terminal_lines(found["terminal"])
    yield ""
    usable = ", ".join(found["usable"])
    yield f"usable models: {usable}" if usable else f"no usable model; {_advice(found)}"


def _extra_lines(extras: list[dict[str, Any]]) -> Iterator[str]:
    if not extras:
        yield _line("packages", _UNKNOWN)
    for extra in extras:
        have = [f"{one['name']} {one['version']}" for one in extra["packages"] if one["will_do"]]
        lack = [_missing(one) for one in extra["packages"] if not one["will_do"]]
        about = ", ".join(lack or have)
        if extra["install"]:
            about += f": {extra['install']}"
        good = None if any(one["version"] is None for one in extra["packages"]) else extra["ready"]
        yield _line(f"[{extra['name']}]" if extra["name"] else "packages", about, good=good)


def _missing(package: Mapping[str, Any]) -> str:
    if package["version"] is None:
        return f"{package['name']} is missing"
    return f"{package['name']} {package['version']} is not {package['wanted']}"


def _server_lines(servers: Mapping[str, Any]) -> Iterator[str]:
    if servers["fault"]:
        yield _line("not asked", servers["fault"])
    for server in servers["asked"]:
        models, where = server["models"], server["base_url"] or "the address in it"
        if models is None:
            yield _line(server["name"], f"no answer from {where}")
            continue
        more = f" and {len(models) - _MOST_MODELS} more" if len(models) > _MOST_MODELS else ""
        named = ", ".join(models[:_MOST_MODELS]) + more
        about = f"{where} has {named or 'no model yet'}"
        yield _line(server["name"], about, good=True if models else None)


def _default_line(default: Mapping[str, Any]) -> str:
    if default["fault"]:
        return _line("none", default["fault"], good=False)
    if default["name"] is None:
        fails = f"{MODEL_VARIABLE} is not set: name a model in each program, or set it to one"
        return _line("none", fails)
    return _line(default["name"], f"{MODEL_VARIABLE} names it", good=True)


def _terminal_lines(terminal: Mapping[str, Any]) -> Iterator[str]:
    size = f"{terminal['columns']} x {terminal['lines']}"
    about = f"{size}, {'colours' if terminal['colours'] else 'no colours'}"
    if not terminal["live"]:
        about = "stdout is not a terminal: trees are shown when they have ended, without colours"
    yield _line(terminal["name"] or "no TERM", about, good=True if terminal["live"] else None)
    drawn = "has all characters that trees are drawn with"
    poor = "lacks characters of trees, and codes are shown instead: use a UTF-8 locale"
    about = drawn if terminal["unicode"] else poor
    yield _line(str(terminal["encoding"]), about, good=terminal["unicode"])


def _line(what: str, about: str, *, good: bool | None = None) -> str:
    sign = "·" if good is None else "✓" if good else "✗"
    return f"  {sign} {what:<18} {about}"


def _advice(found: Mapping[str, Any]) -> str:
    steps = [extra["install"] for extra in found["extras"] if extra["name"] == "local"]
    fetched = any(one["path"] for one in found["weights"])
    steps.append(None if fetched else "treefold local fetch")
    commands = " && ".join(step for step in steps if step) or "treefold chat --local"
    return f"set a key, start a server, or: {commands}"
