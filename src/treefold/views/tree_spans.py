"""The spans of one tree, made from its events.

The span of a call begins with the call, so that those below it can name it, and is sent when the
call has ended. That of a request to a model is made when the request has ended, since there is
nothing below it. Keeps what is open, and nothing else.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
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
from treefold.core.states import NodeState
from treefold.core.usage import TokenUsage
from treefold.views import conventions
from treefold.views.conventions import Attributes
from treefold.views.span_maker import SpanMaker, nanoseconds

_LEFT: Final = "CancelledError"  # what a request fails with that nobody waits for any longer
_INTERRUPTED: Final = Failure("interrupted", "the process ended before the request did")


@dataclass(slots=True)
class _Request:
    """One to a model that has not ended."""

    sent: RequestSent
    retries: list[RequestRetried] = field(default_factory=list[RequestRetried])


@dataclass(slots=True)
class _Call:
    """One that has not ended."""

    requested: CallRequested
    path: str
    key: str  # what its span is found by
    span: Span | None = None  # when it has begun
    began: float = 0.0
    model: str = ""
    usage: TokenUsage = field(default_factory=TokenUsage)
    requests: int = 0
    request: _Request | None = None
    told: str | None = None  # what it was told first, and said last
    said: str | None = None


class TreeSpans:
    """Takes in the events of one tree, in order, and makes its spans.

    Args:
        recall: gives all events of the tree, from the first one on.
        contents: whether texts and values are sent, too.
        since: what ended before that time is not sent.
    """

    def __init__(
        self,
        tree: int,
        maker: SpanMaker,
        recall: Callable[[], Iterable[Event]],
        *,
        contents: bool,
        since: float,
    ) -> None:
        self._tree = tree
        self._maker = maker
        self._recall = recall
        self._contents = contents
        self._since = since
        self._calls: dict[int, _Call] = {}  # by node
        self._forked_at = 0.0

    def take(self, events: Sequence[Event]) -> None:
        """Take in what happened next.

        Raises:
            InterruptedError: nobody waits for spans any longer.
        """
        forks = [n for n, event in enumerate(events) if isinstance(event, TreeForked)]
        fork = forks[-1] if forks else 0  # those before are of the trees that it comes from
        self._inherit(events[:fork])
        past = _ended_before(self._since, events[fork:])
        for event in events[fork:]:
            if event.node not in past:
                self._take(event)

    def _take(self, event: Event) -> None:
        if isinstance(event, CallRequested):
            self._ask_for(event)
        elif isinstance(event, CallReopened) and event.node not in self._calls:
            self._reopen(event)
        elif event.node in self._calls:
            self._take_of_call(self._calls[event.node], event)

    def _take_of_call(self, call: _Call, event: Event) -> None:
        match event:
            case TreeForked():
                self._forked_at = event.at
                link = self._maker.link(event.source, str(event.source))
                self._start(call, event.at, [link])
            case CallInherited():
                self._start(call, self._forked_at)
            case CallStarted() if call.span is None:
                self._start(call, event.at)
            case CallEnded():
                self._end(call, event)
            case ConversationOpened():
                self._converse(call, event)
            case RequestSent():
                self._send(call, event)
            case RequestRetried():
                if call.request is not None:
                    call.request.retries.append(event)
            case RequestFailed() | ResponseCompleted():
                self._answer(call, event)
            case _:
                self._note(call, event)

    # Calls

    def _ask_for(self, event: CallRequested) -> _Call:
        above = self._calls.get(event.parent or 0)
        path = str(event.index) if above is None else f"{above.path}.{event.index}"
        kept = event if self._contents else replace(event, inputs={})
        call = self._calls[event.node] = _Call(kept, path, str(event.node))
        return call

    def _inherit(self, events: Sequence[Event]) -> None:
        """Know the calls that are open in a fork: what has ended was sent with the other tree."""
        past = _ended_before(float("inf"), events)
        for event in events:
            if event.node in past:
                continue
            match event:
                case CallRequested():
                    self._ask_for(event)
                case ConversationOpened():
                    self._calls[event.node].model = event.model
                case RequestSent():
                    self._calls[event.node].requests += 1
                case _:
                    pass

    def _reopen(self, event: CallReopened) -> None:
        """Begin a second span of a call: the first one has been sent."""
        for earlier in self._recall():
            if isinstance(earlier, CallRequested) and earlier.node == event.node:
                call = self._ask_for(earlier)
                link = self._maker.link(self._tree, call.key)
                call.key = f"{call.key} again at {event.at!r}"
                self._start(call, event.at, [link])
                return

    def _start(self, call: _Call, at: float, links: Sequence[Link] = ()) -> None:
        requested = call.requested
        attributes: Attributes = {
            **conventions.attributes_of(requested),
            "treefold.journal.id": self._maker.journal,
            "treefold.tree.id": self._tree,
            "treefold.node.id": requested.node,
            "treefold.node.path": call.path,
        }
        if call.model:  # of a call that goes on in a fork
            attributes |= conventions.model_attributes(call.model)
        if self._contents:
            given = conventions.value(dict(requested.inputs))
            attributes[_name_of_value(requested, "arguments")] = given
        above = self._calls.get(requested.parent or 0)
        ids = self._maker.ids(self._tree, call.key)
        name = conventions.name_of(requested)
        over = None if above is None else above.span
        call.span = self._maker.begin(name, ids, over, at, attributes, links)
        call.began = at

    def _end(self, call: _Call, event: CallEnded) -> None:
        if call.span is None:  # it never began
            self._start(call, event.at)
        if call.request is not None:
            self._interrupt(call, call.request, event.at)
        del self._calls[event.node]
        if call.span is None or event.at < self._since:
            return
        attributes: Attributes = {"treefold.node.state": event.state.value}
        if call.requests and call.requested.is_agent:
            attributes |= conventions.usage_attributes(call.usage)
        for name, text in ("input", call.told), ("output", call.said):
            if text is not None:
                attributes[f"gen_ai.{name}.messages"] = text
        if self._contents and event.state is NodeState.Success:
            attributes[_name_of_value(call.requested, "result")] = conventions.value(event.outputs)
        call.span.set_attributes(attributes)
        at = max(event.at, call.began)  # somebody may have set the clock back meanwhile
        self._finish(call.span, at, None if _is_cancelled(event) else event.exception)

    def _note(self, call: _Call, event: Event) -> None:
        """Put something on the span that happened meanwhile."""
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

    def _converse(self, call: _Call, event: ConversationOpened) -> None:
        call.model = event.model
        if call.span is not None:
            call.span.set_attributes(conventions.model_attributes(event.model))
            if self._contents and event.system:
                told = conventions.instructions(event.system)
                call.span.set_attribute("gen_ai.system_instructions", told)

    def _send(self, call: _Call, event: RequestSent) -> None:
        if call.request is not None:
            self._interrupt(call, call.request, event.at)
        call.requests += 1
        call.request = _Request(event if self._contents else replace(event, inputs=()))
        if self._contents and call.told is None:
            call.told = conventions.input_messages(event.inputs)

    def _answer(self, call: _Call, event: RequestFailed | ResponseCompleted) -> None:
        request, call.request = call.request, None
        if request is None:  # what was left of a response is kept as if it were all of it
            return
        call.usage += event.usage
        if event.at < self._since:
            return
        attributes = conventions.usage_attributes(event.usage)
        if event.cost is not None:
            attributes["treefold.cost.usd"] = float(event.cost)
        if isinstance(event, RequestFailed):
            failure = None if event.failure.type == _LEFT else event.failure
            self._make(call, request, event.at, "error", attributes, failure)
            return
        finish = event.exchange.finish
        if self._contents:
            call.said = conventions.output_messages(event.parts, finish)
            attributes["gen_ai.output.messages"] = call.said
        self._make(call, request, event.at, conventions.reason_of(finish), attributes, None)

    def _interrupt(self, call: _Call, request: _Request, seen: float) -> None:
        """End a request of which nothing more was heard, as was seen at that time."""
        call.request = None
        if seen >= self._since:
            at = request.retries[-1].at if request.retries else request.sent.at
            self._make(call, request, at, "error", {}, _INTERRUPTED)

    def _make(
        self,
        call: _Call,
        request: _Request,
        at: float,
        reason: str,
        found: Attributes,
        failure: Failure | None,
    ) -> None:
        requested, model = call.requested, conventions.model_attributes(call.model)
        attributes: Attributes = {
            "gen_ai.operation.name": "chat",
            **model,
            "gen_ai.request.stream": True,
            "gen_ai.response.finish_reasons": [reason],
            "treefold.node.id": requested.node,
            **found,
        }
        if requested.is_agent:
            attributes["gen_ai.agent.name"] = conventions.agent_name(requested)
        if self._contents:
            attributes["gen_ai.input.messages"] = conventions.input_messages(request.sent.inputs)
        ids = self._maker.ids(self._tree, f"{call.key} request {call.requests}")
        name = f"chat {model['gen_ai.request.model']}"
        began = request.sent.at
        span = self._maker.begin(name, ids, call.span, began, attributes, kind=SpanKind.CLIENT)
        for retry in request.retries:
            known = conventions.retry_attributes(retry)
            if self._contents:
                known["treefold.retry.message"] = conventions.text(retry.failure.message)
            span.add_event("treefold.retry", known, nanoseconds(retry.at))
        self._finish(span, max(at, began), failure)

    def _finish(self, span: Span, at: float, failure: Failure | None) -> None:
        if failure is None:
            self._maker.end(span, at, None, None)
            return
        message = conventions.text(failure.message) if self._contents else None
        self._maker.end(span, at, conventions.error_type(failure), message)


def _ended_before(since: float, events: Iterable[Event]) -> set[int]:
    """Return the nodes that had ended by then, and are not open again."""
    found: set[int] = set()
    for event in events:
        if isinstance(event, CallEnded) and event.at < since:
            found.add(event.node)
        elif isinstance(event, CallReopened):
            found.discard(event.node)
    return found


def _is_cancelled(event: CallEnded) -> bool:
    return event.state is NodeState.Canceled  # which is no error: somebody wanted it


def _name_of_value(requested: CallRequested, what: str) -> str:
    return f"treefold.node.{what}" if requested.is_agent else f"gen_ai.tool.call.{what}"
