"""``treefold fork``: run again from a call in the past, with something changed."""

from dataclasses import dataclass, fields
from typing import Any, Final

import click

from treefold.cli.control import EXIT_CODES, report_outcome
from treefold.cli.here import Here, here_options
from treefold.cli.journal import node_id, observe
from treefold.cli.loading import load_model
from treefold.cli.options import (
    command,
    node_argument,
    read_arguments,
    read_text,
    read_value,
    store_option,
    wait_option,
)
from treefold.core.address import address
from treefold.core.edit import UNCHANGED, Edit
from treefold.core.function import Node
from treefold.runtime.runtime import Runtime

_HERE: Final = (
    "; with --with MODULE[:FUNCTION], 'treefold fork' forks at once, here; given now, it makes both"
    " forks, this one and its own"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    node: str
    at: int | None
    prompt: str | None
    model: str | None
    system: str | None
    args: str | None
    result: str | None
    without: tuple[str, ...]
    wait: float
    store: str | None

    def edit(self, *, here: bool) -> Edit:
        """Return what is changed in the past; *here* is whether this process makes the fork."""
        return Edit(
            prompt=self.prompt,
            # The process that drives the journal is given a name, and loads the model itself.
            model=load_model(self.model) if here else self.model,
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
@here_options
@wait_option
@store_option
def fork(**given: Any) -> int:
    """Start a run that shares the past up to a call, makes that call again, and runs what follows.

    example: treefold fork 1.1 --prompt 'Say it in one word.'

    The original run is not changed. The process that drives the journal forks it. With --with it
    is forked here, if no process drives the journal, and shown as by 'treefold run'; other
    unfinished runs of the journal resume, too.

    A fork is bound by the permissions that bound the original. If a hook that guards it is missing
    here, give it by --hooks, or go on --without it.
    """
    here = Here(**{one.name: given.pop(one.name) for one in fields(Here)})
    here.check()
    options = _Options(**given)
    edit = options.edit(here=bool(here.targets))
    with observe(options.store) as observer:
        node = node_id(observer, options.node)
        view = observer.get_view(node)
        name = f"{view.fn} ({address(view.path)})"
        top = observer.get_view(observer.tree_of(node))
        if not here.targets:
            key = observer.fork(node, options.at, edit, without=options.without)

            def done() -> str | None:
                found = observer.forked(key)
                if found is None:
                    return None
                return f"{name} was forked: the new one is {address(observer.get_view(found).path)}"

            expected = f"{name} is forked"
            return report_outcome(observer, options.store, options.wait, done, expected, _HERE)

    def start(runtime: Runtime) -> Node:
        return runtime.fork(node, options.at, edit, without=options.without)

    return here.drive(options.store, top, start, "fork")
