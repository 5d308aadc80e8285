"""Reads recorded trees for a runtime, and attaches the requests of its program to them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final
from weakref import WeakValueDictionary

from treefold.core.address import address
from treefold.core.agent_events import NoticeGiven
from treefold.core.call_keys import is_preparation
from treefold.core.call_request import CallRequest
from treefold.core.errors import UsageError
from treefold.core.events import (
    CallEnded,
    CallOptions,
    CallRequested,
    Event,
    GuardsAdded,
    StopCause,
    ValueSent,
)
from treefold.core.fact import replace
from treefold.core.forking import inherited_call
from treefold.core.function import Function, RunContext
from treefold.core.guards import Guards
from treefold.core.parameters import Parameters
from treefold.core.record import CallRecord
from treefold.core.restoring import restored
from treefold.core.value_codec import has_unserializable
from treefold.runtime.calls.budgets import History
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.past_call import restore_outputs, resume_as, send_again
from treefold.runtime.calls.stage import Stage
from treefold.runtime.calls.walk import subtree
from treefold.runtime.durable.crash_trials import last_death
from treefold.runtime.durable.function_version import version_of, version_of_hook
from treefold.runtime.durable.gc_disabled import gc_disabled
from treefold.runtime.durable.histories import history_of
from treefold.runtime.durable.journal_writer import JournalWriter
from treefold.runtime.durable.new_code import Fork, OnNewCode, gate_for_new_code, what_changed
from treefold.runtime.durable.tree_reader import read_tree, reporting_damage
from treefold.runtime.durable.tree_source import TreeSource
from treefold.runtime.guarding import Guarding, guards_in
from treefold.runtime.questions.in_doubt import approval_again, gate_after_crash
from treefold.runtime.trees.tree import Tree

_NEW_HOOK: Final = "the hook {name}, which guards this run, has changed: the new one decides"


class PastFunction(Function):
    """Placeholder for a recorded function that this program does not have."""

    def __init__(self, name: str, *, is_agent: bool) -> None:
        super().__init__(name, "")
        self.is_agent = is_agent

    @property
    def parameters(self) -> Parameters:
        return Parameters.of_schema(self.name, {"type": "object"})

    async def run_call(self, ctx: RunContext, args: Mapping[str, Any]) -> Any:
        raise UsageError(f"{self.name} is not among the functions of this runtime")


class Loader:
    """Reads the trees of a journal as records, from which the engine makes nodes."""

    def __init__(
        self,
        journal: JournalWriter,
        source: TreeSource,
        functions: Mapping[str, Function],
        guarding: Guarding,
        on_new_code: OnNewCode = "adopt",
    ) -> None:
        self.journal = journal
        self.store = journal.store
        self.source = source
        self.functions = functions
        self.guarding = guarding
        self._on_new_code: OnNewCode = on_new_code
        self.unread: WeakValueDictionary[int, CallNode] = WeakValueDictionary()

    def load(self, id: int, events: Sequence[Event] | None = None) -> Tree:
        """Return the tree with this id and all of its records, from *events* if given.

        Raises:
            StoreError: it cannot be read.
        """
        events = events or self.read(id)[0]
        with reporting_damage(self.store, id), gc_disabled():
            first = events[0]
            assert isinstance(first, CallRequested)  # as in every tree
            source = self.source
            journal = source.journal_of(id)
            tree = Tree(id, first.index, kept=True, journal=journal, now=source.now)
            tree.last_death = last_death(events)
            tree.restore(events)
        return tree

    def read(self, tree: int) -> tuple[list[Event], int]:
        """Return the events of a tree, and the position of its last entry.

        Results are restored to the types of their functions.
        """
        with gc_disabled():
            events, place = read_tree(self.store, tree)
            with reporting_damage(self.store, tree):
                return self.restored(events), place

    def restored(self, events: list[Event]) -> list[Event]:
        """Restore the results in *events* to the types of their functions; return *events*."""
        called: dict[int, Function | None] = {}
        for number, event in enumerate(events):
            if isinstance(event, CallRequested):
                caller = None if event.parent is None else called[event.parent]
                called[event.node] = self._called(event, caller)
            elif isinstance(event, CallEnded | ValueSent):
                events[number] = _restored(called[event.node], event)
        return events

    def _called(self, requested: CallRequested, caller: Function | None) -> Function | None:
        """Return the function that *caller* has called, if this program has it."""
        name = requested.function
        own = () if caller is None else caller.own_functions
        found = next((one for one in own if one.name == name), None)
        if found is None or caller is None:
            return self.functions.get(name)
        if is_preparation(requested.key):
            return found
        # A program may have a function of that name, too.
        return next((one for one in caller.may_call if one.name == name), found)

    def restored_event(self, event: Event, function: str) -> Event:
        """Return *event* with its value restored to the type of *function*."""
        if isinstance(event, CallEnded | ValueSent):
            return _restored(self.functions.get(function), event)
        return event

    def load_around(self, call: int, tree: int, events: list[Event]) -> Tree:
        """Return a tree of which this process runs one *call* and those below it."""
        loaded = self.load(tree, events)
        below = {call}
        for event in events:
            if isinstance(event, CallRequested) and event.parent in below:
                below.add(event.node)
        loaded.last_death = last_death([event for event in events if event.node in below])
        return loaded

    def request_of(self, record: CallRecord) -> CallRequest:
        """Return the request of a recorded call, as far as the journal has it."""
        requested = record.requested
        options = requested.options or CallOptions()
        above = record.parent
        caller = None if above is None else self.functions.get(above.requested.function)
        function = self._called(requested, caller)
        return CallRequest(
            function or PastFunction(requested.function, is_agent=requested.is_agent),
            record.inputs,
            options.timeout,
            model=options.model,
            budget=options.budget,
            tool_use_id=requested.tool_use_id,
            levels=self.guarding.levels(record) if requested.parent is None else None,
        )

    def function_of(self, name: str, *, is_agent: bool) -> Function:
        """Return the function with this *name*; if the program has none, a placeholder."""
        return self.functions.get(name) or PastFunction(name, is_agent=is_agent)

    def reattach(self, node: CallNode, request: CallRequest) -> None:
        """Attach *request* to a recorded call, and reopen the call if it must run again.

        The function of a call that continues may have changed since it was made.
        """
        if node.stage is Stage.Ending:
            return
        resume_as(node, request)
        if node.has_ended:
            restore_outputs(node, restored(request.function.output_type, node.outputs))
            given = node.outputs if request.sink is None else [node.outputs, node.record.values]
            if has_unserializable(given) or node.stopped_by is StopCause.Abandoned:
                self._reopen(node)
            elif node.parent is not None and request.function.ends_its_caller:
                node.parent.note_resignation(node.exception)
        if node.has_ended:
            send_again(node)
        else:
            is_asked_for = node.record.requested.gated and not node.record.allowed
            if node.parent is None and is_asked_for and request.gate is None:
                request.gate = approval_again(node)
            request.gate = gate_after_crash(node, request.gate)
            if not node.tree.part(Fork).is_own:
                function, policy = request.function, self._on_new_code
                request.gate = gate_for_new_code(node, function, request.gate, policy)

    def history_of(self, tree: int, account: str, counted: Collection[int] = ()) -> History | None:
        """Return what a tree and its forks have spent of the account of an earlier runtime."""
        return history_of(self.store, tree, account, counted)

    def recorded(self) -> int:
        """Return how many characters were recorded."""
        return self.journal.characters

    def version_of(self, function: Function) -> str:
        """Return the version of *function*."""
        return version_of(function)

    def guards_of(self, request: CallRequest) -> tuple[Guards, ...]:
        """Return the guards of a new tree, which are recorded with its top-level call."""
        return self.guarding.recorded(request.rules, version_of_hook)

    def added_guards(self, root: int, events: Iterable[Event]) -> list[Event]:
        """Return the events by which a tree with this past is bound by this runtime, too."""
        added = self.guarding.added(guards_in(events), version_of_hook)
        return [] if added is None else [GuardsAdded(root, added)]

    def bind(self, root: CallNode) -> None:
        """Bind a recorded tree by the guards of this runtime, too, before it is resumed."""
        if (guards := self.guarding.added(root.record.guards, version_of_hook)) is not None:
            for name in self.guarding.changed(root.record, version_of_hook):
                root.tree.publish(NoticeGiven(root.id, _NEW_HOOK.format(name=name)))
            root.tree.publish(GuardsAdded(root.id, guards))

    def why_pinned(self, root: CallNode) -> str:
        """Return why the tree of *root* waits for another version of a function; empty if not."""
        if self._on_new_code == "pin" and not root.tree.part(Fork).is_own:
            for node in subtree(root):
                function = None if node.has_ended else self.functions.get(node.function.name)
                change = "" if function is None else what_changed(node.record, function)
                if change:
                    return f"{change}, in {address(node.path)}"
        if self._on_new_code != "adopt":
            for name in self.guarding.changed(root.record, version_of_hook):
                return f"the hook {name}, which guards it, has changed"
        return ""

    def _reopen(self, node: CallNode) -> None:
        # A call that a fork inherits has no entries under its own id yet.
        journal = node.tree.journal
        assert journal is not None  # it was loaded from one
        if not journal.length(node.id):
            version = version_of(node.request.function)
            node.tree.publish(inherited_call(node.record.requested, version))
        node.reopen()


def _restored(function: Function | None, event: CallEnded | ValueSent) -> Event:
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
