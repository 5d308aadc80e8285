"""Create the spans of one tree from its events.

The span of a call is started with the call, so that it can be the parent of the spans below it, and
sent when the call has ended. The span of a request to a model has no children, and is created when
the request has ended. Only open calls are kept in memory.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from opentelemetry.trace import Link, Span, SpanKind

from treefold.core.agent_events import (
    ConversationOpened,
    RequestFailed,
    RequestRetried,
    RequestSent,
    ResponseCompleted,
)
from treefold.core.events import (
    CallEnded,
    CallInherited,
    CallPaused,
    CallReopened,
    CallRequested,
    CallResumed,
    CallStarted,
    Event,
    Failure,
    QuestionAsked,
    QuestionSettled,
    TreeForked,
)
from treefold.core.fact import replace
from treefold.core.states import NodeState
from treefold.core.usage import TokenUsage
from treefold.views import conventions
from treefold.views.conventions import Attributes
from treefold.views.journal_tracer import JournalTracer, link_to, nanoseconds, span_of

_CANCELLED: Final = "CancelledError"  # the failure of a request that was cancelled
_INTERRUPTED: Final = Failure("interrupted", "the process ended before the request did")


@dataclass(slots=True)
class _OpenRequest:
    """A request to a model that has not ended."""

    sent: RequestSent
    retries: list[RequestRetried] = field(default_factory=list[RequestRetried])


@dataclass(slots=True)
class _OpenCall:
    """A call that has not ended."""

    requested: CallRequested
    path: str
    key: str  # identifies its span
    span: Span | None = None  # once it has started
    began: float = 0.0
    model: Attributes = field(default_factory=Attributes)  # empty while it has none
    usage: TokenUsage = field(default_factory=TokenUsage)
    requests: int = 0
    request: _OpenRequest | None = None
    input_messages: str | None = None  # of the first request
    output_messages: str | None = None  # of the last response


class TreeSpans:
    """Creates the spans of one tree from its events, which are applied in order.

    Args:
        read_all: returns all events of the tree, from the first one.
        contents: whether texts and values are sent, too.
        since: nothing that ended before this time is sent.
    """

    def __init__(
        self,
        tree: int,
        tracer: JournalTracer,
        read_all: Callable[[], Iterable[Event]],
        *,
        contents: bool,
        since: float,
    ) -> None:
        self._tree = tree
        self._tracer = tracer
        self._read_all = read_all
        self._contents = contents
        self._since = since
        self._calls: dict[int, _OpenCall] = {}  # by node
        self._caller: Span | None = None  # was open in the program that made the top-level call
        self._forked_at = 0.0

    def apply(self, events: Sequence[Event]) -> None:
        """Apply the next *events*.

        Raises:
            InterruptedError: sending was abandoned.
        """
        forks = [n for n, event in enumerate(events) if isinstance(event, TreeForked)]
        fork = forks[-1] if forks else 0  # earlier events are of the tree that was forked
        self._inherit(events[:fork])
        if len(forks) > 1:  # that tree is a fork itself, and so has a trace of its own
            self._caller = None
        past = _ended_before(self._since, events[fork:])
        for event in events[fork:]:
            if event.node not in past:
                self._apply(event)

    def _apply(self, event: Event) -> None:
        if isinstance(event, CallRequested):
            self._add_call(event)
        elif isinstance(event, CallReopened) and event.node not in self._calls:
            self._reopen_call(event)
        elif event.node in self._calls:
            self._apply_to_call(self._calls[event.node], event)

    def _apply_to_call(self, call: _OpenCall, event: Event) -> None:
        match event:
            case TreeForked():
                self._forked_at = event.at
                link = link_to(self._ids(str(event.source), event.source))
                self._caller = None  # called the tree that was forked
                self._start_span(call, event.at, [link])
            case CallInherited():
                self._start_span(call, self._forked_at)
            case CallStarted() if call.span is None:
                self._start_span(call, event.at)
            case CallEnded():
                self._end_call(call, event)
            case ConversationOpened():
                self._open_conversation(call, event)
            case RequestSent():
                self._start_request(call, event)
            case RequestRetried():
                if call.request is not None:
                    call.request.retries.append(event)
            case RequestFailed() | ResponseCompleted():
                self._end_request(call, event)
            case _:
                self._add_span_event(call, event)

    # Calls

    def _add_call(self, event: CallRequested) -> _OpenCall:
        above = self._calls.get(event.parent or 0)
        path = str(event.index) if above is None else f"{above.path}.{event.index}"
        kept = event if self._contents else replace(event, inputs={})
        if event.parent is None and event.options is not None:
            self._caller = span_of(event.options.traceparent)
        call = self._calls[event.node] = _OpenCall(kept, path, str(event.node))
        return call

    def _inherit(self, events: Sequence[Event]) -> None:
        """Add the calls that are open in a fork: ended ones were sent with the forked tree."""
        past = _ended_before(float("inf"), events)
        for event in events:
            if event.node in past:
                continue
            match event:
                case CallRequested():
                    self._add_call(event)
                case ConversationOpened():
                    self._calls[event.node].model = _model_of(event)
                case RequestSent():
                    self._calls[event.node].requests += 1
                case _:
                    pass

    def _reopen_call(self, event: CallReopened) -> None:
        """Start a second span of a call: the first one has been sent."""
        for earlier in self._read_all():
            if isinstance(earlier, CallRequested) and earlier.node == event.node:
                call = self._add_call(earlier)
                link = link_to(self._ids(call.key))
                call.key = f"{call.key} again at {event.at!r}"
                self._start_span(call, event.at, [link])
                return

    def _start_span(self, call: _OpenCall, at: float, links: Sequence[Link] = ()) -> None:
        requested = call.requested
        attributes: Attributes = {
            **conventions.call_attributes(requested),
            "treefold.journal.id": self._tracer.journal,
            "treefold.tree.id": self._tree,
            "treefold.node.id": requested.node,
            "treefold.node.path": call.path,
        }
        attributes |= call.model  # of a call that continues in a fork
        if self._contents:
            given = conventions.value(dict(requested.inputs))
            attributes[_value_attribute(requested, "arguments")] = given
        above = self._calls.get(requested.parent or 0)
        name = conventions.span_name(requested)
        over = self._caller if above is None else above.span
        if above is None and over is not None and at < self._since:
            # An earlier process made the call, and its span will never end: link to it.
            over, links = None, [*links, Link(over.get_span_context())]
        ids = self._ids(call.key)
        call.span = self._tracer.start_span(name, ids, over, at, attributes, links)
        call.began = at

    def _ids(self, key: str, tree: int = 0) -> tuple[int, int]:
        """Return the ids of the trace of a tree, by default this one, and of a span in it."""
        trace, span = self._tracer.ids(tree or self._tree, key)
        caller = self._caller
        return (trace if caller is None else caller.get_span_context().trace_id), span

    def _end_call(self, call: _OpenCall, event: CallEnded) -> None:
        if call.span is None:  # it never started
            self._start_span(call, event.at)
        if call.request is not None:
            self._interrupt_request(call, call.request, event.at)
        del self._calls[event.node]
        if call.span is None or event.at < self._since:
            return
        attributes: Attributes = {"treefold.node.state": event.state.value}
        if call.requests and call.requested.is_agent:
            attributes |= conventions.usage_attributes(call.usage)
        for name, text in ("input", call.input_messages), ("output", call.output_messages):
            if text is not None:
                attributes[f"gen_ai.{name}.messages"] = text
        if self._contents and event.state is NodeState.Success:
            attributes[_value_attribute(call.requested, "result")] = conventions.value(
                event.outputs
            )
        call.span.set_attributes(attributes)
        at = max(event.at, call.began)  # the clock may have been set back meanwhile
        self._end_span(call.span, at, None if _is_cancelled(event) else event.exception)

    def _add_span_event(self, call: _OpenCall, event: Event) -> None:
        """Add an event to the span of a call."""
        known: Attributes = {}
        texts: dict[str, str] = {}
        match event:
            case CallPaused():
                name, texts = "treefold.paused", {"treefold.paused.reason": event.reason}
            case CallResumed():
                name = "treefold.resumed"
            case QuestionAsked():
                name, texts = "treefold.question", {"treefold.question.text": event.question.text}
                known = {"treefold.question.kind": event.question.kind.value}
            case QuestionSettled():
                name = "treefold.answer"
                if event.answer is not None:
                    texts = {"treefold.answer.text": event.answer.text}
            case _:
                return
        if self._contents:
            known |= {key: conventions.text(text) for key, text in texts.items()}
        if call.span is not None:
            call.span.add_event(name, known, nanoseconds(event.at))

    # Requests to models

    def _open_conversation(self, call: _OpenCall, event: ConversationOpened) -> None:
        call.model = _model_of(event)
        if call.span is not None:
            call.span.set_attributes(call.model)
            if self._contents and event.system:
                text = conventions.instructions(event.system)
                call.span.set_attribute("gen_ai.system_instructions", text)

    def _start_request(self, call: _OpenCall, event: RequestSent) -> None:
        if call.request is not None:
            self._interrupt_request(call, call.request, event.at)
        call.requests += 1
        call.request = _OpenRequest(event if self._contents else replace(event, inputs=()))
        if self._contents and call.input_messages is None:
            call.input_messages = conventions.input_messages(event.inputs)

    def _end_request(self, call: _OpenCall, event: RequestFailed | ResponseCompleted) -> None:
        request, call.request = call.request, None
        if request is None:  # the partial text of a cancelled request is a response, too
            return
        call.usage += event.usage
        if event.at < self._since:
            return
        attributes = conventions.usage_attributes(event.usage)
        if event.cost is not None:
            attributes["treefold.cost.usd"] = float(event.cost)
        if isinstance(event, RequestFailed):
            failure = None if event.failure.type == _CANCELLED else event.failure
            self._send_request_span(call, request, event.at, "error", attributes, failure)
            return
        attributes |= conventions.response_attributes(event)
        finish = event.exchange.finish
        if self._contents:
            call.output_messages = conventions.output_messages(event.parts, finish)
            attributes["gen_ai.output.messages"] = call.output_messages
        self._send_request_span(
            call, request, event.at, conventions.finish_reason(finish), attributes, None
        )

    def _interrupt_request(self, call: _OpenCall, request: _OpenRequest, seen: float) -> None:
        """End a request that has no further events; *seen* is when that was noticed."""
        call.request = None
        if seen >= self._since:
            at = request.retries[-1].at if request.retries else request.sent.at
            self._send_request_span(call, request, at, "error", {}, _INTERRUPTED)

    def _send_request_span(
        self,
        call: _OpenCall,
        request: _OpenRequest,
        at: float,
        reason: str,
        found: Attributes,
        failure: Failure | None,
    ) -> None:
        requested = call.requested
        attributes: Attributes = {
            "gen_ai.operation.name": "chat",
            **call.model,
            "gen_ai.request.stream": True,
            "gen_ai.response.finish_reasons": [reason],
            "treefold.node.id": requested.node,
            **found,
        }
        if requested.is_agent:
            attributes["gen_ai.agent.name"] = conventions.agent_name(requested)
        if self._contents:
            attributes["gen_ai.input.messages"] = conventions.input_messages(request.sent.inputs)
        ids = self._ids(f"{call.key} request {call.requests}")
        name = f"chat {call.model.get('gen_ai.request.model', 'unknown')}"
        began = request.sent.at
        span = self._tracer.start_span(
            name, ids, call.span, began, attributes, kind=SpanKind.CLIENT
        )
        for retry in request.retries:
            known = conventions.retry_attributes(retry)
            if self._contents:
                known["treefold.retry.message"] = conventions.text(retry.failure.message)
            span.add_event("treefold.retry", known, nanoseconds(retry.at))
        self._end_span(span, max(at, began), failure)

    def _end_span(self, span: Span, at: float, failure: Failure | None) -> None:
        if failure is None:
            self._tracer.end_span(span, at, None, None)
            return
        message = conventions.text(failure.message) if self._contents else None
        self._tracer.end_span(span, at, conventions.error_type(failure), message)


def _ended_before(since: float, events: Iterable[Event]) -> set[int]:
    """Return the nodes that ended before *since* and were not reopened."""
    found: set[int] = set()
    for event in events:
        if isinstance(event, CallEnded) and event.at < since:
            found.add(event.node)
        elif isinstance(event, CallReopened):
            found.discard(event.node)
    return found


def _model_of(event: ConversationOpened) -> Attributes:
    return conventions.model_attributes(event.model, event.address)


def _is_cancelled(event: CallEnded) -> bool:
    return event.state is NodeState.Canceled  # which was requested, and is not an error


def _value_attribute(requested: CallRequested, what: str) -> str:
    return f"treefold.node.{what}" if requested.is_agent else f"gen_ai.tool.call.{what}"
