"""``treefold run --detach``: submit a call to the workers of a store, and return."""

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from treefold.cli.engine_choice import choose_engine
from treefold.cli.exit_codes import DONE
from treefold.cli.journal import shared_journal
from treefold.cli.loading import is_in_file
from treefold.cli.runtime_options import RuntimeOptions
from treefold.core.errors import InvalidValueError
from treefold.core.function import DEFAULT_QUEUE, Function
from treefold.core.store import Store
from treefold.runtime.durable.worker_settings import WorkerSettings
from treefold.views.text import printable


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call is submitted to: the options of the command line."""

    store: str | None
    key: str | None
    queue: str | None
    engine: str | None
    model: str | None


def submit(
    function: Function, args: Mapping[str, Any], decides: RuntimeOptions, place: Place
) -> int:
    """Submit a call, print the number of its run, and on stderr how to watch it.

    Raises:
        TreefoldError: it was not submitted.
    """
    store, model = place.store, place.model
    if decides.price is not None:
        raise InvalidValueError("--price is for the model of a worker: give it there")
    if model is not None and is_in_file(model):
        raise InvalidValueError(f"--model {model} is in this process only: give it to the worker")
    if model is not None and not function.is_agent:
        raise InvalidValueError(
            f"--model is for agents, and {function.name} is code: give it to the worker"
        )
    url = shared_journal(store)
    queue = place.queue or function.queue or DEFAULT_QUEUE
    runtime = decides.make(
        [function],
        None,
        store=url,
        engine=choose_engine(place.engine, url).engine,
        worker=WorkerSettings(queues=[queue]),
    )
    with runtime:
        shared = runtime.store
        assert shared is not None
        node = runtime.invoke(function, args, key=place.key, queue=queue, model=model)
        runtime.flush()
        is_served = _is_served(shared, queue, function.name)
        # When the runtime is closed, the node of a call that continues elsewhere ends.
        has_ended = node.state.final
    print(node.index)
    named = "" if store is None else f" --store {shlex.quote(shared.name)}"
    if has_ended:
        _say(f"the call with this key has ended; see it: treefold tree {node.index}{named}")
        return DONE
    _say(f"submitted to the queue {queue!r}; watch it: treefold tree {node.index}{named}")
    if not is_served:
        _say(
            f"no worker that serves {queue!r} has {function.name} now; 'treefold worker' starts one"
        )
    return DONE


def _is_served(store: Store, queue: str, function: str) -> bool:
    """Whether a living worker takes calls of *function* from *queue*."""
    assert store.cluster is not None  # a runtime with an engine has no other
    return any(
        row.alive and row.load.slots and queue in row.info.queues and function in row.info.functions
        for row in store.cluster.members.workers()
    )


def _say(text: str) -> None:
    print(f"treefold run: {printable(text)}", file=sys.stderr)
