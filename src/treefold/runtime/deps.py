"""Gives each tree that this process runs its dependencies."""

from treefold.core.call_keys import name_in
from treefold.core.deps import DepsSource, RunInfo
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import root_of
from treefold.runtime.services import Services
from treefold.runtime.trees.dependencies import Dependencies


def give_deps(top: CallNode, services: Services, given: DepsSource | None = None) -> None:
    """Give the tree of *top*, which this process runs from there on, its dependencies.

    They are those that it has, or were *given* for it, or else those of the runtime.
    """
    source = services.deps if given is None else given
    if source is not None and top.tree.deps is None:
        top.tree.deps = Dependencies(source, _run_info(top), top=top.id, is_given=given is not None)


def _run_info(node: CallNode) -> RunInfo:
    """Return what a factory receives about the run of *node*."""
    root, journal = root_of(node), node.tree.journal
    requested = root.record.requested
    return RunInfo(
        requested.function,
        root.inputs if journal is None else journal.as_written(root.inputs),
        root.function.tags,
        root.index,
        name_in(requested.key),
    )
