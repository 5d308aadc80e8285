"""Whether this process can run a tree of the journal, and what it lacks if not.

A tree is bound to the functions, models, versions and guards that it began with. A process that
lacks one of them holds the tree back, visibly, instead of running it otherwise.
"""

import logging
import time
from collections.abc import Callable
from typing import Any, Final

from treefold.core.edit import Edit
from treefold.core.events import AgentEdited, ImportAccepted, TreeHeldBack
from treefold.core.record import why_inert
from treefold.runtime.calls.node import CallNode
from treefold.runtime.durable.loader import Loader, PastFunction
from treefold.runtime.engine import Engine

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
        root.tree.publish(TreeHeldBack(root.id, time.time(), why))


def accept_import(root: CallNode) -> None:
    """Record that a person lets the imported tree of *root* run."""
    root.tree.publish(ImportAccepted(root.id, time.time()))


def model_of(model_ref: str | None, edit: AgentEdited | Edit | None) -> Any:
    """Return the model of a call: *model_ref*, unless *edit* replaces it."""
    return model_ref if edit is None or edit.model is None else edit.model


def _lacks_function(root: CallNode, engine: Engine, loader: Loader) -> str:
    if not isinstance(root.function, PastFunction):
        return ""
    return f"this process has no function {root.function.name!r}"


def _lacks_consent(root: CallNode, engine: Engine, loader: Loader) -> str:
    return why_inert(root.id) if root.record.inert else ""


def _lacks_model(root: CallNode, engine: Engine, loader: Loader) -> str:
    options = root.record.requested.options
    model = model_of(None if options is None else options.model, root.record.conversation.edit)
    if engine.knows_model(model):
        return ""
    return f"this process has no model {model!r}: give it in models="


def _lacks_version(root: CallNode, engine: Engine, loader: Loader) -> str:
    pinned = loader.why_pinned(root)
    return f"{pinned}, and on_new_code is 'pin'" if pinned else ""


_CHECKS: Final[tuple[_Check, ...]] = (
    _lacks_function,
    _lacks_consent,
    _lacks_model,
    _lacks_version,
)
