"""Drive a journal in this process: what 'treefold fork' and 'treefold resume' do with --with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import click

from treefold.cli.journal import journal_path
from treefold.cli.loading import TARGET, load_functions, load_model
from treefold.cli.run import show
from treefold.cli.runtime_options import (
    RuntimeOptions,
    runtime_options,
)
from treefold.core.errors import InvalidValueError, StoreOwnedError
from treefold.core.function import Node
from treefold.core.views import NodeView
from treefold.runtime.runtime import Runtime
from treefold.stores.urls import public_name

_LEFT: Final = "it stays open in {store}, and resumes when that is next driven"

_targets: Final = click.option(
    "--with",
    "targets",
    type=TARGET,
    metavar="MODULE[:NAME]",
    multiple=True,
    help="do it here, with the functions of a module or a .py file, with one of them, or with a"
    " Runtime of the program; may be repeated",
)
_default_model: Final = click.option(
    "--default-model", metavar="NAME", help="with --with, the model of agents that name none"
)
_without: Final = click.option(
    "--without",
    metavar="GUARD",
    multiple=True,
    help="go on without something that guards the run: a hook as MODULE:NAME, allowed_tools,"
    " disallowed_tools or budget; your decision is recorded; may be repeated",
)


def here_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options that ``Here`` reads."""
    command = runtime_options(command)
    for add in (_without, _default_model, _targets):
        command = add(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """The options for what is to be done in this process, by a runtime of its own."""

    targets: tuple[str, ...]
    default_model: str | None
    hooks: tuple[str, ...]
    budget: str | None
    price: str | None
    deps: str | None

    def check(self) -> None:
        """Raise InvalidValueError if options are given that need ``--with``, and it is not."""
        given = self._deciding.given
        if self.default_model is not None:
            given.append("--default-model")
        if given and not self.targets:
            raise InvalidValueError(
                f"{', '.join(given)}: give --with MODULE, too, which does it in this process; the"
                " process that drives the journal has its own"
            )

    @property
    def _deciding(self) -> RuntimeOptions:
        return RuntimeOptions(
            hooks=self.hooks, budget=self.budget, price=self.price, deps=self.deps
        )

    def drive(
        self, store: str | None, top: NodeView, start: Callable[[Runtime], Node], command: str
    ) -> int:
        """Drive the journal, begin with *start*, show the run, and return the exit code.

        *top* is the top-level call of the run that it is about.

        Raises:
            StoreOwnedError: another process drives the journal.
            InvalidValueError: the functions do not include that of the run.
        """
        path = journal_path(store)
        try:
            runtime = self._runtime(path)
        except StoreOwnedError as error:
            raise StoreOwnedError(error.path, f"{error.args[1]}, or leave out --with") from error
        if top.fn not in runtime.invocable_functions:
            runtime.close()
            known = ", ".join(runtime.invocable_functions)
            raise InvalidValueError(f"run {top.path} began with {top.fn}, and --with has {known}")
        left = _LEFT.format(store=public_name(path))
        return show(runtime, lambda: start(runtime), command=command, left=left)

    def _runtime(self, path: str) -> Runtime:
        own = {"--default-model": self.default_model}
        program = self._deciding.named_runtime(self.targets, own)
        if program is None:
            models: Any = load_model(self.default_model)
            functions = load_functions(self.targets)
            return self._deciding.make(functions, models, new_runs=False, store=path)
        if program.store is None or program.store.name != path:
            named = None if program.store is None else public_name(program.store.name)
            program.close()
            raise InvalidValueError(
                f"the store of {self.targets[0]} is {named}, and the run is in {public_name(path)}"
            )
        return program
