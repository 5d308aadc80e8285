"""What all calls of one runtime share."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from treefold.core.decisions import Rules
from treefold.runtime.desk import Desk
from treefold.runtime.limits import DEFAULT_LIMITS, Limits
from treefold.runtime.model_book import ModelBook
from treefold.runtime.spending import Account


@dataclass(slots=True)
class Commons:
    """Models, limits and rules, the questions that are open, and what past runs tell."""

    models: ModelBook = field(default_factory=ModelBook)
    limits: Limits = DEFAULT_LIMITS
    rules: Rules = field(default_factory=Rules)
    account: Account | None = None
    pauses_on_provider_failure: bool = False
    pauses_on_tool_error: bool = False
    desk: Desk = field(default_factory=Desk)
    past_runs: dict[str, deque[Any]] = field(default_factory=dict[str, deque[Any]])  # by agent
