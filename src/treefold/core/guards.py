"""``Guards``: the permissions of a runtime or a client, as they are recorded with a tree.

Who resumes or forks the tree applies them (``runtime/guarding.py``). Allowed tools and the budget
are data. A hook is code, and recorded by reference: a journal never names code to be imported.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Annotated, Final

from treefold.core.budget import Budget
from treefold.core.fact import VERBATIM, Fact, Finite, replace

# The names of guards that are data; a hook has its own.
ALLOWED: Final = "allowed_tools"
DISALLOWED: Final = "disallowed_tools"
BUDGET: Final = "budget"


class HookGuard(Fact, frozen=True):
    """A decision hook, by reference.

    Attributes:
        hook: when it is asked, such as "pre_tool_use".
        name: its module and name, such as "main:approve_writes".
        matcher: the tools that it is asked about; None: all of them.
        version: of its code.
        timeout: seconds that it may take to decide; None: no limit.
    """

    hook: Annotated[str, VERBATIM]
    name: Annotated[str, VERBATIM]
    matcher: Annotated[str | None, VERBATIM] = None
    version: Annotated[str, VERBATIM] = ""
    timeout: Finite | None = None


class Guards(Fact, frozen=True):
    """What one level of permissions forbids, asks for or limits: a runtime's, or a client's.

    Attributes:
        allowed: the only functions that models may call; None: those that are not disallowed.
        budget: of the runtime. That of a call is one of its options.
        account: what a budget without a name is spent from, by all trees that it is recorded with.
    """

    allowed: Annotated[tuple[str, ...] | None, VERBATIM] = None
    disallowed: Annotated[tuple[str, ...], VERBATIM] = ()
    hooks: tuple[HookGuard, ...] = ()
    budget: Budget | None = None
    account: str = ""

    @property
    def paid_from(self) -> str:
        """The name of the account of the budget in a shared store."""
        name = None if self.budget is None else self.budget.name
        return f"~{self.account}" if name is None else named_account(name)

    @property
    def names(self) -> Iterator[str]:
        """The name of each guard."""
        yield from (one.name for one in self.hooks)
        if self.allowed is not None:
            yield ALLOWED
        if self.disallowed:
            yield DISALLOWED
        if self.budget is not None:
            yield BUDGET

    def without(self, names: Collection[str]) -> "Guards":
        """Return these guards without those of some *names*, which a person has lifted."""
        return replace(
            self,
            allowed=None if ALLOWED in names else self.allowed,
            disallowed=() if DISALLOWED in names else self.disallowed,
            hooks=tuple([one for one in self.hooks if one.name not in names]),
            budget=None if BUDGET in names else self.budget,
            account="" if BUDGET in names else self.account,
        )


def named_account(name: str) -> str:
    """Return the name in a shared store of the account that all budgets of this *name* share."""
    return f"={name}"


def budget_in(known: Iterable[Guards]) -> Guards | None:
    """Return the last of the guards *known* of a tree that has a budget."""
    given = [guards for guards in known if guards.budget is not None]
    return given[-1] if given else None
