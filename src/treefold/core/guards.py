"""``Guards``: the permissions of a runtime or a client, as they are recorded with a tree.

Who resumes or forks the tree applies them (``runtime/guarding.py``). Allowed tools and the budget
are data. A hook is code, and recorded by reference: a journal never names code to be imported.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from treefold.core.budget import Budget
from treefold.core.lazy_dataclass import lazy_dataclass

# The names of guards that are data; a hook has its own.
ALLOWED: Final = "allowed_tools"
DISALLOWED: Final = "disallowed_tools"
BUDGET: Final = "budget"


@lazy_dataclass(frozen=True)
class HookGuard:
    """A decision hook, by reference.

    Attributes:
        hook: when it is asked, such as "pre_tool_use".
        name: its module and name, such as "main:approve_writes".
        matcher: the tools that it is asked about; None: all of them.
        version: of its code.
        timeout: seconds that it may take to decide; None: no limit.
    """

    hook: str
    name: str
    matcher: str | None = None
    version: str = ""
    timeout: float | None = None


@lazy_dataclass(frozen=True)
class Guards:
    """What one level of permissions forbids, asks for or limits: a runtime's, or a client's.

    Attributes:
        allowed: the only functions that models may call; None: those that are not disallowed.
        budget: of the runtime. That of a call is one of its options.
    """

    allowed: tuple[str, ...] | None = None
    disallowed: tuple[str, ...] = ()
    hooks: tuple[HookGuard, ...] = ()
    budget: Budget | None = None

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
        )
