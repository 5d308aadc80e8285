"""Tools whose handler takes all arguments as one dict, with a schema that is written by hand.

Such a tool is made by ``@tool(name, description, schema)`` or ``Tool(name, description, schema,
handler)``. Its schema is a type or a JSON schema for each parameter, or one JSON schema for all.
"""

import inspect
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
)
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from types import CoroutineType
from typing import Annotated, Any, Concatenate, Final, Generic, cast, overload

from treefold.core.errors import DefinitionError
from treefold.core.function import Function, R_co, RunContext, T
from treefold.core.json_schema import read_parameters
from treefold.core.parameter import JsonSchema, Parameter
from treefold.core.parameters import REST, Parameters
from treefold.core.signature import Kind, Signature, name_of
from treefold.runtime.loops.threads import in_thread
from treefold.turns.tool_options import ToolOptions, ToolType
from treefold.turns.tools import C_co, Tool

_EXAMPLE: Final = '@tool("name", "description", {"city": str})'
_PLAIN_TYPES: Final = (str, int, float, bool, type(None))
_NOT_A_TYPE: Final = (*_PLAIN_TYPES, list, tuple, set)


class DictTool(Tool[..., C_co, R_co], Generic[C_co, R_co]):
    """A tool whose handler receives all arguments as one dict.

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
            lock=False,
            tags=None,
            type=ToolType.ACTION,
            uses=(),
            repeatable=None,
            remote=False,
            ask=False,
            max_result_chars=None,
            fixed={},
        )
        self._definition = DictToolDefinition.read(parts, options)
        self._definition.check(handler)
        self._define(handler, options, name=name, desc=description)

    def read_signature(self) -> Signature:
        definition = self._definition
        return _HandlerSignature(
            self.name, self.callable, definition.schema, lock=definition.options.lock
        )

    @property
    def handler(self) -> Callable[[Mapping[str, Any]], Any]:
        """The handler, which takes one dict; a sync one runs in a worker thread."""
        if self.kind is Kind.SYNC:
            return lambda arguments: self._signature.call(**self._bound(arguments))
        return self.fn

    def __call__(self, arguments: Mapping[str, Any], /) -> C_co:
        """Run the handler with hooks and lock, outside any node."""
        return self._start(self._bound(arguments))

    def run_call(self, ctx: RunContext, args: Mapping[str, Any]) -> "CoroutineType[Any, Any, Any]":
        return super().run_call(ctx, self._bound(dict(args)))

    def _bound(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {REST: arguments}


Tool.dict_tool = DictTool


@dataclass(slots=True, frozen=True)
class DictToolDefinition:
    """The arguments of ``@tool("name", "description", {...})``."""

    name: str
    description: str
    schema: JsonSchema
    options: ToolOptions

    @classmethod
    def read(cls, parts: Mapping[str, Any], options: ToolOptions) -> "DictToolDefinition":
        """Return the definition that *parts* describes.

        Raises:
            DefinitionError: the name, description or schema is missing or invalid.
        """
        name = parts.get("name")
        if not isinstance(name, str) or not name.strip():
            raise DefinitionError(
                f"the name of a tool must be a non-empty str, got {name!r}: write {_EXAMPLE}"
            )
        if missing := [part for part in ("description", "input_schema") if part not in parts]:
            raise DefinitionError(
                f"tool {name!r} has no {' and no '.join(missing)}: write"
                f' @tool({name!r}, "description", {{"city": str}}), or @tool without a name'
            )
        if not isinstance(parts["description"], str):
            raise DefinitionError(
                f"the description of tool {name!r} must be a str, got {parts['description']!r}"
            )
        if options.fixed:
            raise DefinitionError(
                f"tool {name!r} is defined by a schema and takes no fixed arguments, got"
                f" {', '.join(options.fixed)}: add them in its handler"
            )
        schema = _checked_schema(name, parts["input_schema"])
        return cls(name, parts["description"], schema, options)

    def check(self, handler: Callable[..., Any]) -> None:
        """Check that *handler* can be called with one dict.

        Raises:
            DefinitionError: it cannot.
        """
        name = self.name
        remedy = f"write 'async def {_identifier(name)}(args): ...'"
        if not callable(handler) or isinstance(handler, Function):
            raise DefinitionError(
                f"the handler of tool {name!r} must be a function, got {handler!r}: {remedy}"
            )
        try:
            signature = inspect.signature(handler)
        except ValueError:
            raise DefinitionError(
                f"the handler of tool {name!r} must have a signature, which {handler!r} has not:"
                f" {remedy}"
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


class DictToolDecorator:
    """The decorator that ``@tool("name", "description", {...})`` evaluates to."""

    def __init__(self, definition: DictToolDefinition) -> None:
        self._definition = definition

    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload] - the other one is for the rest
        self, handler: Callable[Concatenate[Any, ...], Awaitable[T]]
    ) -> DictTool[Coroutine[Any, Any, T], T]: ...

    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload] - the other one is for the rest
        self, handler: Callable[Concatenate[Any, ...], AsyncIterator[T]]
    ) -> DictTool[AsyncGenerator[T, None], list[T]]: ...

    @overload
    def __call__(
        self, handler: Callable[Concatenate[Any, ...], T]
    ) -> DictTool[Coroutine[Any, Any, T], T]: ...

    def __call__(self, handler: Callable[..., Any]) -> DictTool:
        """Make a tool of *handler*; it is not registered."""
        made = self._definition
        return DictTool(made.name, made.description, made.schema, handler, options=made.options)


class _HandlerSignature(Signature):
    """Binds all arguments to one parameter; further parameters may be injected by type.

    The values that its methods take are ``{REST: arguments}`` and the injected ones by name.
    """

    def __init__(
        self, owner: str, handler: Callable[..., Any], schema: JsonSchema, *, lock: bool
    ) -> None:
        super().__init__(owner, handler)
        self._schema = schema
        self._is_sync = Kind.of(handler) is Kind.SYNC
        # A thread cannot be cancelled: a cancelled call releases the lock of the tool while its
        # thread still runs. So with lock=True the thread holds a lock of its own.
        self._thread_lock: AbstractContextManager[Any] = threading.Lock() if lock else nullcontext()
        self.call = self._call_handler

    @cached_property
    def parameters(self) -> Parameters:
        return _parameters(self._owner, self._schema)

    def with_defaults(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {**values[REST], **{name: values[name] for name in values if name != REST}}

    def _call_handler(self, /, **injected: Any) -> Any:
        arguments = injected.pop(REST)
        if self._is_sync:
            return self._in_thread(arguments, injected)
        return self._fn(arguments, **injected)

    async def _in_thread(self, arguments: Mapping[str, Any], injected: Mapping[str, Any]) -> Any:
        cancelled = False

        def work() -> Any:
            with self._thread_lock:
                return None if cancelled else self._fn(arguments, **injected)

        try:
            value = await in_thread(work)
        finally:
            cancelled = True
        # A sync wrapper around an async function returns something to await.
        return await value if inspect.isawaitable(value) else value


def _parameters(owner: str, written: JsonSchema) -> Parameters:
    """Return the parameters that the schema *written* declares, and the JSON schema for models.

    A parameter is required unless its own schema has a "default", ``"required": False`` or
    ``"optional": True``; the last two are not JSON schema and are removed.
    """
    if _is_json_schema(written):
        return Parameters.of_schema(owner, written)
    types = {name: kind for name, kind in written.items() if not isinstance(kind, Mapping)}
    generated = Parameters(owner, [Parameter(name, kind) for name, kind in types.items()])
    properties: JsonSchema = {}
    required: list[str] = []
    for name, kind in written.items():
        if name in types:
            properties[name], is_required = generated.json_schema["properties"][name], True
        else:
            properties[name], is_required = _without_flags(owner, name, kind)
        if is_required:
            required.append(name)
    schema: JsonSchema = {"type": "object", "properties": properties, "required": required}
    if "$defs" in generated.json_schema:
        schema["$defs"] = generated.json_schema["$defs"]
    items = [
        Parameter(p.name, _checked_only(types[p.name])) if p.name in types else p
        for p in read_parameters(owner, schema)
    ]
    return Parameters(owner, items, json_schema=schema)


def _checked_schema(owner: str, written: object) -> JsonSchema:
    """Return *written* if it can be a schema; pydantic checks its types on first use.

    Raises:
        DefinitionError: it cannot.
    """
    if not isinstance(written, dict):
        raise DefinitionError(
            f"the schema of tool {owner!r} must be a dict, {{'city': str}} or a JSON schema, got"
            f" {written!r}"
        )
    schema = cast("JsonSchema", written)
    if _is_json_schema(schema):
        read_parameters(owner, schema)
        return schema
    for name, kind in schema.items():
        if not isinstance(name, str):
            raise DefinitionError(
                f"the parameter names of tool {owner!r} must be strings, got {name!r}"
            )
        if isinstance(kind, Mapping):
            _without_flags(owner, name, cast("JsonSchema", kind))
        elif isinstance(kind, _NOT_A_TYPE):
            raise DefinitionError(
                f"parameter {name!r} of tool {owner!r} must be a type, got {kind!r}: write"
                f" {{{name!r}: str}}, or {{{name!r}: {{'type': 'string'}}}}; and a JSON schema for"
                " all parameters has 'type': 'object' and 'properties'"
            )
    return schema


def _is_json_schema(written: JsonSchema) -> bool:
    """Whether *written* is a JSON schema, and not parameters called "type" and "properties"."""
    return written.get("type") == "object" and isinstance(written.get("properties"), Mapping)


def _without_flags(owner: str, name: str, written: Mapping[str, Any]) -> tuple[JsonSchema, bool]:
    """Return the JSON schema of one parameter, and whether the parameter is required."""
    schema = dict(written)
    optional = bool(schema.pop("optional", False)) or "default" in schema
    # A list is JSON schema: the properties that an object requires.
    if isinstance(schema.get("required"), list):
        return schema, not optional
    match schema.pop("required", None):
        case None:
            return schema, not optional
        case bool(required):
            return schema, required
        case other:
            raise DefinitionError(
                f"'required' of parameter {name!r} of tool {owner!r} must be True or False, got"
                f" {other!r}"
            )


def _checked_only(kind: Any) -> Any:
    """Return *kind* such that values are validated, but passed on as given if they are not JSON.

    So the handler receives what the model wrote, a dict for a pydantic model, for every caller.
    """
    from pydantic import WrapValidator  # noqa: PLC0415 - takes a while to load

    def check(value: Any, validate: Callable[[Any], Any]) -> Any:
        found = validate(value)
        return found if _is_plain(found) else value

    return Annotated[kind, WrapValidator(check)]


def _is_plain(value: Any) -> bool:
    if type(value) is list:
        return all(map(_is_plain, cast("list[Any]", value)))
    if type(value) is dict:
        return all(map(_is_plain, cast("dict[Any, Any]", value).values()))
    return type(value) in _PLAIN_TYPES


def _identifier(name: str) -> str:
    return name if name.isidentifier() else "handler"
