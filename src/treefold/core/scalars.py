"""Scalars of exactly the declared type: subclasses and other numbers are converted, or refused.

Journals, and what is posted to other processes, have values of these types only. A number of numpy,
an ``IntEnum`` or a str of a class of its own is such a value once it is converted.
"""

import math
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from operator import index
from typing import Any, TypeVar

from treefold.core.truncation import truncated_repr

K = TypeVar("K", bound=StrEnum)


def exact_text(value: Any) -> str:
    """Return *value* as a str.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(value, str):
        raise TypeError(f"has to be a text, not {_shown(value)}")
    return value if type(value) is str else str.__str__(value)


def exact_integer(value: Any) -> int:
    """Return *value* as an int; a float may be one, such as 3.0.

    Raises:
        TypeError: it is none.
    """
    try:
        if isinstance(value, float) and value.is_integer():
            return int(value)
        whole: Any = value
        return index(whole)
    except TypeError:
        raise TypeError(f"has to be a whole number, not {_shown(value)}") from None


def exact_number(value: Any) -> float:
    """Return *value* as a finite float.

    Raises:
        TypeError: it is none.
    """
    number = math.nan
    if not isinstance(value, str | bytes | bytearray):
        with suppress(ArithmeticError, TypeError, ValueError):
            number = float(value)
    if not math.isfinite(number):
        raise TypeError(f"has to be a finite number, not {_shown(value)}")
    return number


def exact_flag(value: Any) -> bool:
    """Return *value* as a bool; 0 and 1 are flags, too.

    Raises:
        TypeError: it is none.
    """
    # Foreign code may compare values in its own way.
    with suppress(Exception):
        if value in (True, False):
            return bool(value)
    raise TypeError(f"has to be True or False, not {_shown(value)}")


def exact_decimal(value: Any) -> Decimal:
    """Return a number as a Decimal, which has the digits that are printed of it.

    Raises:
        TypeError: *value* is no number.
    """
    try:
        return Decimal(value) if isinstance(value, Decimal) else Decimal(str(exact_number(value)))
    except InvalidOperation:
        raise TypeError(f"has to be an amount, not {_shown(value)}") from None


def exact_member(kind: type[K], value: Any) -> K:
    """Return the member of *kind* that *value* is, or the value of.

    Raises:
        TypeError: there is none.
    """
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(map(repr, map(str, kind)))
        raise TypeError(f"has to be one of {known}, not {_shown(value)}") from None


def exact(value: Any) -> Any:
    """Return a value of a subclass of str, int or float as one of the class itself.

    Raises:
        TypeError: it is none of these.
    """
    if isinstance(value, str):
        return exact_text(value)
    if isinstance(value, int):
        return index(value)
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _shown(value: Any) -> str:
    return truncated_repr(value, 100)
