"""The objects that all calls of one runtime share."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from treefold.core.decisions import Rules
from treefold.runtime.calls.budgets import Account
from treefold.runtime.limits.limits import DEFAULT_LIMITS, Limits
from treefold.runtime.limits.model_names import ModelNames
from treefold.runtime.trees.question_board import QuestionBoard


@dataclass(slots=True)
class Services:
    """Models, limits, rules, the budget's account, the board, and the past runs of each agent."""

    models: ModelNames = field(default_factory=ModelNames)
    limits: Limits = DEFAULT_LIMITS
    rules: Rules = field(default_factory=Rules)
    account: Account | None = None
    pauses_on_provider_failure: bool = False
    pauses_on_tool_error: bool = False
    board: QuestionBoard = field(default_factory=QuestionBoard)
    past_runs: dict[str, deque[Any]] = field(default_factory=dict[str, deque[Any]])  # by agent
