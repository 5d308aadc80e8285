"""``Guards``: the permissions of a runtime or a client, as they are recorded with a tree.

Who resumes or forks the tree applies them (``runtime/guarding.py``). Allowed tools and the budget
are data. A hook is code, and recorded by reference: a journal never names code to be imported.
"""

from treefold.core.budget import Budget
from treefold.core.lazy_dataclass import lazy_dataclass


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
