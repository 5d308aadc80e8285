"""``Parameter`` of a function, and ``FunctionArg``, an argument listed by hand."""

import inspect
from collections.abc import Sequence
from typing import Any, Final, Literal

from treefold.core.errors import DefinitionError
from treefold.core.lazy_dataclass import lazy_dataclass

MISSING: Final = inspect.Parameter.empty

JsonSchema = dict[str, Any]


@lazy_dataclass(frozen=True)
class Parameter:
    """One named parameter; without a default it is required."""

    name: str
    annotation: Any = Any
    default: Any = MISSING
    description: str = ""

    @property
    def required(self) -> bool:
        """Whether a caller must supply it."""
        return self.default is MISSING


@lazy_dataclass(frozen=True)
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
    enum: Sequence[str | int | float | bool] | None = None

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

    def as_parameter(self) -> Parameter:
        """Return the parameter that this argument describes."""
        annotation: Any = self.argtype if self.enum is None else Literal[tuple(self.enum)]
        if self.optional:
            return Parameter(self.name, annotation | None, None, self.desc)
        return Parameter(self.name, annotation, description=self.desc)
