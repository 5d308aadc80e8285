"""Values in the words of a reader instead of Python's: for lists, where a line is all there is."""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, Final, cast

from treefold.core.escaping import printable
from treefold.core.truncation import truncate, truncated_repr

_MOST: Final = 12  # elements of a collection; more do not fit into a line
_DEEPEST: Final = 4  # collections in collections


def in_words(value: Any, room: int = 160) -> str:
    """Return *value* on one line of at most *room* characters, without quotes and brackets.

    Example:
        >>> in_words({"city": "Ulm", "open": True, "roads": ["A 7", "A 8"]})
        'city: Ulm, open: yes, roads: (A 7, A 8)'
        >>> in_words([]), in_words(None), in_words(2.5)
        ('nothing', 'nothing', '2.5')
    """
    return truncate(printable(truncate(_words(value, room), room)), room)


def arguments_in_words(inputs: Mapping[str, Any], room: int = 160) -> str:
    """Return the arguments of a call; a single one without its name.

    Example:
        >>> arguments_in_words({"question": "Why is the sky blue?"})
        'Why is the sky blue?'
    """
    if not inputs:
        return ""
    return in_words(next(iter(inputs.values())) if len(inputs) == 1 else inputs, room)


def _words(value: Any, room: int, depth: int = 0) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "yes" if value else "no"
        case str():
            # What is cut off need not be read.
            return " ".join(value[: 4 * room].split()) or "an empty text"
        case bytes():
            return f"{len(value):,} bytes"
        case Mapping():
            items = cast("Mapping[Any, Any]", value).items()
            pairs = (f"{_words(key, room)}: {_inner(one, room, depth)}" for key, one in items)
            return _joined(pairs, len(items))
        case list() | tuple() | set() | frozenset():
            values = cast("Collection[Any]", value)
            return _joined((_inner(one, room, depth) for one in values), len(values))
        case _:
            return truncated_repr(value, room)


def _joined(texts: Iterator[str], count: int) -> str:
    first = ", ".join(islice(texts, _MOST)) or "nothing"
    return f"{first}, …" if count > _MOST else first


def _inner(value: Any, room: int, depth: int) -> str:
    """Return a value inside another one; only a collection that is not empty needs brackets."""
    if not value or not isinstance(value, Mapping | list | tuple | set | frozenset):
        return _words(value, room)
    return f"({_words(value, room, depth + 1)})" if depth < _DEEPEST else "(…)"
