"""Run a recorded tree again with the functions of today, and find where it goes another way.

Agents and code that calls other functions run; models, all other code and people say what was
recorded. A call is the same as one that was recorded if the journal would find it again: by its
parent and its key. Nothing is written down, and nobody is reached.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Never

from treefold.agents.results import ReturnResult
from treefold.core.agent_events import RequestFailed, ResponseCompleted
from treefold.core.decisions import Hooks
from treefold.core.errors import InvalidValueError, UsageError
from treefold.core.events import CallOptions, Event, Failure, StopCause
from treefold.core.function import Function
from treefold.core.question import Answer, Question
from treefold.core.restoring import restored
from treefold.core.states import NodeState
from treefold.core.transcript import TranscriptPart
from treefold.core.value_codec import digest
from treefold.runtime.call_request import CallRequest, Concluded
from treefold.runtime.engine import Engine
from treefold.runtime.limits import Limits
from treefold.runtime.loop_handle import LoopHandle
from treefold.runtime.node import CallNode
from treefold.runtime.runtime import Runtime
from treefold.runtime.tree import Tree
from treefold.runtime.walk import subtree
from treefold.testing.divergence import (
    Divergence,
    call_text,
    inputs_text,
    outcome_text,
    told_apart,
)
from treefold.testing.recorded_board import RecordedBoard
from treefold.testing.recorded_model import StandIns
from treefold.testing.recording import RecordedCall, Recording, recorded_exception
from treefold.testing.replay_order import ReplayOrder
from treefold.testing.replayed_agent import ReplayedAgent

_AGAIN: Final = 0.01  # seconds until the next look, while code does something of its own
_MANY: Final = 1_000_000  # requests at once: nobody is asked
_GRACE: Final = 1.0  # seconds that whoever gives up a call may take longer than before

Gate = Callable[[CallNode], Awaitable[Mapping[str, Any]]]


class ReplayEngine(Engine):
    """Asks the recording first what a call is to be."""

    runtime: "ReplayRuntime"

    def _make(
        self,
        id: int,
        request: CallRequest,
        loop_handle: LoopHandle,
        tree: Tree,
        parent: CallNode | None,
    ) -> CallNode:
        call = self.runtime.prepare(request, tree, parent)
        node = super()._make(id if call is None else call.id, request, loop_handle, tree, parent)
        if call is not None:
            self.runtime.accompany(node, call)
        return node

    @property
    def _agent_class(self) -> Callable[..., CallNode]:
        return ReplayedAgent


class ReplayRuntime(Runtime):
    """Plays one recording; ``play`` may be called once.

    Raises:
        InvalidValueError: the top-level function is not among *functions*.
        UsageError: the recording is of something that cannot be played.
    """

    _engine_class = ReplayEngine

    def __init__(
        self, functions: Iterable[Function], recording: Recording, hooks: Hooks | None, id: str
    ) -> None:
        super().__init__(functions, models=StandIns(), limits=Limits(_MANY), hooks=hooks)
        self.id = id
        self._decides = hooks is not None
        self._recording = recording
        self._engine.count_from(recording.root.id, recording.number)
        self._services.board = RecordedBoard(self._answer_for)
        self._services.pauses_on_tool_error = recording.pauses_on_tool_error
        self._order = ReplayOrder(recording.places, self._look)
        self._claimed: set[int] = set()  # the recorded calls that were made again
        self._resting: set[int] = set()  # the calls of which the recording does not tell the rest
        self._beyond: list[tuple[RecordedCall, Divergence]] = []  # calls that it does not tell of
        self._over = threading.Event()
        self.divergence: Divergence | None = None

    def play(self) -> CallNode:
        """Run the tree until it ends, diverges, or the recording ends; return its top-level node.

        It may still be running: close the runtime.
        """
        requested = self._recording.root.record.requested
        options = requested.options or CallOptions()
        function = self.invocable_functions.get(requested.function)
        if function is None:
            known = ", ".join(self.invocable_functions) or "none"
            raise InvalidValueError(
                f"what was recorded is a call of {requested.function}, which is not among the"
                f" functions that were given: {known}"
            )
        if options.passing:
            raise UsageError("a turn of a chat cannot be replayed: it depends on those before it")
        request = CallRequest(
            function, requested.inputs, model=options.model, budget=options.budget
        )
        root = self.get_ctx().start(request)
        root.asked_for = True
        self._over.wait()
        return root

    # Calls

    def prepare(
        self, request: CallRequest, tree: Tree, parent: CallNode | None
    ) -> RecordedCall | None:
        """Let what was recorded come of a call that is about to be made; return that, if any."""
        request.timeout = None  # time is not what it was
        tree.journal = self
        call = self._meet(request, parent)
        if call is None:
            above = None if parent is None else self._recording.calls.get(parent.id)
            request.gate = partial(self._rest, call=above)
        else:
            self._claimed.add(call.id)
            request.gate = self._gate(call, request)
        return call

    def accompany(self, node: CallNode, call: RecordedCall) -> None:
        """Compare what *node* does and comes to with the recorded *call*."""
        node.stable_id = call.record.requested.continues or call.id
        if isinstance(node, ReplayedAgent):
            node.play(call, partial(self._sent, node, call), partial(self._answered, node, call))
        node.add_end_callback(partial(self._ended, node, call))

    def _meet(self, request: CallRequest, parent: CallNode | None) -> RecordedCall | None:
        """Return the recorded call that *request* asks for, if there is one."""
        if parent is None:
            self._engine.count_from(max(self._recording.calls) + 1, self._recording.number + 1)
            return self._recording.root
        request.call_key = request.call_key or parent.key_of(request)
        above = self._recording.calls.get(parent.id)
        if above is None or self._over.is_set():
            return None
        found = above.calls.get(request.call_key) or self._alike(request, above)
        if found is None:
            self._meet_new(request, above)
            return None
        inputs = found.record.requested.inputs
        if request.tool_use_id is not None and not self._decides:
            request.args = inputs  # what a model asked for, or a hook has made of it
        if digest(dict(request.args)) != digest(dict(inputs)):
            name = request.function.name
            texts = call_text(name, inputs), call_text(name, request.args)
            self._diverge(
                found, "arguments that differ", *told_apart(*texts, (inputs, request.args))
            )
            return None
        return found

    def _alike(self, request: CallRequest, above: RecordedCall) -> RecordedCall | None:
        """Return the call with the same arguments, if those of the key were not written down."""
        name, key = request.function.name, request.call_key.partition("(")[0]
        if request.key is None:
            for one in self._left(above):
                same = one.function == name and one.record.requested.key.partition("(")[0] == key
                if same and digest(dict(one.record.requested.inputs)) == digest(dict(request.args)):
                    return one
        return None

    def _meet_new(self, request: CallRequest, above: RecordedCall) -> None:
        name = request.function.name
        left = [one for one in self._left(above) if one.function == name]
        divergence = Divergence(
            path=f"{above.record.path}.{len(above.calls) + 1}",
            function=name,
            what="a call that was not made before",
            expected=call_text(name, left[0].record.requested.inputs) if left else "",
            actual=call_text(name, request.args),
        )
        if above.ended is None or above.was_stopped:  # that may be why there is no such call
            self._beyond.append((above, divergence))
        else:
            self._stop(divergence)

    def _left(self, call: RecordedCall) -> list[RecordedCall]:
        """Return the calls that *call* made when it was recorded, and has not made again."""
        made = [one for one in call.calls.values() if not call.was_left(one)]
        return [one for one in made if one.id not in self._claimed]

    def _gate(self, call: RecordedCall, request: CallRequest) -> Gate | None:
        """Return what stands before a call: what was recorded of it, if it is not to run."""
        before, record = request.gate, call.record
        runs = _runs(request.function) and not call.is_given
        if runs and record.inputs is record.requested.inputs:
            return before

        async def answer(node: CallNode) -> Mapping[str, Any]:
            args = record.inputs if before is None else await before(node)
            return args if runs else await self._conclude(node, call)

        return answer

    async def _conclude(self, node: CallNode, call: RecordedCall) -> Never:
        """Let what was recorded come of *node*."""
        ended = call.ended
        if ended is None or call.end is None:
            await self._rest(node, call)
        for value in call.record.values:
            await node.send(value)
        if ended.state is NodeState.Canceled:
            await self._rest(node, call)
        if ended.exception is None:
            raise Concluded(restored(node.function.output_type, ended.outputs))
        error = recorded_exception(ended.exception)
        if node.function.ends_its_caller and node.parent is not None:
            node.parent.note_resignation(error)
        raise error

    # As the journal of the tree: it is where a call waits before others hear of its end

    def record(self, tree: int, *events: Event) -> None:
        """Write nothing down."""

    def stream(self, tree: int, event: Event) -> None:
        """Tell nobody: nobody looks on."""

    def redacted(self, text: str) -> str:
        """Return *text*, which is not written down."""
        return text

    redacts = is_closed = is_behind = False

    def as_written(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return *args*, which are not written down."""
        return dict(args)

    async def saved(self, node: CallNode) -> None:
        """Wait until it is the turn of *node* to end, if it is about to."""
        call = self._recording.calls.get(node.id)
        if node.concluded and call is not None and call.end is not None:
            await self._order.at(call.end)

    def suspend(self) -> None:
        """Write nothing down, as before."""

    # Comparing

    def _ended(self, node: CallNode, call: RecordedCall) -> None:
        """Compare what came of a call with what was recorded."""
        self._order.has_come(call.places)
        try:
            if call.ended is not None and not self._over.is_set():
                self._compare(node, call)
        finally:  # whatever cannot be shown
            if node.parent is None:
                self._over.set()

    def _compare(self, node: CallNode, call: RecordedCall) -> None:
        ended = call.ended
        assert ended is not None  # or there is nothing to compare
        cancelled = node.state is NodeState.Canceled and node.parent is not None
        if cancelled or ended.state is NodeState.Canceled:
            return  # a matter of time; what its caller made of it is compared
        raised = None if node.exception is None else Failure.of(node.exception)
        expected = outcome_text(ended.outputs, ended.exception)
        actual = outcome_text(node.outputs, raised)
        if raised != ended.exception:
            self._diverge(call, "an exception that differs", expected, actual)
        elif _runs(node.function) and not call.is_given and (left := self._left(call)):
            gone = left[0]
            text = call_text(gone.function, gone.record.requested.inputs)
            self._diverge(gone, "a call that is not made any more", text, "")
        elif isinstance(node, ReplayedAgent) and (asked := node.left_to_ask) is not None:
            text = inputs_text(asked.inputs)
            self._diverge(call, "a request that is not made any more", text, "")
        elif digest(node.outputs) != digest(ended.outputs):
            texts = told_apart(expected, actual, (ended.outputs, node.outputs))
            self._diverge(call, "an output that differs", *texts)

    # Requests

    async def _sent(
        self,
        node: ReplayedAgent,
        call: RecordedCall,
        system: str,
        functions: Sequence[str],
        inputs: Sequence[TranscriptPart],
    ) -> None:
        """Compare a request with the one that was recorded; return if it is the same."""
        asked, told = node.left_to_ask, inputs_text(inputs)
        if asked is None:
            if call.ended is not None and not call.was_stopped:
                self._diverge(call, "a request that was not made before", "", told)
            await self._rest(node, call)
        opened = asked.opened
        if system != opened.system:
            self._diverge(call, "a system prompt that differs", opened.system, system)
        elif set(functions) != set(opened.functions):
            texts = "\n".join(sorted(opened.functions)), "\n".join(sorted(functions))
            self._diverge(call, "functions that differ", *texts)
        elif tuple(inputs) != tuple(asked.inputs):
            texts = told_apart(inputs_text(asked.inputs), told, (asked.inputs, inputs))
            self._diverge(call, "a request that differs", *texts)
        if self._over.is_set() or asked.outcome is None:
            await self._rest(node, call)

    async def _answered(self, node: ReplayedAgent, call: RecordedCall) -> ResponseCompleted:
        asked = node.left_to_ask
        assert asked is not None  # or it would not have been sent
        assert asked.place is not None
        await self._order.at(asked.place)
        node.heard += 1
        if isinstance(asked.outcome, RequestFailed):
            failure = asked.outcome.failure
            if failure.type == asyncio.CancelledError.__name__:
                await self._stop_from_outside(call)
            raise recorded_exception(failure)
        assert asked.outcome is not None
        return asked.outcome

    # Questions

    def _answer_for(self, question: Question, settle: Callable[[Answer], None]) -> None:
        """Give the answer to *question* that was recorded, when it is time."""
        call = self._recording.calls[question.node_id]
        known = call.answer_to(question)
        if known is not None and known.place is not None and known.answer is not None:
            call.answers.remove(known)
            turn, answer = self._order.at(known.place), known.answer
            turn.add_done_callback(lambda turn: turn.cancelled() or settle(answer))
            return
        if known is None and call.ended is not None and not call.was_stopped:
            self._diverge(call, "a question that was not asked before", "", question.text)
        elif call.end is not None:
            turn = self._order.at(call.end)
            turn.add_done_callback(lambda turn: turn.cancelled() or self._cancel(call))
        self._resting.add(question.node_id)
        self._order.stir()

    # The end

    def _diverge(self, call: RecordedCall, what: str, expected: str, actual: str) -> None:
        self._stop(
            Divergence(
                path=call.record.path,
                function=call.function,
                what=what,
                expected=expected,
                actual=actual,
            )
        )

    def _stop(self, divergence: Divergence) -> None:
        """End the replay; the first divergence counts."""
        if not self._over.is_set():
            self.divergence = divergence
            self._over.set()
            for root in self._trees.roots:
                root.cancel_on_loop("the replay has gone another way than the recording")

    async def _stop_from_outside(self, call: RecordedCall) -> Never:
        """Stop what was stopped by a person, or by time, together with *call*."""
        first = call.stopped_first.stop
        if first is not None and first.cause is StopCause.Abandoned:  # its caller does so again
            await asyncio.sleep(call.stopped_first.seconds + _GRACE)
        self._cancel(call)
        return await _never()

    def _cancel(self, call: RecordedCall) -> None:
        call = call.stopped_first
        node = self._trees.find(call.id)
        failure = None if call.ended is None else call.ended.exception
        cause = StopCause.Cancelled if call.stop is None else call.stop.cause
        cancelled = call.ended is not None and call.ended.state is NodeState.Canceled
        if failure is None or (cancelled and call.ended_here):
            node.cancel_on_loop(call.reason, cause=cause)
        else:
            node.fail_with(recorded_exception(failure), call.reason, cause)

    async def _rest(self, node: CallNode, call: RecordedCall | None) -> Never:
        """Wait for the end of the replay: the recording does not tell what comes of *node*.

        If it does not because *call* was stopped, that is stopped when it is time.
        """
        if call is not None and call.end is not None and call.was_stopped:
            await self._order.at(call.end)
            await self._stop_from_outside(call)
        self._resting.add(node.id)
        self._order.stir()
        return await _never()

    def _look(self) -> None:
        """End the replay if nothing can go on without what was not recorded."""
        if self._over.is_set() or not self._resting:
            return
        for node in subtree(self._trees.find(self._recording.root.id)):
            waits = any(not child.has_ended for child in node.children)
            if not node.has_ended and not waits and node.id not in self._resting:
                node.loop_handle.loop.call_later(_AGAIN, self._order.stir)
                return
        for above, divergence in self._beyond:
            if self._left(above):
                self._stop(divergence)
        self._over.set()


def _runs(function: Function) -> bool:
    """Whether it runs in a replay: what it does itself cannot be seen outside."""
    return function.is_agent or bool(function.may_call) or isinstance(function, ReturnResult)


async def _never() -> Never:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nobody has settled it")
