"""``treefold resume``: continue a run that is paused, held back, failed or was cancelled."""

from typing import Any

from treefold.cli.control import EXIT_CODES, report_outcome
from treefold.cli.here import Here, here_options
from treefold.cli.journal import node_id, observe
from treefold.cli.options import command, node_argument, store_option, wait_option
from treefold.core.function import Node
from treefold.runtime.observe.observer import Observer, is_paused
from treefold.runtime.runtime import Runtime


@command("resume", exit_codes=f"{EXIT_CODES};\nwith --with: 0 it returned, 1 it raised")
@node_argument(required=True)
@here_options
@wait_option
@store_option
def resume(
    node: str, wait: float, store: str | None, without: tuple[str, ...], **given: Any
) -> int:
    """Resume a paused call and all calls below it, or a run that failed or was cancelled.

    example: treefold resume 7

    A run that has failed or was cancelled resumes as a fork: what was cancelled, or ended because
    a provider failed, is done again, and all else is taken over.

    The process that drives the journal does it. With --with it is done here, if no process drives
    the journal, and shown as by 'treefold run'; other unfinished runs of the journal resume, too.

    A run is bound by the permissions that it began with. If a process lacks a hook that guards it,
    the run is held back: give the hook by --hooks, or go on --without it.
    """
    here = Here(**given)
    here.check()
    with observe(store) as observer:
        id = node_id(observer, node)
        view, known = observer.get_view(id), _forks(observer, id)
        top = observer.get_view(observer.tree_of(id))
        name = f"{view.fn} (node {id})"
        if not here.targets:
            observer.resume(id, without=without)

            def forked() -> str | None:
                new = _forks(observer, id) - known
                return f"{name} resumes as node {min(new)}" if new else None

            def lifted() -> str | None:
                now = observer.get_view(id)
                held = is_paused(now) or now.held_back or not observer.is_driven
                return None if held else f"{name} resumes"

            done = forked if view.state.final else lifted
            return report_outcome(observer, store, wait, done, f"{name} resumes")

    def start(runtime: Runtime) -> Node:
        # The runtime resumes what is unfinished by itself.
        if view.state.final or without or is_paused(view):
            return runtime.resume(id, without=without)
        return runtime.get_subtree(top.id)[0]

    return here.drive(store, top, start, "resume")


def _forks(observer: Observer, tree: int) -> set[int]:
    return {row.id for row in observer.trees() if row.source == tree}
