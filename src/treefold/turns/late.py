"""Values given now and needed later: fixed arguments, and functions that are called in time."""

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

from treefold.core.function import Function


async def evaluated(value: Any) -> Any:
    """Return *value*, or what it gives if it is a function that needs no arguments."""
    if not is_late(value):
        return value
    result = value()
    return await result if inspect.isawaitable(result) else result


def is_late(value: Any) -> bool:
    """Whether *value* is to be called, without arguments, when it is needed.

    Classes and Functions are values to be passed on: calling them would make something else.
    """
    if not callable(value) or isinstance(value, type | Function):
        return False
    try:
        inspect.signature(value).bind()
    except (TypeError, ValueError):
        return False
    return True


async def with_fixed(
    fixed: Mapping[str, Any], given: Mapping[str, Any], owner: str
) -> dict[str, Any]:
    """Return *given* and, of the *fixed* values, those that it does not override."""
    values = dict(given)
    for name, value in fixed.items():
        if name in values:
            warnings.warn(
                f"the fixed argument {name!r} of {owner} is overridden by the call", stacklevel=3
            )
        else:
            values[name] = await evaluated(value)
    return values
