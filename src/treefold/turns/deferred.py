"""Deferred values: functions without parameters that are called when their value is needed."""

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

from treefold.core.function import Function


async def resolve(value: Any) -> Any:
    """Return *value*, or the result of calling it if it is deferred; a coroutine is awaited."""
    if not is_deferred(value):
        return value
    result = value()
    return await result if inspect.isawaitable(result) else result


def is_deferred(value: Any) -> bool:
    """Whether *value* is a callable that needs no arguments, to be called when it is needed.

    Classes and Functions are passed on as values: calling them would create something else.
    """
    if not callable(value) or isinstance(value, type | Function):
        return False
    try:
        inspect.signature(value).bind()
    except (TypeError, ValueError):
        return False
    return True


async def add_fixed_arguments(
    fixed: Mapping[str, Any], given: Mapping[str, Any], owner: str
) -> dict[str, Any]:
    """Return *given* plus the *fixed* arguments that it does not override, with a warning if so."""
    values = dict(given)
    for name, value in fixed.items():
        if name in values:
            warnings.warn(
                f"the fixed argument {name!r} of {owner} is overridden by the call", stacklevel=3
            )
        else:
            values[name] = await resolve(value)
    return values
