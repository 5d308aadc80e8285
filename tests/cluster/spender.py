"""A process that spends a named budget: short answers first, then long ones at the same time.

``python spender.py URL TOKENS LONG`` prints what its requests took, in tokens.
"""

import asyncio
import sys
from contextlib import suppress

from treefold import AgentFunction, Budget, BudgetExceeded, Limits, Runtime, TokenUsage
from treefold.testing import ScriptedModel
from treefold.testing.scripted import ScriptedEndpoint

ANSWERER = AgentFunction("answerer", "Answer.", user_prompt_template="Answer.")


class TalkativeModel(ScriptedModel):
    """Answers with so many tokens; a session is opened for each answer."""

    size = 10

    def endpoint(self) -> ScriptedEndpoint:
        return ScriptedEndpoint(self._next_reply, TokenUsage(output=self.size))


async def main(url: str, tokens: int, long: int) -> int:
    model, budget = TalkativeModel(lambda _: "Yes."), Budget(tokens=tokens, name="june")
    async with Runtime(
        [ANSWERER], models=model, limits=Limits(50), store=url, budget=budget
    ) as runtime:
        nodes = [runtime.invoke(ANSWERER) for _ in range(5)]
        for node in nodes:
            with suppress(BudgetExceeded):  # the other process may be done
                await node
        model.size = long
        nodes += [runtime.invoke(ANSWERER) for _ in range(20)]
        for node in nodes:
            with suppress(BudgetExceeded):
                await node
        return sum(node.total_usage.total for node in nodes)


if __name__ == "__main__":
    spent = asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
    sys.stdout.write(f"{spent}\n")
