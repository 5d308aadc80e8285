"""The permissions that bind a tree: recorded when it starts, applied by each process that runs it.

Each runtime, and each client, is one level of permissions (``Rules``). A tree has those of the
runtime that started it and of all that have resumed it since, and all levels have to agree. A
recorded level stays as it is: among hooks of another program, one of those might decide first.

Hooks are looked up by name among those that this process was given, and are never imported: a
journal is data, and must not choose which code runs.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import ModuleType
from typing import Any, cast
from uuid import uuid4

from treefold.core.budget import Budget
from treefold.core.decisions import HookDecision, HookHandler, HookMatcher, Rules
from treefold.core.errors import InvalidValueError, UsageError
from treefold.core.events import CallRequested, Event, GuardsAdded, GuardsLifted
from treefold.core.fact import replace
from treefold.core.guards import BUDGET, Guards, HookGuard, budget_in
from treefold.core.record import CallRecord
from treefold.core.reference import reference_to

VersionOf = Callable[[HookHandler], str]


class Guarding:
    """The permissions of one runtime, and how it applies those that are recorded with trees.

    Args:
        rules: its own level.
        budget: what all its calls together may spend.
        sources: further hooks, or modules that have them, for recorded trees that they guard.
    """

    def __init__(
        self,
        rules: Rules,
        budget: Budget | None = None,
        sources: Iterable[HookHandler | ModuleType] = (),
    ) -> None:
        self.rules = rules
        self._budget = budget
        self._account = "" if budget is None or budget.name is not None else uuid4().hex
        given: list[HookHandler] = []
        self._modules: list[ModuleType] = []
        for one in sources:
            if isinstance(one, ModuleType):
                self._modules.append(one)
            elif callable(one):
                given.append(one)
            else:
                raise InvalidValueError(f"guards= has hooks, and modules with hooks, not {one!r}")
        own = [
            (hook, matcher, handler)
            for hook, matchers in rules.hooks.items()
            for matcher in matchers
            for handler in matcher.hooks
        ]
        names = _names_of([handler for _, _, handler in own])
        self._hooks = {
            HookGuard(hook, name, matcher.matcher, timeout=matcher.timeout): handler
            for (hook, matcher, handler), name in zip(own, names, strict=True)
        }
        self._known = [(guard.name, handler) for guard, handler in self._hooks.items()]
        self._known += zip(_names_of(given), given, strict=True)

    # What is recorded

    def recorded(self, client: Rules | None, version_of: VersionOf) -> tuple[Guards, ...]:
        """Return the guards of a new tree: those of this runtime, and those of a client."""
        levels = [self._own(version_of)]
        if client is not None:
            levels.append(Guarding(client)._own(version_of))
        return tuple([guards for guards in levels if guards != Guards()])

    def added(self, known: Sequence[Guards], version_of: VersionOf) -> Guards | None:
        """Return the guards of this runtime, unless they are among those *known* of a tree."""
        own = self._own(version_of)
        if own == Guards() or own in known:
            return None
        # Each runtime has an account of its own; what else it records is often known.
        spent_here = Guards(budget=own.budget, account=own.account)
        rest = own.without([BUDGET])
        return spent_here if rest in [one.without([BUDGET]) for one in known] else own

    def _own(self, version_of: VersionOf) -> Guards:
        rules = self.rules
        return Guards(
            None if rules.allowed is None else tuple(sorted(rules.allowed)),
            tuple(sorted(rules.disallowed)),
            tuple([
                replace(guard, version=version_of(handler))
                for guard, handler in self._hooks.items()
            ]),
            self._budget,
            self._account,
        )

    # What binds a recorded tree

    def levels(self, record: CallRecord) -> tuple[Rules, ...]:
        """Return the permissions that bind the tree of *record*: the recorded ones, then its own.

        A hook that this process does not have refuses whatever it is asked about.
        """
        bound = [(one.hook, one.matcher, self._find(one)) for one in _bound(record)]
        # A hook that is recorded and its own is asked once.
        own = [
            guard
            for guard, handler in self._hooks.items()
            if (guard.hook, guard.matcher, handler) not in bound
        ]
        levels = [
            *(
                _rules(one.allowed, one.disallowed, self._handlers(one.hooks))
                for one in record.guards
            ),
            _rules(self.rules.allowed, self.rules.disallowed, self._handlers(own)),
        ]
        # A level that is recorded twice, for two versions of a hook, is one.
        return tuple([one for place, one in enumerate(levels) if one not in levels[:place]])

    def _handlers(self, guards: Iterable[HookGuard]) -> list[tuple[HookGuard, HookHandler]]:
        return [(one, self._find(one) or partial(_refuse, one)) for one in guards]

    def missing(self, record: CallRecord) -> list[str]:
        """Return the names of the hooks that guard the tree of *record* and are not found here."""
        return list(dict.fromkeys(one.name for one in _bound(record) if self._find(one) is None))

    def changed(self, record: CallRecord, version_of: VersionOf) -> list[str]:
        """Return the names of hooks that guard the tree of *record* and have changed since."""
        latest = {one.name: one for one in _bound(record)}
        found = [(one, self._find(one)) for one in latest.values() if one.version]
        return [one.name for one, hook in found if hook and version_of(hook) != one.version]

    def earlier_budget(self, known: Iterable[Guards]) -> Guards | None:
        """Return the last of the guards *known* of a tree that has a budget, if it binds the tree.

        A runtime with a budget of its own has decided what may be spent.
        """
        return budget_in(known) if self._budget is None else None

    def _find(self, guard: HookGuard) -> HookHandler | None:
        """Return the hook that *guard* names, if this process has it."""
        in_modules = [_in_module(module, guard.name) for module in self._modules]
        known = self._known + [(reference_to(one), one) for one in in_modules if one is not None]
        found = [(name, handler) for name, handler in known if _is_same_name(name, guard.name)]
        # That of the very name, if there is one.
        found.sort(key=lambda one: one[0] != guard.name)
        return found[0][1] if found else None


def guards_in(events: Iterable[Event]) -> list[Guards]:
    """Return the guards that bind a tree with these *events*."""
    known: list[Guards] = []
    for event in events:
        if isinstance(event, CallRequested) and event.options is not None:
            known += event.options.guards
        elif isinstance(event, GuardsAdded):
            known.append(event.guards)
        elif isinstance(event, GuardsLifted):
            known = [guards.without(event.names) for guards in known]
    return known


def check_lifted(names: Iterable[str], record: CallRecord) -> None:
    """Raise InvalidValueError if one of *names* is no guard of the tree of *record*."""
    known = [name for guards in record.guards for name in guards.names]
    for name in names:
        # A fork that departs before one was lifted is bound by it.
        if name not in known and name not in record.lifted:
            listed = ", ".join(dict.fromkeys(known)) or "nothing"
            raise InvalidValueError(f"the run is not guarded by {name!r}; it is by {listed}")


def file_of_hook(name: str) -> str:
    """Return the file in which the hook of that name probably is."""
    return f"{name.partition(':')[0].replace('.', '/')}.py"


def _names_of(handlers: Sequence[HookHandler]) -> list[str]:
    """Return the name of each hook; of several with the same one, the second is "main:approve#2".

    Closures of one function share a name, and so do objects of one class and their methods.
    """
    known: dict[str, list[HookHandler]] = {}
    names: list[str] = []
    for handler in handlers:
        same = known.setdefault(name := reference_to(handler), [])
        if handler not in same:
            same.append(handler)
        place = same.index(handler) + 1
        names.append(name if place == 1 else f"{name}#{place}")
    return names


def _bound(record: CallRecord) -> list[HookGuard]:
    return [one for guards in record.guards for one in guards.hooks]


def _rules(
    allowed: Iterable[str] | None,
    disallowed: Iterable[str],
    hooks: Iterable[tuple[HookGuard, HookHandler]],
) -> Rules:
    matchers: dict[str, tuple[HookMatcher, ...]] = {}
    for guard, handler in hooks:
        one = HookMatcher(guard.matcher, (handler,), guard.timeout)
        matchers[guard.hook] = (*matchers.get(guard.hook, ()), one)
    return Rules(None if allowed is None else frozenset(allowed), frozenset(disallowed), matchers)


async def _refuse(guard: HookGuard, _event: object) -> HookDecision:
    raise UsageError(f"this process does not have the hook {guard.name}, which guards the run")


def _is_same_name(one: str, other: str) -> bool:
    """Whether two names mean the same hook: "guards:approve" is that of "app.guards", too."""
    (module, name), (other_module, other_name) = one.split(":", 1), other.split(":", 1)
    if name != other_name:
        return False
    return f".{module}".endswith(f".{other_module}") or f".{other_module}".endswith(f".{module}")


def _in_module(module: ModuleType, name: str) -> HookHandler | None:
    """Return what *module* has under the *name* of a hook, at its top level or in a class.

    It is no hook if it is a class, or a method that lacks its object.
    """
    found: Any = module
    for part in name.partition(":")[2].split("."):
        found = getattr(found, part, None)
    if not callable(found) or isinstance(found, type):
        return None
    handler = cast("HookHandler", found)
    try:
        HookMatcher(hooks=(handler,))
    except InvalidValueError:
        return None
    return handler
