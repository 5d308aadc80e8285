"""Code that is called like an agent, and calls that agent in its own way."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from ramify.agents.function import AgentFunction
from ramify.agents.variant import Variant
from ramify.core.code import CodeFunction
from ramify.core.errors import DefinitionError, UsageError
from ramify.core.function import Node, RunContext
from ramify.core.model import Model
from ramify.core.parameter import Parameter
from ramify.core.parameters import Parameters
from ramify.core.provider import Provider
from ramify.runtime.agent_node import AgentNode
from ramify.runtime.call_request import CallRequest
from ramify.runtime.context import Context


class AgentWrapper(CodeFunction):
    """A function with the arguments and the result of an agent.

    ``callable(ctx, **args)`` may be called directly, too; the calls it makes are then those of the
    call that *ctx* belongs to.
    """

    def __init__(
        self,
        agent: AgentFunction,
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
        super().__init__(
            callable=self._work,
            name=name or f"{agent.name}_{ending}",
            desc=agent.description,
            uses=[agent, self._variant],
        )

    @abstractmethod
    async def _work(self, ctx: RunContext, **args: Any) -> Any: ...

    @property
    def parameters(self) -> Parameters:
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
        tied_with: Node | None = None,
    ) -> AgentNode:
        if not isinstance(ctx, Context):
            raise UsageError(f"{self.name} needs the RunContext of a runtime, not {ctx!r}")
        node = ctx.start(CallRequest(function, dict(args), model=model, tied_with=tied_with))
        assert isinstance(node, AgentNode)  # as for every agent
        return node
