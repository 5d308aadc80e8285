"""``treefold fork``: run again from a call in the past, with something changed."""

from dataclasses import dataclass
from typing import Any, Final

import click

from treefold.cli.control import EXIT_CODES, report_outcome
from treefold.cli.journal import journal_path, node_id, observe
from treefold.cli.loading import DEPS_HELP, TARGET, load_deps, load_functions, load_model
from treefold.cli.options import (
    command,
    node_argument,
    read_arguments,
    read_text,
    read_value,
    store_option,
    wait_option,
)
from treefold.cli.run import show
from treefold.core.edit import UNCHANGED, Edit
from treefold.core.errors import InvalidValueError, StoreOwnedError
from treefold.runtime.runtime import Runtime
from treefold.stores.urls import public_name

_HERE: Final = (
    "; with --with MODULE[:FUNCTION], 'treefold fork' forks at once, here; given now, it makes both"
    " forks, this one and its own"
)
_LEFT: Final = "it stays open in {store}, and resumes when that is next driven"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    node: str
    at: int | None
    prompt: str | None
    model: str | None
    system: str | None
    args: str | None
    result: str | None
    targets: tuple[str, ...]
    default_model: str | None
    deps: str | None
    wait: float
    store: str | None

    def edit(self) -> Edit:
        """Return what is changed in the past."""
        return Edit(
            prompt=self.prompt,
            # The process that drives the journal is given a name, and loads the model itself.
            model=load_model(self.model) if self.targets else self.model,
            system=None if self.system is None else read_text(self.system, "--system"),
            args=None if self.args is None else read_arguments(self.args, "--args"),
            result=UNCHANGED if self.result is None else read_value(self.result),
        )


@command("fork", exit_codes=f"{EXIT_CODES};\nwith --with: 0 it returned, 1 it raised")
@node_argument(required=True)
@click.option(
    "--at",
    metavar="COUNT",
    type=int,
    help="keep the first COUNT responses of the agent and continue after them; by default 0",
)
@click.option("--prompt", metavar="TEXT", help="another prompt for the agent")
@click.option("--model", metavar="NAME", help="another model for the agent from there on")
@click.option(
    "--system",
    metavar="TEXT",
    help="another system prompt for the agent from there on; @FILE reads it from a file",
)
@click.option("--args", metavar="JSON", help="other arguments of the call: a JSON object")
@click.option(
    "--result",
    metavar="JSON",
    help="another result of the call, which is not made then; it is text if it is not JSON",
)
@click.option(
    "--with",
    "targets",
    type=TARGET,
    metavar="MODULE[:FUNCTION]",
    multiple=True,
    help="fork here, with the functions of a module or a .py file; may be repeated",
)
@click.option(
    "--default-model", metavar="NAME", help="with --with, the model of agents that name none"
)
@click.option("--deps", metavar="MODULE:NAME", help=f"with --with, {DEPS_HELP}")
@wait_option
@store_option
def fork(**given: Any) -> int:
    """Start a run that shares the past up to a call, makes that call again, and runs what follows.

    example: treefold fork 2 --prompt 'Say it in one word.'

    The original run is not changed. The process that drives the journal forks it. With --with it
    is forked here, if no process drives the journal, and shown as by 'treefold run'; other
    unfinished runs of the journal resume, too.
    """
    options = _Options(**given)
    edit = options.edit()
    if options.targets:
        return _fork_here(options, edit)
    with observe(options.store) as observer:
        node = node_id(observer, options.node)
        name = f"{observer.get_view(node).fn} (node {node})"
        key = observer.fork(node, options.at, edit)

        def done() -> str | None:
            found = observer.forked(key)
            return None if found is None else f"{name} was forked: the new run is node {found}"

        expected = f"{name} is forked"
        return report_outcome(observer, options.store, options.wait, done, expected, _HERE)


def _fork_here(options: _Options, edit: Edit) -> int:
    functions = load_functions(options.targets)
    with observe(options.store) as observer:
        node = node_id(observer, options.node)
        top = observer.get_view(observer.tree_of(node))
    path = journal_path(options.store)
    try:
        runtime = Runtime(
            functions,
            models=load_model(options.default_model),
            deps=load_deps(options.deps),
            store=path,
        )
    except StoreOwnedError as error:
        raise StoreOwnedError(error.path, f"{error.args[1]}, or leave out --with") from error
    if top.fn not in runtime.invocable_functions:
        runtime.close()
        known = ", ".join(runtime.invocable_functions)
        raise InvalidValueError(f"run {top.id} began with {top.fn}, and --with has {known}")
    return show(
        runtime,
        lambda: runtime.fork(node, options.at, edit),
        command="fork",
        left=_LEFT.format(store=public_name(path)),
    )
