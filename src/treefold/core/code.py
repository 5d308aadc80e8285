"""``CodeFunction``: a Python callable as a Function."""

import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from functools import cached_property
from typing import Any, Concatenate, TypedDict, Unpack, get_args, overload

from treefold.core.budget import Budget
from treefold.core.errors import DefinitionError
from treefold.core.function import Ask, Function, ModelFinder, P, Q, R_co, RunContext, T
from treefold.core.parameter import MISSING, FunctionArg, JsonSchema
from treefold.core.parameters import Parameters
from treefold.core.signature import POSITIONAL, Kind, Signature, description_of, name_of, underlying


class CodeOptions(TypedDict, total=False):
    """The options of CodeFunction."""

    name: str | None
    desc: str | None
    args: Sequence[FunctionArg] | JsonSchema | None
    uses: Iterable[Function]
    tags: Iterable[str] | None
    repeatable: bool | None
    remote: bool | str
    uses_recursion: bool
    max_depth: int
    budget: Budget | None
    ask: Ask
    max_result_chars: int | None


class CodeFunction(Function[P, R_co]):
    """A Python callable whose first parameter is a RunContext and whose others are its arguments.

    An ``async def`` runs on the event loop, an async generator sends its values one by one, and a
    plain ``def`` runs in a worker thread. *args* is a list of FunctionArg or a JSON schema; without
    it, the parameters are read from the signature.

    Example:
        >>> from treefold import CodeFunction, FunctionArg, Runtime
        >>> def shout(ctx, *, text: str) -> str:
        ...     return text.upper()
        >>> fn = CodeFunction(
        ...     name="shout", desc="Say it loud.", callable=shout, args=[FunctionArg("text", str)]
        ... )
        >>> with Runtime() as runtime:
        ...     runtime.invoke(fn, {"text": "hello"}).result()
        'HELLO'
    """

    @overload
    def __init__(
        self: "CodeFunction[Q, T]",
        *,
        callable: Callable[Concatenate[Any, Q], Coroutine[Any, Any, T]],
        **options: Unpack[CodeOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: "CodeFunction[Q, list[T]]",
        *,
        callable: Callable[Concatenate[Any, Q], AsyncIterator[T]],
        **options: Unpack[CodeOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: "CodeFunction[Q, T]",
        *,
        callable: Callable[Concatenate[Any, Q], T],
        **options: Unpack[CodeOptions],
    ) -> None: ...

    def __init__(  # noqa: PLR0913 - a definition has many parts, each by its name
        self,
        *,
        callable: Callable[..., Any],
        name: str | None = None,
        desc: str | None = None,
        args: Sequence[FunctionArg] | JsonSchema | None = None,
        uses: Iterable[Function] = (),
        tags: Iterable[str] | None = None,
        repeatable: bool | None = None,
        uses_recursion: bool = False,
        max_depth: int = 10,
        budget: Budget | None = None,
        remote: bool | str = False,
        ask: Ask = False,
        max_result_chars: int | None = None,
    ) -> None:
        if desc is None and args is None:
            desc = description_of(callable)
        elif desc is None:
            # The docstring is used whole: listed arguments have descriptions of their own.
            desc = inspect.getdoc(underlying(callable)) or ""
        super().__init__(
            name or name_of(callable),
            desc,
            uses=uses,
            tags=tags,
            repeatable=repeatable,
            uses_recursion=uses_recursion,
            max_depth=max_depth,
            budget=budget,
            remote=remote,
            ask=ask,
            max_result_chars=max_result_chars,
        )
        self.callable = callable
        self.kind = Kind.of(callable)
        if inspect.isgeneratorfunction(underlying(callable)):
            raise DefinitionError(f"{self.name!r} is a generator; write 'async def {self.name}'")
        self._listed = None if args is None else _listed(self.name, args)
        self._signature = self.read_signature()

    def read_signature(self) -> Signature:
        """Return the signature of the code; tools read theirs in another way."""
        for parameter in inspect.signature(self.callable).parameters.values():
            signature = Signature(self.name, self.callable, context=parameter.name)
            if parameter.kind in POSITIONAL and signature.may_take_context(parameter.name):
                return signature
            break
        raise DefinitionError(
            f"the callable of {self.name!r} must take a RunContext first: write"
            f" 'def {self.name}(ctx: RunContext, ...)', or use @tool, which takes one where asked"
        )

    # Each call reads these.

    @cached_property
    def parameters(self) -> Parameters:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._listed or self._signature.parameters

    @cached_property
    def is_plain(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().is_plain and self._listed is None

    @cached_property
    def streams(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.kind is Kind.STREAM

    def faults(self, models: ModelFinder) -> list[str]:
        """Return the mismatches between the callable and the arguments listed for it."""
        if self._listed is None:
            return []
        signature, listed = self._signature, {p.name: p for p in self._listed.items}
        own = {p.name: p for p in signature.parameters.items}
        faults = [
            f"its callable has no parameter {name!r}, which is one of its args"
            for name in listed
            if name not in own and not signature.takes_more
        ]
        faults += [
            f"its callable wants {name!r}, which is none of its args"
            for name, parameter in own.items()
            if name not in listed and parameter.required
        ]
        faults += [
            f"its callable takes {name!r} as {own[name].annotation}, its args say"
            f" {listed[name].annotation}"
            for name in listed
            if name in own and not _fits(listed[name].annotation, own[name].annotation)
        ]
        return faults

    @property
    def output_type(self) -> Any:
        return self._signature.returns

    def definition(self) -> Mapping[str, Any]:
        return {"code": self.callable}

    async def run_call(self, ctx: RunContext, args: Mapping[str, Any]) -> Any:
        values = self._with_defaults(args)
        self._signature.inject(values, ctx)
        if self.kind is Kind.COROUTINE:
            return await self._signature.call(**values)
        if self.kind is Kind.STREAM:
            return await send_all(ctx, self._signature.call(**values))
        value = await ctx.in_thread(self._signature.call, **values)
        # A plain wrapper around an async function returns an awaitable.
        return await value if inspect.isawaitable(value) else value

    def _with_defaults(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return *args*, with None for optional arguments that have no default in the signature."""
        values = dict(args)
        for parameter in self._listed.items if self._listed else ():
            raw = self._signature.raw.get(parameter.name)
            if parameter.name not in values and raw is not None and raw.default is MISSING:
                values[parameter.name] = parameter.default
        return values


def _listed(owner: str, args: Sequence[FunctionArg] | JsonSchema) -> Parameters:
    if isinstance(args, Mapping):
        return Parameters.of_schema(owner, args)
    for arg in args if isinstance(args, Sequence) else [args]:
        if not isinstance(arg, FunctionArg):
            raise DefinitionError(
                f"the args of {owner} are a list of FunctionArg, or a JSON schema, not {arg!r}"
            )
    return Parameters(owner, [arg.as_parameter() for arg in args])


def _fits(given: Any, wanted: Any) -> bool:
    """Whether a value of type *given* can be passed as *wanted*; True if either is not plain."""
    plain = {str, int, float, bool}
    kinds = {kind for kind in (given, *get_args(given)) if kind in plain}
    takes = {kind for kind in (wanted, *get_args(wanted)) if kind in plain}
    if not kinds or not takes or Any in {wanted, given}:
        return True
    return kinds <= takes or (float in takes and int in kinds)


async def send_all(ctx: RunContext, stream: AsyncGenerator[Any, None]) -> list[Any]:
    """Send each value of *stream* as it arrives, and return them all; always close the stream."""
    values: list[Any] = []
    try:
        async for value in stream:
            values.append(value)
            await ctx.send(value)
    finally:
        await stream.aclose()
    return values
