"""``treefold resume``: continue a run that is paused, held back, failed or was cancelled."""

from dataclasses import replace
from typing import Any

from treefold.cli.control import EXIT_CODES, report_outcome
from treefold.cli.here import Here, here_options
from treefold.cli.journal import node_id, observe
from treefold.cli.options import command, node_argument, store_option, wait_option
from treefold.cli.runtime_options import read_budget
from treefold.core.address import address
from treefold.core.errors import UsageError
from treefold.core.function import Node
from treefold.core.states import NodeState
from treefold.runtime.observe.observer import is_paused
from treefold.runtime.runtime import Runtime


@command("resume", exit_codes=f"{EXIT_CODES};\nwith --with: 0 it returned, 1 it raised")
@node_argument(required=True)
@here_options
@wait_option
@store_option
def resume(
    node: str, wait: float, store: str | None, without: tuple[str, ...], **given: Any
) -> int:
    """Resume a paused call and all calls below it, an imported run, or one that has failed.

    example: treefold resume 2

    A run that has failed or was cancelled continues in a new one: what was cancelled, or failed for
    want of a provider, of a budget or of the journal, is done again, and all else is taken over.
    With --budget it may spend that much instead; what it has spent counts.

    The process that drives the journal does it. With --with it is done here, if no process drives
    the journal, and shown as by 'treefold run'; other unfinished runs of the journal resume, too.

    A run is bound by the permissions that it began with. If a process lacks a hook that guards it,
    the run is held back: give the hook by --hooks, or go on --without it.
    """
    here = Here(**given)
    budget = None if here.budget is None else read_budget(here.budget)
    # The process that drives the journal gives the run that budget.
    replace(here, budget=None).check()
    with observe(store) as observer:
        id = node_id(observer, node)
        id = observer.newest(id) if observer.tree_of(id) == id else id
        view = observer.get_view(id)
        top = observer.get_view(observer.tree_of(id))
        name = f"{view.fn} ({address(view.path)})"
        if not here.targets:
            observer.resume(id, budget=budget, without=without)

            def done() -> str | None:
                if (why := observer.refusal(id)) is not None:
                    raise UsageError(why)
                if (new := observer.newest(id)) != id:
                    return f"{name} resumes as {address(observer.get_view(new).path)}"
                now = observer.get_view(id)
                if view.state.final:
                    return None  # the fork is not made yet
                if now.state.final and now.state is not NodeState.Success:
                    return f"{name} has ended ({now.state})"
                paused = is_paused(now, is_short=budget is not None)
                held = paused or now.held_back or not observer.is_driven
                return None if held else f"{name} resumes"

            return report_outcome(observer, store, wait, done, f"{name} resumes")

    def start(runtime: Runtime) -> Node:
        # The runtime resumes what is unfinished by itself.
        is_stopped = view.state.final or top.inert
        if is_stopped or without or is_paused(view, is_short=budget is not None):
            return runtime.resume(id, budget=budget, without=without)
        return runtime.get_subtree(top.id)[0]

    return here.drive(store, top, start, "resume")
