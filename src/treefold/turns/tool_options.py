"""The options of a tool, and the checks of the functions that tools are made of."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from treefold.core.errors import DefinitionError
from treefold.core.function import Ask, Function
from treefold.core.signature import Kind, name_of
from treefold.core.suggestions import did_you_mean


class ToolType(Enum):
    """What the result of a tool means to the agent that runs it.

    A COMPLETION_CHECK is run like any other tool, when its turn is next in the queue; if it
    returns True, the agent's run ends.

    Example:
        >>> from treefold import ToolType, registries, tool
        >>> with registries():
        ...     @tool(type=ToolType.COMPLETION_CHECK)
        ...     async def done() -> bool:
        ...         return True
        >>> done.type
        <ToolType.COMPLETION_CHECK: 'completion_check'>
    """

    ACTION = "action"
    COMPLETION_CHECK = "completion_check"


@dataclass(slots=True, frozen=True)
class ToolOptions:
    """The options of ``@tool(...)``; every other keyword is a fixed argument."""

    lock: bool
    tags: Iterable[str] | None
    type: ToolType
    uses: Sequence[Function]
    repeatable: bool | None
    remote: bool | str
    ask: Ask
    max_result_chars: int | None
    fixed: Mapping[str, Any]

    def check(self, fn: Callable[..., Any]) -> None:
        """Check that a tool with these options can be made of the signature of *fn*.

        Raises:
            DefinitionError: it cannot.
        """
        name = name_of(fn)
        if Kind.of(fn) is Kind.SYNC:
            raise DefinitionError(
                f"tool {name!r} must be async: write 'async def {name}(...)', and call blocking"
                " code in it with 'await asyncio.to_thread(...)'"
            )
        self.check_options(name, fn)
        parameters = inspect.signature(fn).parameters
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        unknown = [name for name in self.fixed if name not in parameters]
        if unknown and not takes_any:
            options = [one.name for one in fields(self) if one.name != "fixed"]
            hint = did_you_mean(unknown[0], [*options, *parameters], then=" ")
            raise DefinitionError(
                f"tool {name!r}: {', '.join(map(repr, unknown))} is neither an option of @tool nor"
                f" a parameter of the function; {hint}options are {', '.join(options)}, and it"
                f" takes {', '.join(parameters) or 'no arguments'}"
            )

    def check_options(self, name: str, fn: Callable[..., Any]) -> None:
        """Check these options alone, without regard to the parameters of *fn*.

        Raises:
            DefinitionError: an option is invalid, or does not suit *fn*.
        """
        for option, value in ("lock", self.lock), ("repeatable", self.repeatable or False):
            if not isinstance(value, bool):
                raise self._invalid(name, option, "True or False")
        if not isinstance(self.remote, bool | str):
            raise self._invalid(name, "remote", "True, False or the name of a queue")
        if not (isinstance(self.ask, bool | str) or callable(self.ask)):
            raise self._invalid(name, "ask", "True, why a person is asked, or a function")
        if not isinstance(self.type, ToolType):
            raise self._invalid(name, "type", "a ToolType")
        if not all(isinstance(used, Function) for used in self.uses):
            raise self._invalid(name, "uses", "a list of Functions")
        signature = inspect.signature(fn)
        if next(iter(signature.parameters), None) == "self":
            raise DefinitionError(
                f"tool {name!r} is a method: make the tool of a bound one, 'tool(thing.{name})'"
            )
        if self.type is ToolType.COMPLETION_CHECK and (
            Kind.of(fn) is Kind.STREAM or signature.return_annotation not in {bool, "bool"}
        ):
            raise DefinitionError(
                f"completion check {name!r} must be a coroutine function that returns a bool:"
                f" write 'async def {name}(...) -> bool'"
            )

    def _invalid(self, name: str, option: str, expected: str) -> DefinitionError:
        return DefinitionError(
            f"{option}={getattr(self, option)!r} for tool {name!r}: {option!r} is an option of"
            f" @tool and must be {expected}; to fix a parameter of that name, give it a default"
        )
