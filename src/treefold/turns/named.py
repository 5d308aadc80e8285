"""Tools with a name, a description and a schema of their own, whatever their handler looks like."""

import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, TypeVar, overload

from treefold.core.errors import DefinitionError
from treefold.core.function import Function, RunContext
from treefold.core.parameter import JsonSchema
from treefold.core.signature import Kind, Signature, name_of
from treefold.turns.definition import ToolOptions, ToolType
from treefold.turns.handler import HandlerSignature
from treefold.turns.shorthand import check_shorthand
from treefold.turns.tool import R, Tool

T = TypeVar("T")

_FORM = '@tool("name", "description", {"city": str})'


class NamedTool(Tool[[Mapping[str, Any]], R]):
    """A tool whose handler is given all arguments as one dict.

    Example:
        >>> import asyncio
        >>> from treefold import Tool, tool
        >>> @tool("shout", "Say it loud.", {"text": str})
        ... def shout(args):
        ...     return args["text"].upper()
        >>> isinstance(shout, Tool), asyncio.run(shout.execute({"text": "hello"}))
        (True, 'HELLO')
    """

    def __init__(
        self,
        name: str,
        description: str,
        input_schema: JsonSchema,
        handler: Callable[..., Any],
        *,
        options: ToolOptions | None = None,
    ) -> None:
        parts = {"name": name, "description": description, "input_schema": input_schema}
        options = options or ToolOptions(
            lock=False, tags=None, type=ToolType.ACTION, uses=(), repeatable=None, fixed={}
        )
        self._definition = NamedDefinition.read(parts, options)
        self._definition.check(handler)
        self._define(handler, options, name=name, desc=description)

    def _read_signature(self) -> Signature:
        definition = self._definition
        return HandlerSignature(
            self.name, self.callable, definition.schema, lock=definition.options.lock
        )

    @property
    def handler(self) -> Callable[[Mapping[str, Any]], Any]:
        """The handler, which is given one dict; a sync one runs in a worker thread."""
        if self.kind is Kind.SYNC:
            return lambda arguments: self._signature.call(self._taken(arguments))
        return self.fn

    def __call__(self, arguments: Mapping[str, Any], /) -> R:
        """Run the handler with hooks and lock, outside any node."""
        return self._begun(self._taken(arguments))

    async def run(self, ctx: RunContext, args: Mapping[str, Any]) -> Any:
        return await super().run(ctx, self._taken(dict(args)))

    def _taken(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return HandlerSignature.values(arguments)


@dataclass(frozen=True, slots=True)
class NamedDefinition:
    """What ``@tool("name", "description", {...})`` was given."""

    name: str
    description: str
    schema: JsonSchema
    options: ToolOptions

    @classmethod
    def read(cls, told: Mapping[str, Any], options: ToolOptions) -> "NamedDefinition":
        """Return the definition, if *told* has all three parts of it and they make sense."""
        name = told.get("name")
        if not isinstance(name, str) or not name.strip():
            raise DefinitionError(f"the name of a tool is a text, not {name!r}: write {_FORM}")
        if missing := [part for part in ("description", "input_schema") if part not in told]:
            raise DefinitionError(
                f"tool {name!r} has no {' and no '.join(missing)}: write"
                f' @tool({name!r}, "description", {{"city": str}}), or @tool without a name'
            )
        if not isinstance(told["description"], str):
            raise DefinitionError(
                f"the description of tool {name!r} is a text, not {told['description']!r}"
            )
        if options.fixed:
            raise DefinitionError(
                f"tool {name!r} has a name of its own and takes no fixed arguments, such as"
                f" {', '.join(options.fixed)}: add them in its handler"
            )
        schema = check_shorthand(name, told["input_schema"])
        return cls(name, told["description"], schema, options)

    def check(self, handler: Callable[..., Any]) -> None:
        """Raise DefinitionError unless *handler* can be given one dict."""
        name = self.name
        remedy = f"write 'async def {_identifier(name)}(args): ...'"
        if not callable(handler) or isinstance(handler, Function):
            raise DefinitionError(f"tool {name!r} cannot be made of {handler!r}: {remedy}")
        try:
            signature = inspect.signature(handler)
        except ValueError:
            raise DefinitionError(
                f"nothing is known of the parameters of {handler!r}, which is to be the handler of"
                f" tool {name!r}: {remedy}"
            ) from None
        self.options.check_options(name, handler)
        injected = Signature(name, handler).injected
        try:
            signature.bind({}, **dict.fromkeys(injected))
        except TypeError:
            raise DefinitionError(
                f"the handler of tool {name!r} must take one dict, which"
                f" {name_of(handler)}{signature} does not: {remedy}"
            ) from None


class NamedDecorator:
    """What ``@tool("name", "description", {...})`` is: a maker of tools."""

    def __init__(self, definition: NamedDefinition) -> None:
        self._definition = definition

    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload] - the other one is for the rest
        self, handler: Callable[Concatenate[Any, ...], R]
    ) -> NamedTool[R]: ...

    @overload
    def __call__(
        self, handler: Callable[Concatenate[Any, ...], T]
    ) -> NamedTool[Coroutine[Any, Any, T]]: ...

    def __call__(self, handler: Callable[..., Any]) -> NamedTool[Any]:
        """Make a tool of *handler*; it is not registered."""
        made = self._definition
        return NamedTool(made.name, made.description, made.schema, handler, options=made.options)


Tool.by_hand = NamedTool


def _identifier(name: str) -> str:
    return name if name.isidentifier() else "handler"
