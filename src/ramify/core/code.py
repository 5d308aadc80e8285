"""Python code as a Function."""

import inspect
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Any

from ramify.core.errors import DefinitionError
from ramify.core.function import Function, RunContext
from ramify.core.parameter import FunctionArg
from ramify.core.parameters import Parameters
from ramify.core.signature import Kind, Signature


class CodeFunction(Function):
    """A Python callable that the framework calls with a RunContext and its arguments.

    An ``async def`` runs on the loop, an async generator gives its values one by one, and a plain
    ``def`` runs in a worker thread. Without *args* the parameters are read from the signature.

    Example:
        >>> from ramify import CodeFunction, FunctionArg, Runtime
        >>> def shout(ctx, *, text: str) -> str:
        ...     return text.upper()
        >>> fn = CodeFunction(
        ...     name="shout", desc="Say it loud.", callable=shout, args=[FunctionArg("text", str)]
        ... )
        >>> with Runtime() as runtime:
        ...     runtime.invoke(fn, {"text": "hello"}).result()
        'HELLO'
    """

    def __init__(
        self,
        *,
        callable: Callable[..., Any],
        name: str | None = None,
        desc: str | None = None,
        args: Sequence[FunctionArg] | None = None,
        uses: Iterable[Function] = (),
        tags: Iterable[str] | None = None,
        repeatable: bool = False,
    ) -> None:
        super().__init__(
            name or getattr(callable, "__name__", type(callable).__name__),
            desc if desc is not None else (inspect.getdoc(callable) or ""),
            uses=uses,
            tags=tags,
            repeatable=repeatable,
        )
        self.callable = callable
        self.kind = Kind.of(callable)
        self._listed = (
            None if args is None else Parameters(self.name, [arg.as_parameter() for arg in args])
        )
        self._signature = self._read_signature()

    def _read_signature(self) -> Signature:
        for parameter in inspect.signature(self.callable).parameters.values():
            if parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD}:
                return Signature(self.name, self.callable, context=parameter.name)
            break
        raise DefinitionError(
            f"the callable of {self.name!r} must take a RunContext first: write"
            f" 'def {self.name}(ctx: RunContext, ...)', or use @tool, which takes one where asked"
        )

    @property
    def parameters(self) -> Parameters:
        return self._listed or self._signature.parameters

    @property
    def output_type(self) -> Any:
        return self._signature.returns

    @property
    def streams(self) -> bool:
        return self.kind is Kind.STREAM

    async def run(self, ctx: RunContext, args: Mapping[str, Any]) -> Any:
        values = dict(args)
        self._signature.inject(values, ctx)
        if self.kind is Kind.COROUTINE:
            return await self._signature.call(values)
        if self.kind is Kind.STREAM:
            return await send_all(ctx, self._signature.call(values))
        return await ctx.in_thread(self._signature.call, values)


async def send_all(ctx: RunContext, stream: AsyncGenerator[Any, None]) -> list[Any]:
    """Send each value of *stream* as it comes; return them all. The stream is closed either way."""
    values: list[Any] = []
    try:
        async for value in stream:
            values.append(value)
            await ctx.send(value)
    finally:
        await stream.aclose()
    return values
