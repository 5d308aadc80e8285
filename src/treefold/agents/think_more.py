"""``ThinkMore``: have an agent review its own answer."""

from collections.abc import Mapping
from typing import Any, Final

from treefold.agents.function import AgentFunction
from treefold.agents.prompts import as_text
from treefold.agents.wrapper import AgentWrapper
from treefold.core.errors import InvalidValueError
from treefold.core.function import P, R_co, RunContext
from treefold.core.parameter import Parameter

_MORE: Final = """\
You have been given this task before, and this was your answer:

<answer>
{answer}
</answer>

Look at it again, critically. Check what can be checked, mend what is wrong, and add what is \
missing. Then give your final answer to the task, complete in itself; if the first one cannot be \
bettered, give it again."""


class ThinkMore(AgentWrapper[P, R_co]):
    """Calls an agent, then has it review and improve its own answer *rounds* times.

    Example:
        >>> from treefold import Runtime, ThinkMore, agent
        >>> from treefold.testing import ScriptedModel
        >>> @agent
        ... def add(a: int, b: int) -> str:
        ...     return f"What is {a} + {b}?"
        >>> with Runtime(models=ScriptedModel("5", "4")) as runtime:
        ...     runtime.invoke(ThinkMore(add), {"a": 2, "b": 2}).result()
        '4'
    """

    def __init__(
        self, agent: AgentFunction[P, R_co], rounds: int = 1, *, name: str | None = None
    ) -> None:
        if not isinstance(rounds, int) or rounds < 1:
            raise InvalidValueError(f"rounds={rounds!r}: give 1 or more")
        self.rounds = rounds
        answer = Parameter("answer", str, description="looks again at its own answer")
        super().__init__(agent, name, "think_more", "again", answer, _again)

    def definition(self) -> Mapping[str, Any]:
        return {**super().definition(), "settings": self.rounds}

    async def _work(self, ctx: RunContext, **args: Any) -> Any:
        answer = await self._call(ctx, self.agent, args)
        for _ in range(self.rounds):
            again = self._variant.with_extra(args, as_text(answer))
            answer = await self._call(ctx, self._variant, again)
        return answer


ThinkMoreDecorator = ThinkMore


def _again(answer: str) -> str:
    return _MORE.replace("{answer}", answer)
