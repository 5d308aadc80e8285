"""``ReplayRuntime``: runs a recorded tree again, and finds the first divergence.

Agents, and code that calls other functions, run. The results of other code, the responses of models
and the answers of people come from the recording. Calls are matched with recorded ones as recovery
does it: by their parent and key. Nothing is written, and nothing is sent.
"""

import asyncio
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Never

from treefold.agents.results import ReturnResult
from treefold.agents.task import LAST_CALL
from treefold.core.agent_errors import BudgetExceeded, UnknownPriceError
from treefold.core.agent_events import RequestFailed, ResponseCompleted
from treefold.core.arriving import Delta
from treefold.core.call_request import CallRequest, Concluded, Gate
from treefold.core.decisions import Hooks
from treefold.core.errors import InvalidValueError, UnknownQuestionError, UsageError
from treefold.core.events import CallOptions, Event, Failure, StopCause
from treefold.core.function import Function, Node, RunContext
from treefold.core.question import Answer, Question
from treefold.core.restoring import restored
from treefold.core.states import NodeState
from treefold.core.transcript import TranscriptPart, UserText
from treefold.core.value_codec import digest
from treefold.runtime.accounts import Accounts
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import subtree
from treefold.runtime.conversations.agent_node import AgentNode
from treefold.runtime.durable.tree_source import CountedTrees
from treefold.runtime.limits.limits import Limits
from treefold.runtime.runtime import Runtime
from treefold.runtime.trees.question_board import QuestionBoard
from treefold.runtime.trees.tree import Tree
from treefold.testing.divergence import (
    Divergence,
    call_text,
    distinct_texts,
    inputs_text,
    outcome_text,
)
from treefold.testing.recorded_model import PlaceholderNames, RecordedModel
from treefold.testing.recording import (
    RecordedCall,
    Recording,
    recorded_exception,
)
from treefold.testing.replay_order import ReplayOrder

_AGAIN: Final = 0.01  # seconds until the next check, while code is busy
_MANY: Final = 1_000_000  # requests at once: no limit, since none is really sent
_GRACE: Final = 1.0  # seconds that a caller may take longer than recorded to abandon a call


