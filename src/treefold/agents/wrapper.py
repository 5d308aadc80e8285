"""``AgentWrapper``: code with the signature of an agent, which calls that agent."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, cast

from treefold.agents.function import AgentFunction
from treefold.agents.variant import Variant
from treefold.core.call_request import CallRequest, StartedCall
from treefold.core.code import CodeFunction
from treefold.core.errors import DefinitionError, UsageError
from treefold.core.function import Node, P, R_co, RunContext
from treefold.core.model import Model
from treefold.core.parameter import Parameter
from treefold.core.parameters import Parameters
from treefold.core.provider import Provider


class AgentWrapper(CodeFunction[P, R_co]):
    """A function with the arguments and the result of an agent.

    ``callable(ctx, ...)`` may also be called directly; the calls that it makes are then children of
    the call that *ctx* belongs to. In async code it is awaited; in sync code it returns the result.
    """

    def __init__(
        self,
        agent: AgentFunction[P, R_co],
        name: str | None,
        ending: str,
        variant_ending: str,
        extra: Parameter,
        more: Callable[[Any], str],
    ) -> None:
        if not isinstance(agent, AgentFunction):
            raise DefinitionError(f"{type(self).__name__} needs an AgentFunction, not {agent!r}")
        self.agent = agent
        self._variant = Variant(agent, f"{name or agent.name}_{variant_ending}", extra, more)
        work: Any = self._work
        super().__init__(
            callable=work,
            name=name or f"{agent.name}_{ending}",
            desc=agent.description,
            uses=[agent, self._variant],
            ask=agent.ask,
        )
        self.callable = self._called_directly

    def _called_directly(self, ctx: RunContext, /, *args: Any, **kwargs: Any) -> Any:
        named = self._named(args, kwargs)
        if not isinstance(ctx, RunContext):
            raise UsageError(f"{self.name} needs the RunContext of a runtime, not {ctx!r}")
        if _in_async_code():
            return self._work(ctx, **named)
        try:
            _ = ctx.node
        except UsageError:
            # The context belongs to a runtime, outside any call.
            return ctx.invoke(self, named).result()
        return ctx.on_loop(self._work, ctx, **named)

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        names = [parameter.name for parameter in self.parameters.items]
        if len(args) > len(names) or kwargs.keys() & set(names[: len(args)]):
            raise TypeError(f"{self.name} takes {', '.join(names)}, each once")
        return dict(zip(names, args, strict=False)) | kwargs

    @abstractmethod
    async def _work(self, ctx: RunContext, **args: Any) -> Any: ...

    @property
    def parameters(self) -> Parameters:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.agent.parameters

    @property
    def output_type(self) -> Any:
        return self.agent.output_type

    def _call(
        self,
        ctx: RunContext,
        function: AgentFunction,
        args: Mapping[str, Any],
        *,
        model: Model | Provider | str | None = None,
        tied_with: StartedCall | None = None,
    ) -> StartedCall:
        tied = cast("Node | None", tied_with)
        return ctx.start(CallRequest(function, dict(args), model=model, tied_with=tied))


def _in_async_code() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
