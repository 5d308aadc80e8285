"""Options that have a second name, the one that they have in other libraries."""

from typing import TypeVar

from treefold.core.errors import DefinitionError

V = TypeVar("V")


def either(owner: str, name: str, value: V | None, other: str, other_value: V | None) -> V | None:
    """Return the value of an option of *owner* that may be given as *name* or as *other*.

    Raises:
        DefinitionError: both are given.

    Example:
        >>> either("greet", "uses", None, "tools", [print]) == [print]
        True
    """
    if other_value is None:
        return value
    if value is not None:
        raise DefinitionError(
            f"{owner} got both {name}= and {other}=, which are two names of one option: give one"
        )
    return other_value
