"""``Variant``: an agent with one more argument, and more text in its prompt."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from treefold.agents.function import AgentFunction
from treefold.agents.prompts import SystemPrompt
from treefold.core.compaction import Compaction
from treefold.core.fact import replace
from treefold.core.function import Function, RunContext
from treefold.core.model import Model, ModelSettings
from treefold.core.parameter import Parameter
from treefold.core.parameters import Parameters
from treefold.core.provider import Provider


class Variant(AgentFunction):
    """An agent like another one, with the text ``more(extra)`` appended to its prompt."""

    _builds_prompt = True

    def __init__(
        self, agent: AgentFunction, name: str, extra: Parameter, more: Callable[[Any], str]
    ) -> None:
        taken = {parameter.name for parameter in agent.parameters.items}
        while extra.name in taken:
            extra = replace(extra, name=f"{extra.name}_")
        self._agent = agent
        self._extra = extra
        self._more = more
        super().__init__(
            name,
            f"{agent.description} ({extra.description})",
            tags=agent.tags,
            budget=agent.budget,
            repeatable=agent.repeatable,
            remote=agent.queue,
            uses_recursion=agent.uses_recursion,
            max_depth=agent.max_depth,
            ask=agent.ask,
            max_result_chars=agent.max_result_chars,
        )

    def with_extra(self, args: Mapping[str, Any], value: Any) -> dict[str, Any]:
        """Return the arguments for a call: those of the agent, and *value* as the extra one."""
        return {**args, self._extra.name: value}

    @cached_property
    def parameters(self) -> Parameters:
        return Parameters(self.name, [*self._agent.parameters.items, self._extra])

    def prompt_definition(self) -> list[Any]:
        return [*self._agent.prompt_definition(), self._extra.name, self._more]

    async def prompt(self, ctx: RunContext, args: Mapping[str, Any]) -> str:
        own = {name: value for name, value in args.items() if name != self._extra.name}
        return f"{await self._agent.prompt(ctx, own)}\n\n{self._more(args[self._extra.name])}"

    async def system(self, ctx: RunContext, args: Mapping[str, Any]) -> str:
        return await self._agent.system(ctx, args)

    @property
    def system_prompt(self) -> SystemPrompt:
        return self._agent.system_prompt

    @property
    def uses(self) -> Sequence[Function]:
        return self._agent.uses

    @property
    def model_tools(self) -> Mapping[Provider | str, Sequence[Function]]:
        return self._agent.model_tools

    @property
    def default_model(self) -> Model | Provider | str | None:
        return self._agent.default_model

    @property
    def returns(self) -> Any:
        return self._agent.returns

    @property
    def max_steps(self) -> int:
        return self._agent.max_steps

    @property
    def parallel_tools(self) -> bool:
        return self._agent.parallel_tools

    @property
    def compaction(self) -> Compaction | None:
        return self._agent.compaction

    @property
    def settings(self) -> ModelSettings:
        return self._agent.settings
