"""``Parameter`` of a function, and ``FunctionArg``, an argument listed by hand."""

import inspect
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from treefold.core.errors import DefinitionError
from treefold.core.fact import Fact

MISSING: Final = inspect.Parameter.empty

JsonSchema = dict[str, Any]


class Parameter(Fact, frozen=True):
    """One named parameter; without a default it is required."""

    name: str
    annotation: Any = Any
    default: Any = MISSING
    description: str = ""
    takes_bool: bool = True  # for a number, Python and pydantic would take True as 1

    @property
    def required(self) -> bool:
        """Whether a caller must supply it."""
        return self.default is MISSING


@dataclass(slots=True, frozen=True)
class FunctionArg:
    """One argument of a function whose arguments are listed by hand.

    Example:
        >>> FunctionArg("mode", str, "How to open it", enum=["r", "w"]).optional
        False
    """

    name: str
    argtype: type[str] | type[int] | type[float] | type[bool]
    desc: str = ""
    optional: bool = False
    enum: Collection[str | int | float | bool] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise DefinitionError(f"an argument has a name such as 'path', not {self.name!r}")
        if not any(self.argtype is plain for plain in (str, int, float, bool)):
            raise DefinitionError(
                f"argument {self.name!r} has type {self.argtype!r}; use str, int, float or bool, or"
                " make the function with @tool, which takes any type pydantic can describe"
            )
        if self.enum is not None and not self.enum:
            raise DefinitionError(f"argument {self.name!r} has an empty enum; list its values")
        if others := [value for value in self.enum or () if not self._is_of_type(value)]:
            raise DefinitionError(
                f"argument {self.name!r} is of type {self.argtype.__name__}, and its enum has"
                f" {others[0]!r}; list values of that type"
            )

    def _is_of_type(self, value: object) -> bool:
        """Whether *value* is of its type; for Python, a bool would be an int."""
        if isinstance(value, bool):
            return self.argtype is bool
        return isinstance(value, int | float if self.argtype is float else self.argtype)

    def as_parameter(self) -> Parameter:
        """Return the parameter that this argument describes."""
        # A set has another order in each process, and the schema should be the same.
        enum = self.enum if isinstance(self.enum, Sequence | None) else sorted(self.enum)
        annotation: Any = self.argtype if enum is None else Literal[tuple(enum)]
        takes_bool = self.argtype not in {int, float}
        if self.optional:
            return Parameter(self.name, annotation | None, None, self.desc, takes_bool)
        return Parameter(self.name, annotation, MISSING, self.desc, takes_bool)
