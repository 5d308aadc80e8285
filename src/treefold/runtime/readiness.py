"""Whether this process can run a tree of the journal, and what it lacks if not.

A tree is bound to the functions, models, versions and guards that it began with. A process that
lacks one of them holds the tree back, visibly, instead of running it otherwise.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from treefold.core.edit import Edit
from treefold.core.events import AgentEdited, GuardsLifted, ImportAccepted, TreeHeldBack
from treefold.core.record import why_inert
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import root_of
from treefold.runtime.durable.loader import Loader, PastFunction
from treefold.runtime.engine import Engine
from treefold.runtime.guarding import Guarding, check_lifted, file_of_hook

log = logging.getLogger(__name__)

# What decides whether a tree can run here: returns what is lacking, or an empty text.
_Check = Callable[[CallNode, Engine, Loader], str]


def why_held_back(root: CallNode, engine: Engine, loader: Loader) -> str:
    """Return what this process lacks to run the tree of *root*; empty if it lacks nothing."""
    return next((why for check in _CHECKS if (why := check(root, engine, loader))), "")


def hold_back(root: CallNode, why: str) -> None:
    """Leave the tree of *root* as it is, and say *why*: in the log, and on the tree."""
    log.warning("run %d is held back: %s", root.index, why)
    # Programs with other functions share a journal all the time; that is not worth an event.
    if not isinstance(root.function, PastFunction) and root.record.held_back != why:
        root.tree.publish(TreeHeldBack(root.id, why))


def accept_import(root: CallNode) -> None:
    """Record that a person lets the tree of *root* run, if it was imported."""
    if root.record.inert:
        root.tree.publish(ImportAccepted(root.id, root.tree.now()))


def lift(root: CallNode, names: Iterable[str]) -> None:
    """Record that a person has the tree of *root* continue without the guards of these names.

    Raises:
        InvalidValueError: it has no guard of one of these names.
    """
    if names := tuple(names):
        check_lifted(names, root.record)
        root.tree.publish(GuardsLifted(root.id, root.tree.now(), names))


def model_of(model_ref: str | None, edit: AgentEdited | Edit | None) -> Any:
    """Return the model of a call: *model_ref*, unless *edit* replaces it."""
    return model_ref if edit is None or edit.model is None else edit.model


def _lacks_function(root: CallNode, engine: Engine, loader: Loader) -> str:
    name = root.record.requested.function
    return "" if name in loader.functions else f"this process has no function {name!r}"


def _lacks_consent(root: CallNode, engine: Engine, loader: Loader) -> str:
    return why_inert(root.path) if root.record.inert else ""


def _lacks_model(root: CallNode, engine: Engine, loader: Loader) -> str:
    options = root.record.requested.options
    model = model_of(None if options is None else options.model, root.record.conversation.edit)
    if engine.knows_model(model):
        return ""
    return f"this process has no model {model!r}: give it in models="


def _lacks_version(root: CallNode, engine: Engine, loader: Loader) -> str:
    pinned = loader.why_pinned(root)
    return f"{pinned}, and on_new_code is {engine.services.on_new_code!r}" if pinned else ""


def _lacks_guard(root: CallNode, engine: Engine, loader: Loader) -> str:
    # A worker may run a call apart from its tree, whose guards bind it all the same.
    return why_unguarded(root_of(root), loader.guarding)


def why_unguarded(root: CallNode, guarding: Guarding, without: Collection[str] = ()) -> str:
    """Return which hooks this process lacks that guard a tree, but for those it is *without*."""
    names = [name for name in guarding.missing(root.record) if name not in without]
    if not names:
        return ""
    files = " ".join(f"--hooks {one}" for one in dict.fromkeys(map(file_of_hook, names)))
    listed, it = ", ".join(names), "it" if len(names) == 1 else "them"
    return (
        f"guarded by {listed}, which this process does not have: give {it} in hooks=, or {files};"
        f" to go on without {it} is a person's decision, by resume and --without"
    )


def _lacks_deps(root: CallNode, engine: Engine, loader: Loader) -> str:
    return why_without_deps(root, engine)


def why_without_deps(root: CallNode, engine: Engine) -> str:
    """Return that this process has no dependencies for a tree, or an empty text if it has."""
    options = root.record.requested.options
    if options is None or not options.deps or engine.services.deps or root.tree.deps:
        return ""
    missing = f"its dependencies came from {options.deps}, and this process has none"
    return f"{missing}: give it Runtime(deps=...), or --deps"


_CHECKS: Final[tuple[_Check, ...]] = (
    _lacks_function,
    _lacks_consent,
    _lacks_model,
    _lacks_version,
    _lacks_guard,
    _lacks_deps,
)
