"""The objects that all calls of one runtime share."""

from dataclasses import dataclass, field
from typing import Literal, Protocol

from treefold.core.decisions import Rules
from treefold.core.deps import DepsSource
from treefold.runtime.calls.budgets import Account, Accounting
from treefold.runtime.guarding import Guarding
from treefold.runtime.limits.allowances import Allowances
from treefold.runtime.limits.limits import DEFAULT_LIMITS, Limits
from treefold.runtime.limits.model_names import ModelNames
from treefold.runtime.past_runs import PastRuns
from treefold.runtime.trees.question_board import QuestionBoard


class SharedAllowances(Allowances, Accounting, Protocol):
    """What all workers of a shared store have together; see ``ClusterAllowances``."""


@dataclass(slots=True)
class Services:
    """Models, limits, permissions, dependencies, the account, the board, past runs of agents."""

    models: ModelNames = field(default_factory=ModelNames)
    limits: Limits = DEFAULT_LIMITS
    guarding: Guarding = field(default_factory=lambda: Guarding(Rules()))
    deps: DepsSource | None = None
    account: Account | None = None
    shared: SharedAllowances | None = None  # of all workers of a shared store
    pauses_on_provider_failure: bool = False
    pauses_on_tool_error: bool = False
    pauses_on_budget: bool = False
    on_new_code: Literal["adopt", "pause", "pin"] = "adopt"
    board: QuestionBoard = field(default_factory=QuestionBoard)
    past_runs: PastRuns = field(default_factory=PastRuns)
    windows: dict[str, int] = field(default_factory=dict[str, int])  # learnt, by model, in tokens

    @property
    def allowances(self) -> Allowances:
        """Allows requests: for all workers of the store, or in this process."""
        return self.limits.local if self.shared is None else self.shared