class ReplayRuntime(Runtime):
    """Replays one recording; ``play`` may be called once.

    Without *hooks*, recorded decisions about calls apply.
    """

    def __init__(
        self,
        functions: Iterable[Function],
        recording: Recording,
        hooks: Hooks | None,
        id: str,
        deps: object = None,
    ) -> None:
        models, limits = PlaceholderNames(), Limits(_MANY)
        super().__init__(
            functions, models=models, limits=limits, hooks=hooks, deps=deps, policy=self
        )
        self.id = id
        self._decides = hooks is not None
        self._recording = recording
        self._engine.source = CountedTrees(id=recording.root.id - 1, number=recording.number - 1)
        # Nothing is spent, and whether a request fitted into a budget was recorded.
        self._engine.accounts = NoAccounts(None, self._services.guarding, since=0.0)
        self._services.board = QuestionBoard(self._answer_for)
        self._services.pauses_on_tool_error = recording.pauses_on_tool_error
        self._order = ReplayOrder(recording.positions, self._end_if_stuck)
        self._claimed: set[int] = set()  # ids of recorded calls that were made again
        self._stuck: set[int] = set()  # ids of calls whose outcome was not recorded
        # Calls that were not recorded, perhaps only because their caller had not ended.
        self._unrecorded: list[tuple[RecordedCall, Divergence]] = []
        self._over = threading.Event()
        self.divergence: Divergence | None = None

    def play(self) -> CallNode:
        """Run the tree until it ends, diverges, or the recording ends; return its top-level node.

        The node may still be running then; close the runtime.

        Raises:
            InvalidValueError: the top-level function is not among *functions*.
            UsageError: the recording cannot be replayed.
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
        request = CallRequest(function, requested.inputs, model=options.model)
        root = self.get_ctx().start(request)
        root.asked_for = True
        self._over.wait()
        return root

    # The policy of the engine

    def admit(self, request: CallRequest, tree: Tree, parent: CallNode | None) -> int | None:
        """Match a call that is about to be made, and set its gate; return the recorded id."""
        # Calls in a replay take another time than recorded ones.
        request.timeout = None
        tree.journal = self
        call = self._match(request, parent)
        if call is None:
            above = None if parent is None else self._recording.calls.get(parent.id)
            request.gate = lambda ctx: self._wait_for_end(ctx.node, above)
            return None
        self._claimed.add(call.id)
        request.gate = self._gate(call, request)
        request.continues = call.record.requested.continues
        return call.id

    def made(self, node: CallNode) -> None:
        """Compare requests and end of *node* with those of the recorded call, if there is one."""
        call = self._recording.calls.get(node.id)
        if call is None:
            return
        if isinstance(node, AgentNode):
            sent, answered = partial(self._sent, node, call), partial(self._answered, call)
            talk = call.record.conversation
            window = talk.epochs[0].window if talk.epochs else None
            model = RecordedModel(talk.model or "a model", sent, answered, window)
            prompt = None if talk.edit is None else talk.edit.prompt
            decisions = None if self._decides else talk.decisions
            node.conversation.replay(
                model, prompt, decisions, talk.epochs, list((talk.messages or {}).values())
            )
        node.add_end_callback(partial(self._ended, node, call))

    # Calls

    def _match(self, request: CallRequest, parent: CallNode | None) -> RecordedCall | None:
        """Return the recorded call that matches *request*, if there is one."""
        if parent is None:
            highest = max(self._recording.calls)
            self._engine.source = CountedTrees(id=highest, number=self._recording.number)
            return self._recording.root
        request.call_key = request.call_key or parent.key_of(request)
        above = self._recording.calls.get(parent.id)
        if above is None or self._over.is_set():
            return None
        found = above.calls.get(request.call_key) or self._match_by_args(request, above)
        if found is None:
            self._add_unrecorded(request, above)
            return None
        inputs = found.record.requested.inputs
        if request.tool_use_id is not None and not self._decides:
            # The recorded arguments are those of the model, or what a hook changed them to.
            request.args = inputs
        if digest(dict(request.args)) != digest(dict(inputs)):
            name = request.function.name
            texts = call_text(name, inputs), call_text(name, request.args)
            self._diverge(
                found, "arguments that differ", *distinct_texts(*texts, (inputs, request.args))
            )
            return None
        return found

    def _match_by_args(self, request: CallRequest, above: RecordedCall) -> RecordedCall | None:
        """Return the recorded call with the same arguments but another key, if there is one.

        The arguments that a key was computed from may not be those that were written.
        """
        name, key = request.function.name, request.call_key.partition("(")[0]
        if request.key is None:
            for one in self._unclaimed(above):
                same = one.function == name and one.record.requested.key.partition("(")[0] == key
                if same and digest(dict(one.record.requested.inputs)) == digest(dict(request.args)):
                    return one
        return None

    def _add_unrecorded(self, request: CallRequest, above: RecordedCall) -> None:
        name = request.function.name
        left = [one for one in self._unclaimed(above) if one.function == name]
        divergence = Divergence(
            path=f"{above.record.path}.{len(above.calls) + 1}",
            function=name,
            what="a call that was not made before",
            expected=call_text(name, left[0].record.requested.inputs) if left else "",
            actual=call_text(name, request.args),
        )
        # The recording of a caller that did not end, or was stopped, may lack the call.
        if above.ended is None or above.was_stopped:
            self._unrecorded.append((above, divergence))
        else:
            self._stop(divergence)

    def _unclaimed(self, call: RecordedCall) -> list[RecordedCall]:
        """Return the recorded calls of *call* that were not made again yet."""
        made = [one for one in call.calls.values() if not call.was_unclaimed(one)]
        return [one for one in made if one.id not in self._claimed]

    def _gate(self, call: RecordedCall, request: CallRequest) -> Gate | None:
        """Return the gate of a call, which ends it as recorded unless its function runs."""
        before, record = request.gate, call.record
        runs = _runs(request.function) and not call.is_given
        if runs and not record.edited:
            return before

        async def answer(ctx: RunContext) -> Mapping[str, Any]:
            args = record.inputs if before is None else await before(ctx)
            return args if runs else await self._conclude(ctx, call)

        return answer

    async def _conclude(self, ctx: RunContext, call: RecordedCall) -> Never:
        """End the call of *ctx* as recorded."""
        node, ended = ctx.node, call.ended
        if ended is None or call.end is None:
            await self._wait_for_end(node, call)
        for value in call.record.values:
            await ctx.send(value)
        if ended.state is NodeState.Canceled:
            await self._wait_for_end(node, call)
        if ended.exception is None:
            raise Concluded(restored(node.function.output_type, ended.outputs))
        error = recorded_exception(ended.exception)
        if node.function.ends_its_caller and isinstance(node.parent, CallNode):
            node.parent.note_resignation(error)
        raise error

    # The interface of a tree's journal. A call waits for its journal before its end is published,
    # and here for its turn.

    def record(self, tree: int, *events: Event) -> None:
        """Do nothing: a replay is not recorded."""

    def stream(self, tree: int, node: int, delta: Delta) -> None:
        """Do nothing: a replay has no observers."""

    def length(self, node: int) -> int:
        """Return 0: a replay is not recorded."""
        return 0

    def redacted(self, text: str) -> str:
        """Return *text*, which is not written."""
        return text

    redacts = is_closed = is_behind = False
    path = None  # nothing is written

    def as_written(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return *args*, which are not written."""
        return dict(args)

    async def saved(self, node: Node) -> None:
        """Wait until it is the turn of *node* to end, if it is about to end."""
        call = self._recording.calls.get(node.id)
        is_ending = isinstance(node, CallNode) and node.is_concluded
        if is_ending and call is not None and call.end is not None:
            await self._order.at(call.end)

    async def confirmed(self) -> None:
        """Return at once: no other process runs a replay."""

    def suspend(self) -> None:
        """Do nothing: a replay is not recorded."""

    # Comparing

    def _ended(self, node: CallNode, call: RecordedCall) -> None:
        """Compare the end of a call with the recorded one."""
        self._order.mark_done(call.positions)
        try:
            if call.ended is not None and not self._over.is_set():
                self._compare(node, call)
        finally:
            # Values of foreign classes may make the comparison raise.
            if node.parent is None:
                self._over.set()

    def _compare(self, node: CallNode, call: RecordedCall) -> None:
        ended = call.ended
        assert ended is not None  # checked by the caller
        cancelled = node.state is NodeState.Canceled and node.parent is not None
        # Cancellation depends on time. The end of the caller is compared instead.
        if cancelled or ended.state is NodeState.Canceled:
            return
        raised = None if node.exception is None else Failure.of(node.exception)
        expected = outcome_text(ended.outputs, ended.exception)
        actual = outcome_text(node.outputs, raised)
        if raised != ended.exception:
            self._diverge(call, "an exception that differs", expected, actual)
        elif _runs(node.function) and not call.is_given and (left := self._unclaimed(call)):
            gone = left[0]
            text = call_text(gone.function, gone.record.requested.inputs)
            self._diverge(gone, "a call that is not made any more", text, "")
        elif (asked := call.next_request) is not None:
            text = inputs_text(asked.inputs)
            self._diverge(call, "a request that is not made any more", text, "")
        elif digest(node.outputs) != digest(ended.outputs):
            texts = distinct_texts(expected, actual, (ended.outputs, node.outputs))
            self._diverge(call, "an output that differs", *texts)

    # Requests

    async def _sent(
        self,
        node: CallNode,
        call: RecordedCall,
        system: str,
        functions: Sequence[str],
        inputs: Sequence[TranscriptPart],
    ) -> None:
        """Compare a request with the recorded one; return only if they are the same."""
        asked, text = call.next_request, inputs_text(inputs)
        if (refusal := _refusal(call, inputs)) is not None:
            raise refusal
        if asked is None:
            if call.ended is not None and not call.was_stopped:
                self._diverge(call, "a request that was not made before", "", text)
            await self._wait_for_end(node, call)
        opened, edit = asked.opened, call.record.conversation.edit
        # A fork may have changed the system prompt, at its beginning or later.
        is_edited = edit is not None and edit.system == opened.system
        if system != opened.system and not is_edited:
            self._diverge(call, "a system prompt that differs", opened.system, system)
        elif set(functions) != set(opened.functions):
            texts = "\n".join(sorted(opened.functions)), "\n".join(sorted(functions))
            self._diverge(call, "functions that differ", *texts)
        elif tuple(inputs) != tuple(asked.inputs):
            texts = distinct_texts(inputs_text(asked.inputs), text, (asked.inputs, inputs))
            self._diverge(call, "a request that differs", *texts)
        if self._over.is_set() or asked.outcome is None:
            await self._wait_for_end(node, call)

    async def _answered(self, call: RecordedCall) -> ResponseCompleted:
        asked = call.next_request
        assert asked is not None  # checked by _sent
        assert asked.position is not None
        await self._order.at(asked.position)
        call.finished_requests += 1
        if isinstance(asked.outcome, RequestFailed):
            failure = asked.outcome.failure
            if failure.type == asyncio.CancelledError.__name__:
                await self._stop_as_recorded(call)
            raise recorded_exception(failure)
        assert asked.outcome is not None
        return asked.outcome

    # Questions

    def _answer_for(self, question: Question) -> None:
        """Give the recorded answer to *question* when it is its turn."""
        call = self._recording.calls[question.node_id]
        known = call.answer_to(question)
        if known is not None and known.position is not None and known.answer is not None:
            call.answers.remove(known)
            turn, answer = self._order.at(known.position), known.answer
            turn.add_done_callback(lambda turn: turn.cancelled() or self._give(question, answer))
            return
        if known is None and call.ended is not None and not call.was_stopped:
            self._diverge(call, "a question that was not asked before", "", question.text)
        elif call.end is not None:
            turn = self._order.at(call.end)
            turn.add_done_callback(lambda turn: turn.cancelled() or self._cancel(call))
        self._stuck.add(question.node_id)
        self._order.note_progress()

    def _give(self, question: Question, answer: Answer) -> None:
        # The question may have been withdrawn meanwhile.
        with suppress(UnknownQuestionError):
            self._services.board.settle(question.id, answer)

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

    async def _stop_as_recorded(self, call: RecordedCall) -> Never:
        """Stop the calls that were stopped together with *call*, by a person or a time limit."""
        first = call.stopped_first.stop
        # If the caller abandoned the call, it probably does so again; wait for that.
        if first is not None and first.cause is StopCause.Abandoned:
            await asyncio.sleep(call.stopped_first.seconds + _GRACE)
        self._cancel(call)
        return await _never()

    def _cancel(self, call: RecordedCall) -> None:
        call = call.stopped_first
        node = self._engine.find(call.id)
        failure = None if call.ended is None else call.ended.exception
        cause = StopCause.Cancelled if call.stop is None else call.stop.cause
        cancelled = call.ended is not None and call.ended.state is NodeState.Canceled
        if failure is None or (cancelled and call.ended_here):
            node.cancel_on_loop(call.reason, cause=cause)
        else:
            node.fail_with(recorded_exception(failure), call.reason, cause)

    async def _wait_for_end(self, node: Node, call: RecordedCall | None) -> Never:
        """Wait for the end of the replay: the outcome of *node* was not recorded.

        If the reason is that *call* was stopped, stop it when it is its turn.
        """
        if call is not None and call.end is not None and call.was_stopped:
            await self._order.at(call.end)
            await self._stop_as_recorded(call)
        self._stuck.add(node.id)
        self._order.note_progress()
        return await _never()

    def _end_if_stuck(self) -> None:
        """End the replay if every open call waits for an outcome that was not recorded."""
        if self._over.is_set() or not self._stuck:
            return
        for node in subtree(self._engine.find(self._recording.root.id)):
            waits = any(not child.has_ended for child in node.children)
            if not node.has_ended and not waits and node.id not in self._stuck:
                node.loop_handle.loop.call_later(_AGAIN, self._order.note_progress)
                return
        for above, divergence in self._unrecorded:
            if self._unclaimed(above):
                self._stop(divergence)
        self._over.set()


def _refusal(call: RecordedCall, inputs: Sequence[TranscriptPart]) -> Exception | SystemExit | None:
    """Return the error with which a request was refused before it was sent, if it was.

    A request that exceeded a budget may have been followed by a last one.
    """
    asked, failure = call.next_request, None if call.ended is None else call.ended.exception
    kind = "" if failure is None else failure.type
    if asked is None:
        is_refused = failure is not None and kind == UnknownPriceError.__name__
        return recorded_exception(failure) if failure is not None and is_refused else None
    if tuple(asked.inputs) != (*inputs, UserText(LAST_CALL)):
        return None
    if failure is None or kind != BudgetExceeded.__name__:
        return BudgetExceeded("as recorded", last_call=True)
    error = recorded_exception(failure)
    assert isinstance(error, BudgetExceeded)  # its class is loaded
    error.last_call = True
    return error


class NoAccounts(Accounts):
    """Opens no accounts: a request fits into every budget."""

    def open_new(self, node: CallNode, request: CallRequest) -> None:
        pass


def _runs(function: Function) -> bool:
    """Whether *function* runs in a replay, because it has no effects of its own."""
    return function.is_agent or bool(function.may_call) or isinstance(function, ReturnResult)


async def _never() -> Never:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("the future is never done")
