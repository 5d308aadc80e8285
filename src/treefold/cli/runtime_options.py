"""What a run depends on, on the command line: ``--hooks``, ``--budget``, ``--price``, ``--deps``.

A program may have made a Runtime with all of it; a command line then names that.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from types import ModuleType
from typing import Any, Final, TypeVar, cast

import click

from treefold.cli.loading import DEPS_HELP, TARGET, load_deps, load_module, load_object
from treefold.core.budget import Budget, amounts_in
from treefold.core.decisions import HOOK_PRE_TOOL_USE, Hooks
from treefold.core.errors import InvalidValueError
from treefold.core.function import Function
from treefold.core.usage import TokenUsage
from treefold.runtime.limits.model_names import ModelNames
from treefold.runtime.runtime import Runtime

_MAPPING: Final = "hooks"  # the name of the hooks in a module
_MILLION: Final = 1_000_000

R = TypeVar("R", bound=Runtime)


def runtime_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options that ``RuntimeOptions`` reads."""
    for add in (_deps, _price, _budget, _hooks):
        command = add(command)
    return command


_hooks: Final = click.option(
    "--hooks",
    "hooks",
    type=TARGET,
    metavar="MODULE[:NAME]",
    multiple=True,
    help="decision hooks, which may forbid calls or ask you about them: a dict as for Runtime, by"
    " default the one called 'hooks', or one async function; runs that a hook of the module guards"
    " find it there; may be repeated",
)
_budget: Final = click.option(
    "--budget",
    metavar="LIMITS",
    help="what all calls together may spend, such as usd=2 or tokens=100000,seconds=600,calls=50",
)
_price: Final = click.option(
    "--price",
    metavar="IN/OUT",
    help="what the model costs, if that is not known: US dollars for a million tokens of input, and"
    " of output, such as 0.5/2",
)


_deps: Final = click.option("--deps", metavar="MODULE:NAME", help=DEPS_HELP)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeOptions:
    """The options that decide about a run."""

    hooks: tuple[str, ...] = ()
    budget: str | None = None
    price: str | None = None
    deps: str | None = None

    @property
    def given(self) -> list[str]:
        """The options that were given."""
        return [f"--{one.name}" for one in fields(self) if getattr(self, one.name)]

    def named_runtime(self, targets: Sequence[str], own: Mapping[str, object]) -> Runtime | None:
        """Return the Runtime of a program that *targets* name; None if they name functions.

        *own* are further options of the command that a Runtime has itself, by their names.

        Raises:
            InvalidValueError: such options are given beside it.
        """
        if len(targets) != 1 or (program := load_runtime(targets[0])) is None:
            return None
        if given := [*self.given, *(name for name, value in own.items() if value)]:
            program.close()
            raise InvalidValueError(
                f"{targets[0]} is a Runtime, which has that itself: leave out {', '.join(given)}"
            )
        return program

    def make(
        self,
        functions: Iterable[Function],
        models: Any,
        *,
        kind: type[R] = Runtime,
        new_runs: bool = True,
        **more: Any,
    ) -> R:
        """Return a runtime with these options.

        *new_runs* says whether it starts runs: hooks that bind none of them are refused then.

        Raises:
            InvalidValueError: an option cannot be read.
        """
        modules, hooks = self._load_hooks(new_runs=new_runs)
        return kind(
            functions,
            models=models if self.price is None else priced(models, self.price),
            hooks=hooks,
            guards=modules,
            budget=None if self.budget is None else read_budget(self.budget),
            deps=load_deps(self.deps),
            **more,
        )

    def _load_hooks(self, *, new_runs: bool) -> tuple[list[ModuleType], Hooks]:
        modules: list[ModuleType] = []
        merged: dict[str, Sequence[Any]] = {}
        for target in self.hooks:
            place, _, name = target.rpartition(":")
            place, name = (place, name) if place else (target, "")
            module = load_module(place)
            modules.append(module)
            found = getattr(module, name or _MAPPING, None)
            if callable(found):
                found = {HOOK_PRE_TOOL_USE: [found]}
            if isinstance(found, Mapping):
                for hook, handlers in cast("Hooks", found).items():
                    merged[hook] = [*merged.get(hook, ()), *handlers]
            elif name or new_runs:
                raise InvalidValueError(
                    f"{place} has no {name or _MAPPING!r} that is a dict of hooks, such as"
                    " {'pre_tool_use': [approve]}, or an async function: give MODULE:NAME"
                )
        return modules, merged


def read_budget(text: str) -> Budget:
    """Return the budget that ``--budget`` describes.

    Raises:
        InvalidValueError: it describes none.
    """
    try:
        return amounts_in(text)
    except InvalidValueError:
        raise InvalidValueError(
            f"--budget {text!r} is none: give limits such as usd=2 or tokens=100000,seconds=600;"
            " there are usd, tokens, seconds and calls"
        ) from None


def priced(models: Any, text: str) -> Any:
    """Return the default model of *models* at the price that ``--price`` gives.

    Raises:
        InvalidValueError: there is no such model, or the price cannot be read.
    """
    try:
        given, returned = (Decimal(part) / _MILLION for part in text.split("/"))
    except (ValueError, InvalidOperation):
        raise InvalidValueError(
            f"--price {text!r} is none: give US dollars for a million tokens of input and of"
            " output, such as 0.5/2"
        ) from None
    model = (models if isinstance(models, ModelNames) else ModelNames(models)).find(None)

    def cost(usage: TokenUsage) -> Decimal:
        output = usage.output + usage.reasoning
        return given * (usage.total - output) + returned * output

    model.price = cost
    return model


def load_runtime(target: str) -> Runtime | None:
    """Return the Runtime that MODULE:NAME names, or that a function of that name makes.

    None if it names something else.
    """
    place, _, name = target.rpartition(":")
    found = load_object(place, name) if place and name else None
    if callable(found) and not isinstance(found, Function | type):
        makes = getattr(found, "__annotations__", {}).get("return")
        found = found() if makes in {Runtime, "Runtime"} else None
    return found if isinstance(found, Runtime) else None
