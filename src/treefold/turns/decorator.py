"""``@tool``, which makes tools: of a signature, or of a handler and a schema."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, Final, overload

from treefold.core.errors import DefinitionError
from treefold.core.function import Ask, Function, Q, RunContext, T
from treefold.core.parameter import JsonSchema
from treefold.turns.dict_tool import DictToolDecorator, DictToolDefinition
from treefold.turns.tool_options import ToolOptions, ToolType
from treefold.turns.tools import (
    CoroutineTool,
    PartialToolDecorator,
    StreamTool,
    Tool,
    ToolDecorator,
    Untyped,
)

_PARTS: Final = ("name", "description", "input_schema")


# The first one is for a function whose first parameter has no type: it could be anything.
@overload
def tool(fn: Callable[Concatenate[Untyped, ...], Any], /) -> Tool: ...


@overload
def tool(fn: Callable[Concatenate[RunContext[Any], Q], Awaitable[T]], /) -> CoroutineTool[Q, T]: ...


@overload
def tool(fn: Callable[Q, Awaitable[T]], /) -> CoroutineTool[Q, T]: ...


@overload
def tool(
    fn: Callable[Concatenate[RunContext[Any], Q], AsyncIterator[T]], /
) -> StreamTool[Q, T]: ...


@overload
def tool(fn: Callable[Q, AsyncIterator[T]], /) -> StreamTool[Q, T]: ...


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
    remote: bool | str = False,
    ask: Ask = False,
    max_result_chars: int | None = None,
) -> DictToolDecorator: ...


@overload
def tool(  # pyright: ignore[reportOverlappingOverload] - the last one is for the rest
    *,
    lock: bool = False,
    tags: Iterable[str] | None = None,
    type: ToolType = ToolType.ACTION,
    uses: Iterable[Function] = (),
    repeatable: bool | None = None,
    remote: bool | str = False,
    ask: Ask = False,
    max_result_chars: int | None = None,
) -> ToolDecorator: ...


@overload
def tool(
    *,
    lock: bool = False,
    tags: Iterable[str] | None = None,
    type: ToolType = ToolType.ACTION,
    uses: Iterable[Function] = (),
    repeatable: bool | None = None,
    remote: bool | str = False,
    ask: Ask = False,
    max_result_chars: int | None = None,
    **fixed_kwargs: Any,
) -> PartialToolDecorator: ...


def tool(
    *args: Any,
    lock: bool = False,
    tags: Iterable[str] | None = None,
    type: ToolType = ToolType.ACTION,
    uses: Iterable[Function] = (),
    repeatable: bool | None = None,
    remote: bool | str = False,
    ask: Ask = False,
    max_result_chars: int | None = None,
    **fixed_kwargs: Any,
) -> Tool | ToolDecorator | PartialToolDecorator | DictToolDecorator:
    """Make a Tool of an ``async def`` or an async generator, and register it by its name.

    ``@tool("name", "description", {...})`` makes one of a handler that takes all arguments as one
    dict. The handler may be a plain ``def``, which runs in a worker thread; the tool is not
    registered. The schema has a type or a JSON schema for each parameter, with a "default",
    ``"optional": True`` or ``"required": False`` if the parameter is optional; or it is one JSON
    schema for all parameters.

    Args:
        args: the function; or name, description and schema.
        lock: run one call at a time, for tools that change shared state.
        tags: labels by which global hooks select tools.
        type: ``ToolType.COMPLETION_CHECK`` for a tool that decides whether an agent is done.
        uses: the functions that it may call.
        repeatable: whether it may run again after a crash that leaves unknown whether it ran; by
            default only if it *uses* other functions.
        remote: whether any worker of a shared store may run its calls, or the name of a queue.
        ask: whether a person has to approve each call that a model asks for, wherever it runs:
            True, the question as a text, or a function of the arguments (a dict) that returns one
            of these. Calls that code makes are not asked about.
        max_result_chars: how many characters of a result a model gets at once; 100,000 at most.
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
    parts, fixed = _split_arguments(args, fixed_kwargs)
    options = ToolOptions(
        lock, tags, type, tuple(uses), repeatable, remote, ask, max_result_chars, fixed
    )
    if parts:
        return DictToolDecorator(DictToolDefinition.read(parts, options))
    if args:
        return ToolDecorator(options)(args[0])
    return PartialToolDecorator(options) if fixed else ToolDecorator(options)


def _split_arguments(
    args: Sequence[Any], keywords: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return name, description and schema, if they are given, and the arguments to fix.

    A tool that is made of a signature may have a ``name`` or a ``description`` to fix.
    """
    if (len(args) == 1 and callable(args[0])) or not (args or keywords.keys() >= set(_PARTS)):
        return {}, keywords
    if len(args) > len(_PARTS):
        raise DefinitionError(f"@tool takes a name, a description and a schema, got {args!r}")
    parts: dict[str, Any] = dict(zip(_PARTS, args, strict=False))
    parts |= {part: keywords[part] for part in _PARTS if part in keywords and part not in parts}
    return parts, {name: value for name, value in keywords.items() if name not in _PARTS}
