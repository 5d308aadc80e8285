"""Replays of runs with budgets: they need neither a model nor its price."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from treefold import Budget, BudgetExceeded, Runtime, TokenUsage, ToolUse, agent, tool
from treefold.core.errors import CallError
from treefold.testing import ScriptedModel, replay

PATIENCE = 60  # seconds


SEARCH = ToolUse("1", "search", {"word": "moss"})


def researching(budget: Budget | None) -> Any:
    @tool
    async def search(word: str) -> str:
        """Search the notes."""
        return f"{word} needs shade"

    @agent(uses=[search], budget=budget)
    def research(topic: str) -> str:
        return f"What is known about {topic}?"

    return research


def priced(*script: Any) -> ScriptedModel:
    usage = TokenUsage(input=900, output=20)
    return ScriptedModel(*script, usage=usage, price=lambda usage: Decimal("0.004"))


@pytest.mark.parametrize("where", ["function", "call", "runtime"])
@pytest.mark.parametrize("usd", ["1", "0.006"])
def test_a_budget_in_dollars_needs_no_price(tmp_path: Path, where: str, usd: str):
    file, budget = tmp_path / "run.db", Budget(usd=Decimal(usd))
    research = researching(budget if where == "function" else None)
    common = budget if where == "runtime" else None
    model = priced(SEARCH, "It needs shade.")
    with Runtime([research], models=model, store=file, budget=common) as runtime:
        own = budget if where == "call" else None
        node = runtime.invoke(research, {"topic": "moss"}, budget=own)
        if usd == "1":
            assert node.result(PATIENCE) == "It needs shade."
        else:
            with pytest.raises(BudgetExceeded):
                node.result(PATIENCE)
    again = replay([research], file)
    again.check()
    assert again.view.total_cost == node.total_cost
    assert str(again.view.exception) == str(runtime.get_view(node.id).exception)


@pytest.mark.parametrize("answer", ["It needs shade.", ToolUse("2", "search", {"word": "ivy"})])
def test_a_last_request_is_repeated(tmp_path: Path, answer: Any):
    research = researching(Budget(usd=0.006, last_call=True))
    file = tmp_path / "run.db"
    with Runtime([research], models=priced(SEARCH, answer), store=file) as runtime:
        node = runtime.invoke(research, {"topic": "moss"})
        if isinstance(answer, str):
            assert node.result(PATIENCE) == answer
        else:
            with pytest.raises(BudgetExceeded):
                node.result(PATIENCE)
    replay([research], file).check()


def test_a_price_that_was_not_known_is_not_known_again(tmp_path: Path):
    research, file = researching(Budget(usd=1)), tmp_path / "run.db"
    with (
        Runtime([research], models=ScriptedModel("never"), store=file) as runtime,
        pytest.raises(CallError, match="no known price"),
    ):
        runtime.invoke(research, {"topic": "moss"}).result(PATIENCE)
    replay([research], file).check()
