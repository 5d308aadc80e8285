"""``NodeView``: an immutable snapshot of a call, made from events by ``core.snapshot``."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from msgspec import field

from treefold.core.display import Displayed
from treefold.core.events import Failure
from treefold.core.fact import HIDDEN, Fact, fields_of
from treefold.core.json_form import LIMIT, json_form
from treefold.core.phases import Phase
from treefold.core.question import Question
from treefold.core.said import SaidMessage
from treefold.core.states import NodeState
from treefold.core.transcript import TranscriptPart
from treefold.core.usage import NO_COST, NO_USAGE, TokenUsage


class NodeView(Displayed, Fact, frozen=True, kw_only=True):
    """An immutable snapshot of one call and all calls below it.

    Attributes:
        is_agent: whether its function is an agent.
        version: of its function; two calls with the same version run the same code, prompts and
            tools. Empty without a journal.
        sequence: the number of the call; calls asked for in parallel share one.
        usage: the tokens of its own requests; ``total_usage`` includes all calls below it.
        cost: US dollars, None if a price is not known; ``total_cost`` likewise.
        values: the values that the call sent before its end.
        system: the system prompt of its model.
        transcript: the conversation with its model.
        questions: its open questions.
        messages: what people said to it while it ran, and whether that has arrived.
        update_seqnum: the number of the last event of the tree that concerned it or a call below.
        partial: the text so far of a response that is still arriving.
        partial_output: the typed result (``returns=``) as far as the model has written it, as plain
            data; None if it has not begun, or is complete.
        status: what it is doing or waiting for; empty when it has ended.
        held_back: what the process lacks that opened the journal last and does not run this tree,
            such as a hook that guards it; empty if it is not held back.
        inert: whether its tree was imported, and no person has resumed it since; a process that
            opens the journal does not run it.
        notices: messages for the person who runs the tree.
        phases: when it was queued, waited for its model or a person, or no process ran it.
        interrupted_at: the time of the last event of its tree, if the call is open and the process
            that ran it has ended; ``views.liveness`` sets it.

    Example:
        >>> from treefold import CodeFunction, Runtime
        >>> def add(ctx, a: int, b: int) -> int:
        ...     return a + b
        >>> with Runtime() as runtime:
        ...     node = runtime.invoke(CodeFunction(callable=add), {"a": 1, "b": 2})
        ...     node.result()
        ...     view = runtime.get_view(node.id)
        3
        >>> view.fn, dict(view.inputs), view.outputs, view.state.value
        ('add', {'a': 1, 'b': 2}, 3, 'success')
    """

    id: int
    path: str
    fn: str = field(name="function")
    inputs: Mapping[str, Any]
    outputs: Any
    exception: Failure | None
    state: NodeState
    values: tuple[Any, ...]
    children: "tuple[NodeView, ...]"
    sequence: int
    is_agent: bool = False
    version: str = ""
    tool_use_id: str | None = None
    model: str | None = None
    system: str = ""
    transcript: tuple[TranscriptPart, ...] = ()
    partial: str = ""
    partial_output: Any = None
    usage: TokenUsage = NO_USAGE
    total_usage: TokenUsage = NO_USAGE
    cost: Decimal | None = NO_COST
    total_cost: Decimal | None = NO_COST
    status: str = ""
    held_back: str = ""
    inert: bool = False
    notices: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()
    messages: tuple[SaidMessage, ...] = ()
    started_at: datetime | None
    ended_at: datetime | None
    update_seqnum: int
    phases: Annotated[tuple[Phase, ...], HIDDEN] = ()
    interrupted_at: datetime | None = None

    def __repr__(self) -> str:
        """Show each call below it in short: a tree may be deeper than Python can recurse."""
        below = ", ".join(f"<NodeView {one.path} {one.fn} {one.state}>" for one in self.children)
        shown = [
            f"{one.name}=({below})"
            if one.name == "children"
            else f"{one.name}={getattr(self, one.name)!r}"
            for one in fields_of(type(self))
        ]
        return f"NodeView({', '.join(shown)})"

    def to_json(self, *, limit: int | None = LIMIT) -> dict[str, Any]:
        """Return the call, and all calls below it, as JSON data.

        Texts and values are cut after *limit* characters each; docs/reference/events.md describes
        the rest.
        """
        return json_form(self, limit)
