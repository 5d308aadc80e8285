"""Makes the nodes of recorded trees from the journal, without running them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from treefold.core.call_request import CallRequest
from treefold.core.errors import UsageError
from treefold.core.events import CallEnded, CallOptions, CallRequested, Event, ValueSent
from treefold.core.fold import Record
from treefold.core.function import Function, RunContext
from treefold.core.parameters import Parameters
from treefold.core.restoring import restored
from treefold.runtime.calls.budgets import Spent
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import upwards
from treefold.runtime.durable.crash_trials import last_death
from treefold.runtime.durable.journal_writer import JournalWriter
from treefold.runtime.durable.tree_reader import gc_disabled, read_events, reporting_damage
from treefold.runtime.trees.tree import Tree

Remake = Callable[[Record, CallRequest, Tree, CallNode | None], CallNode]


class PastFunction(Function):
    """Placeholder for a recorded function that this program does not have."""

    def __init__(self, name: str, *, is_agent: bool) -> None:
        super().__init__(name, "")
        self.is_agent = is_agent

    @property
    def parameters(self) -> Parameters:
        return Parameters.of_schema(self.name, {"type": "object"})

    async def run(self, ctx: RunContext, args: Mapping[str, Any]) -> Any:
        raise UsageError(f"{self.name} is not among the functions of this runtime")


class Loader:
    """Makes the nodes of trees in the journal.

    Args:
        remake: makes the node of a record.
        ended: called when a call ends that was open when it was loaded.
    """

    def __init__(
        self,
        journal: JournalWriter,
        functions: Mapping[str, Function],
        remake: Remake,
        ended: Callable[[CallNode], None],
    ) -> None:
        self._journal = journal
        self.functions = functions
        self._remake = remake
        self._ended = ended

    def load(self, id: int, events: Sequence[Event]) -> CallNode:
        """Return the top-level node of the tree with this id, all below it restored."""
        with reporting_damage(self._journal.store, id), gc_disabled():
            return self._restored(id, events)

    def _restored(self, id: int, events: Sequence[Event]) -> CallNode:
        first = events[0]
        assert isinstance(first, CallRequested)  # as in every tree
        tree = Tree(id, first.index, kept=True, journal=self._journal)
        tree.last_death = last_death(events)
        records = tree.restore(events)
        nodes: dict[int, CallNode] = {}
        for node_id in sorted(records):
            record = records[node_id]
            # The fold keeps changing the record of an open call; the node needs the past as it was.
            if record.ended is None:
                record = records[node_id] = record.copy()
            parent = record.requested.parent
            request = self.request_of(record)
            above = None if parent is None else nodes[parent]
            nodes[node_id] = self._remake(record, request, tree, above)
            tree.asked[node_id] = len(record.asked)
            if not nodes[node_id].has_ended:
                nodes[node_id].add_end_callback(partial(self._ended, nodes[node_id]))
                if above is not None and above.function.is_agent and above.waiting_on is None:
                    # Agents await their calls in order: until it is resumed, this is the first.
                    above.waiting_on = nodes[node_id]
        for node_id, node in nodes.items():
            if (record := records[node_id]).exchanges or record.usage.total:
                for above in upwards(node):
                    above.spent = above.spent or Spent()
                    above.spent.add(record.usage, record.cost, len(record.exchanges))
        return nodes[id]

    def events(self, tree: int) -> list[Event]:
        """Return the events of a tree, with results restored to the types of their functions."""
        events = read_events(self._journal.store, tree)
        with reporting_damage(self._journal.store, tree):
            return self.restored(events)

    def restored(self, events: list[Event]) -> list[Event]:
        """Restore the results in *events* to the types of their functions; return *events*."""
        called: dict[int, Function | None] = {}
        for number, event in enumerate(events):
            if isinstance(event, CallRequested):
                caller = None if event.parent is None else called[event.parent]
                own = {} if caller is None else {one.name: one for one in caller.own_functions}
                called[event.node] = own.get(event.function) or self.functions.get(event.function)
            elif isinstance(event, CallEnded | ValueSent):
                events[number] = _revived(called[event.node], event)
        return events

    def request_of(self, record: Record) -> CallRequest:
        """Return the request of a recorded call, as far as the journal has it."""
        requested = record.requested
        options = requested.options or CallOptions()
        function = self.functions.get(requested.function)
        if function is None:
            function = PastFunction(requested.function, is_agent=requested.is_agent)
        return CallRequest(
            function,
            record.inputs,
            options.timeout,
            model=options.model,
            budget=options.budget,
            tool_use_id=requested.tool_use_id,
        )


def _revived(function: Function | None, event: CallEnded | ValueSent) -> Event:
    """Return *event* with its value restored to the result type of *function*.

    Sent values are restored for streaming functions only: others may send values of any type.
    """
    if function is None:
        return event
    if isinstance(event, CallEnded):
        value = restored(function.output_type, event.outputs)
        return event if value is event.outputs else replace(event, outputs=value)
    if not function.streams:
        return event
    return replace(event, value=restored(function.output_type, event.value))
