"""The decorator that makes tools: of a signature, or of a handler and a schema."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, overload

from treefold.core.errors import DefinitionError
from treefold.core.function import Function
from treefold.core.parameter import JsonSchema
from treefold.turns.definition import ToolOptions, ToolType
from treefold.turns.named import NamedDecorator, NamedDefinition
from treefold.turns.tool import AnyTool, FixingDecorator, P, R, Tool, ToolDecorator

_PARTS: Final = ("name", "description", "input_schema")


@overload
def tool(fn: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(  # pyright: ignore[reportOverlappingOverload] - the last one is for the rest
    name: str,
    description: str,
    input_schema: JsonSchema,
    *,
    lock: bool = False,
    tags: Iterable[str] | None = None,
    type: ToolType = ToolType.ACTION,
    uses: Iterable[Function] = (),
    repeatable: bool | None = None,
) -> NamedDecorator: ...


@overload
def tool(  # pyright: ignore[reportOverlappingOverload] - the last one is for the rest
    *,
    lock: bool = False,
    tags: Iterable[str] | None = None,
    type: ToolType = ToolType.ACTION,
    uses: Iterable[Function] = (),
    repeatable: bool | None = None,
) -> ToolDecorator: ...


@overload
def tool(
    *,
    lock: bool = False,
    tags: Iterable[str] | None = None,
    type: ToolType = ToolType.ACTION,
    uses: Iterable[Function] = (),
    repeatable: bool | None = None,
    **fixed_kwargs: Any,
) -> FixingDecorator: ...


def tool(
    *args: Any,
    lock: bool = False,
    tags: Iterable[str] | None = None,
    type: ToolType = ToolType.ACTION,
    uses: Iterable[Function] = (),
    repeatable: bool | None = None,
    **fixed_kwargs: Any,
) -> AnyTool | ToolDecorator | NamedDecorator:
    """Make a Tool of an ``async def`` or an async generator, and register it by its name.

    Or, as ``@tool("name", "description", {...})``, of a handler that takes all arguments as one
    dict; it may be a plain ``def``, which runs in a worker thread, and is not registered. The
    schema has a type for each parameter, or its JSON schema, with a "default", ``"optional": True``
    or ``"required": False`` if it may be left out; or it is one JSON schema for all of them.

    Args:
        args: the function; or name, description and schema.
        lock: run one call at a time, for tools that change something shared.
        tags: what global hooks can select by.
        type: ``ToolType.COMPLETION_CHECK`` for a tool that says whether an agent is done.
        uses: the functions that it may call.
        repeatable: whether it may be run again when nobody knows if it was run; unless it is said,
            only if it *uses* others.
        fixed_kwargs: arguments added to every call; a function without parameters is called each
            time. Call-time arguments override them, with a warning.

    Example:
        >>> import asyncio
        >>> from treefold import registries, tool
        >>> with registries():
        ...     @tool(greeting="Hello")
        ...     async def greet(name: str, greeting: str) -> str:
        ...         return f"{greeting}, {name}!"
        >>> asyncio.run(greet("World"))
        'Hello, World!'
        >>> @tool("search", "Search.", {"query": str, "limit": {"type": "integer", "default": 10}})
        ... async def search(args):
        ...     return [f"about {args['query']}"] * args.get("limit", 10)
        >>> asyncio.run(search.execute({"query": "bees", "limit": 2}))
        ['about bees', 'about bees']
        >>> search.input_schema["required"]
        ['query']
    """
    told, fixed = _parts(args, fixed_kwargs)
    options = ToolOptions(lock, tags, type, tuple(uses), repeatable, fixed)
    if told:
        return NamedDecorator(NamedDefinition.read(told, options))
    decorate = FixingDecorator(options) if fixed else ToolDecorator(options)
    return decorate(args[0]) if args else decorate


def _parts(
    args: Sequence[Any], keywords: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Tell name, description and schema from arguments to fix, where there are such parts at all.

    A tool of a signature may well have a ``name`` or a ``description`` to fix.
    """
    if (len(args) == 1 and callable(args[0])) or not (args or keywords.keys() >= set(_PARTS)):
        return {}, keywords
    if len(args) > len(_PARTS):
        raise DefinitionError(f"@tool takes a name, a description and a schema, not {args!r}")
    told: dict[str, Any] = dict(zip(_PARTS, args, strict=False))
    told |= {part: keywords[part] for part in _PARTS if part in keywords and part not in told}
    return told, {name: value for name, value in keywords.items() if name not in _PARTS}
