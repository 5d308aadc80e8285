"""The version of a function: a short text that differs if the function does something else.

It has a hash for each part of the definition of the function, behind the first letter of its name:
``p3f9a02-t51b7cd-s0d44e1`` is an agent with this prompt, these tools and these settings. So two
versions also say what has changed. A version is the same in every process, on every machine and in
every folder: it depends on no address, no order of a set and no path.
"""

import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from pathlib import PurePath
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from treefold.core.fact import Fact, fields_of
from treefold.core.from_file import FromFile
from treefold.core.function import Function
from treefold.core.signature import underlying
from treefold.runtime.durable.normalized_source import normalized_source

log = logging.getLogger(__name__)

_BYTES: Final = 3  # of the hash of one part
_PART: Final = rf"[a-zA-Z][0-9a-f]{{{2 * _BYTES}}}"
_FORM: Final = re.compile(f"{_PART}(-{_PART})*")
_NAMES: Final = ("code", "prompt", "tools", "settings", "arguments", "guard")
_PACKAGE: Final = __name__.partition(".")[0]

_known: "WeakKeyDictionary[Function, str]" = WeakKeyDictionary()


def version_of(function: Function) -> str:
    """Return the version of *function*, computed once; empty if it cannot be computed."""
    version = _known.get(function)
    if version is None:
        version = _known[function] = _computed(function)
    return version


def changed_parts(before: str, now: str) -> list[str]:
    """Return the parts in which two versions of a function differ, in words.

    A part that only one of them has cannot be compared. That includes one whose source was
    available only once: its letter is a capital in the version without the source.
    """
    if not before or not now or before == now:
        return []
    if not (_FORM.fullmatch(before) and _FORM.fullmatch(now)):
        return ["definition"]
    old = {part[0]: part for part in before.split("-")}
    new = {part[0]: part for part in now.split("-")}
    words = {name[0]: name for name in _NAMES}
    changed = [key for key, part in old.items() if new.get(key, part) != part]
    return [words.get(key.lower(), "definition") for key in changed]


def _computed(function: Function) -> str:
    try:
        parts = dict(function.definition())
        if function.ask:
            parts["guard"] = function.ask
        hashes = [_hash_of(name, value, function.made_at) for name, value in parts.items()]
    except Exception as error:  # noqa: BLE001 - a definition may run foreign code
        log.warning("the version of %s is not known: %r", function.name, error)
        return ""
    return "-".join(hashes)


def version_of_hook(hook: Callable[..., Any]) -> str:
    """Return the version of a decision hook; empty if it cannot be computed."""
    try:
        # The source of a hook is not reloaded, unlike that of a function in a notebook.
        return _hash_of("guard", hook, time.time())
    except Exception as error:  # noqa: BLE001 - an object may run foreign code
        log.warning("the version of the hook %r is not known: %r", hook, error)
        return ""


def _hash_of(name: str, value: Any, made_at: float) -> str:
    """Return the hash of one part of a definition, behind the first letter of its *name*."""
    part = _Part(made_at)
    text = json.dumps(part.data_of(value), sort_keys=True)
    digest = blake2b(text.encode(), digest_size=_BYTES).hexdigest()
    return (name[0].lower() if part.has_all_sources else name[0].upper()) + digest


class _Part:
    """One part of a definition, as JSON data.

    Attributes:
        has_all_sources: whether the sources of all callables in it are available.
    """

    def __init__(self, made_at: float) -> None:
        self._made_at = made_at
        self.has_all_sources = True

    def data_of(self, value: Any) -> Any:
        """Return *value* as JSON data; an object of an unknown kind counts by its type only."""
        if value is None or isinstance(value, str | int | float):
            return value
        if isinstance(value, FromFile):
            # The text in it is data, which each call reads and records.
            return {"file": PurePath(value.path).name}
        if isinstance(value, Mapping):
            items = cast("Mapping[Any, Any]", value).items()
            return {str(self.data_of(key)): self.data_of(item) for key, item in items}
        if isinstance(value, list | tuple):
            return [self.data_of(item) for item in cast("list[Any]", value)]
        if isinstance(value, set | frozenset):
            return sorted(json.dumps(self.data_of(item)) for item in cast("set[Any]", value))
        if isinstance(value, Fact):
            found = fields_of(type(value))
        elif is_dataclass(value) and not isinstance(value, type):
            found = fields(value)
        else:
            found = None
        if found is not None:
            # A field that a later release adds does not count unless it is used.
            return {
                field.name: self.data_of(item)
                for field in found
                if (item := getattr(value, field.name)) is not field.default
            }
        if callable(value) and not isinstance(value, type):
            return self._source_of(value)
        return type(value).__qualname__

    def _source_of(self, value: Callable[..., Any]) -> str:
        """Return the source of *value*; its name if it has none, or is a part of treefold."""
        found = underlying(value)
        module, name = getattr(found, "__module__", None) or "", found.__qualname__
        if module.partition(".")[0] == _PACKAGE:
            return name
        if (source := normalized_source(value, self._made_at)) is not None:
            return source
        self.has_all_sources = False
        return name
