"""The call of an agent: its conversation with a model, one request at a time."""

import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Final

from treefold.core.agent_errors import AgentException, UnknownPriceError
from treefold.core.agent_events import (
    ConversationOpened,
    LeaseAwaited,
    NoticeGiven,
    RequestFailed,
    RequestRetried,
    RequestSent,
    ResponseCompleted,
    ResponseStreamed,
)
from treefold.core.call_keys import is_past, used
from treefold.core.decisions import RuleChain
from treefold.core.errors import OtherProtocolError, UsageError
from treefold.core.events import Failure
from treefold.core.exchange import Exchange, Finish
from treefold.core.fold import Record
from treefold.core.function import Function
from treefold.core.model import Caching, Model, ModelSettings, Session
from treefold.core.model_events import (
    AttemptFailed,
    ModelEvent,
    Noticed,
    PartCompleted,
    ResponseEnded,
    ResponseStarted,
)
from treefold.core.transcript import ToolResult, TranscriptPart, UserText
from treefold.core.usage import TokenUsage
from treefold.models.prices import price
from treefold.runtime.call_request import CallRequest
from treefold.runtime.calls.budgets import Account, Estimate, Spent, check, set_aside
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import root_of, upwards
from treefold.runtime.limits.leases import take_lease, usable_lease
from treefold.runtime.loops.loop_handle import LoopHandle, settle
from treefold.runtime.questions.pauses import pause_over, wait_while_paused
from treefold.runtime.services import Services
from treefold.runtime.trees.tree import Tree

log = logging.getLogger(__name__)

_CHARACTERS_PER_TOKEN: Final = 4  # about


@dataclass(frozen=True, slots=True)
class Past:
    """A conversation to continue: its exchanges, and the inputs that are still to be sent."""

    exchanges: Sequence[Exchange]
    unsent: Sequence[UserText | ToolResult]
    response: ResponseCompleted | None = None  # the last one, if it has not been acted on yet


class AgentNode(CallNode):  # noqa: PLR0904 - most of the public methods are properties
    """Call tree: one call of an AgentFunction, with its conversation.

    It is not the agent: that is the AgentFunction, which can be called many times.

    Example:
        >>> from treefold import AgentFunction, AgentNode, Runtime
        >>> from treefold.testing import ScriptedModel
        >>> greet = AgentFunction("greet", "Greet.", user_prompt_template="Say hello.")
        >>> with Runtime([greet], models=ScriptedModel("Hello!")) as runtime:
        ...     node = runtime.invoke(greet)
        ...     node.result(), isinstance(node, AgentNode)
        ('Hello!', True)
        >>> node.get_transcript()
        [UserText(text='Say hello.'), ModelText(text='Hello!')]
    """

    __slots__ = (
        "_accounted",
        "_first",
        "_has_conversed",
        "_model",
        "_own",
        "_parts",
        "_session",
        "_system",
        "_unanswered",
        "_unsent",
        "default_model",
        "notices",
        "resignations",
        "responses",
        "services",
    )

    def __init__(
        self,
        id: int,
        request: CallRequest,
        *,
        parent: CallNode | None,
        tree: Tree,
        loop_handle: LoopHandle,
        services: Services,
        record: Record | None = None,
    ) -> None:
        self.responses = 0  # how many it has received
        board = services.board
        super().__init__(
            id,
            request,
            parent=parent,
            tree=tree,
            loop_handle=loop_handle,
            board=board,
            record=record,
        )
        self.services = services
        self.default_model: Model | None = None  # for agents below it that name none
        self.notices: list[str] = []  # for the person who runs this
        # The exceptions by which it gave up (raise_exception). They are compared by identity:
        # their node ids prove nothing, since other runtimes use the same ids.
        self.resignations: list[AgentException] = []
        self._model: Model | None = None
        self._session: Session | None = None
        self._parts: list[TranscriptPart] = []  # the transcript of all completed exchanges
        self._has_conversed = False  # it has opened a conversation
        self._system = 0  # characters of the system prompt
        self._own = Spent()
        self._accounted = TokenUsage()  # the part of the session's usage that has been charged
        self._unsent: tuple[UserText | ToolResult, ...] = ()  # to be sent again on resume
        self._unanswered: tuple[UserText | ToolResult, ...] = ()  # sent, without a response yet
        self._first = loop_handle.loop.create_future()  # done when the model begins to answer
        self.add_end_callback(partial(settle, self._first))
        if record is not None:
            self._parts, self._unanswered = list(record.transcript), _inputs(record)
            self._own = Spent(record.usage, record.cost)
            if record.exchanges:  # the model has answered in an earlier process
                settle(self._first)

    def _restore(self, record: Record) -> None:
        self.responses = len(record.exchanges)
        super()._restore(record)

    def may_make_again(self, key: str) -> bool:
        # The calls of the last response are made again unless their results have been sent.
        all_answered = self.record is None or self.record.response is None
        return super().may_make_again(key) and not is_past(key, self.responses + all_answered)

    def note_resignation(self, error: BaseException | None) -> None:
        if isinstance(error, AgentException):
            self.resignations.append(error)

    def _content_key(self, request: CallRequest) -> str:
        if request.tool_use_id is None:
            return super()._content_key(request)
        return used(self.responses, request.tool_use_id)

    def edited_args(self, tool_use_id: str) -> Mapping[str, Any] | None:
        """Return the arguments that a fork substitutes in a call the model asked for, or None."""
        known = self.unclaimed.get(used(self.responses, tool_use_id))
        record = None if known is None else known.record
        if record is None or record.started_at is not None:
            return None
        return None if record.inputs is record.requested.inputs else record.inputs

    # What it is

    @property
    def model(self) -> str | None:
        """The name of the model that it talks to."""
        if self._model is not None:
            return self._model.name
        return None if self.record is None else self.record.model

    @property
    def usage(self) -> TokenUsage:
        return self._own.usage

    @property
    def cost(self) -> Decimal | None:
        return self._own.cost

    @property
    def said(self) -> Sequence[TranscriptPart]:
        """The transcript of all completed exchanges; a live list that callers must not change."""
        return self._parts

    def get_transcript(self) -> list[TranscriptPart]:
        return [*self.said, *self._unanswered]

    @property
    def call_times(self) -> list[float]:
        """The start times of its calls, as timestamps; those of earlier processes included."""
        starts = [child.started_at for child in self.children]
        return [start.timestamp() for start in starts if start is not None]

    @property
    def model_ref(self) -> Any:
        """The model that was requested for this call only."""
        edit = None if self.record is None else self.record.edit
        return self._request.model if edit is None or edit.model is None else edit.model

    @property
    def edited_prompt(self) -> str | None:
        """The first prompt, if a fork has edited it."""
        edit = None if self.record is None else self.record.edit
        return None if edit is None else edit.prompt

    @property
    def knows_all(self) -> bool:
        record = self.record
        return record is not None and bool(record.exchanges or record.said)

    @property
    def known_system(self) -> str | None:
        """The system prompt of a conversation that an earlier process has begun."""
        record = self.record
        return record.system if record is not None and self.knows_all else None

    def find_model(self, model_ref: Any) -> Model:
        """Return the model that *model_ref* refers to; None is for the default of this call.

        Raises:
            InvalidValueError: it refers to no model.
        """
        if model_ref is None:
            above = [node.default_model for node in upwards(self) if isinstance(node, AgentNode)]
            model_ref = next((model for model in above if model is not None), None)
        return self.services.models.find(model_ref)

    def in_place_of(self, model: Model) -> Model:
        """Return the model that answers instead of *model*; a replay overrides this."""
        return model

    @property
    def rule_chain(self) -> RuleChain:
        """The rules for the calls that its model asks for, the widest first."""
        own = [node.rules for node in upwards(self) if node.rules is not None]
        return RuleChain((self.services.rules, *reversed(own)))

    @property
    def past(self) -> Past | None:
        """The conversation that it continues, from an earlier process or another call."""
        record = self.record
        if record is None or not self.knows_all:
            return self._request.past
        return Past(record.exchanges, _inputs(record), record.response)

    @property
    def handed_over(self) -> Any:
        """The conversation that its caller passed, without what an earlier process added to it."""
        return self._request.past

    def caching_with(self, model: Model) -> Caching | None:
        """Return the caching that an earlier process used with *model*, or None."""
        record = self.record
        if record is None or record.caching is None or record.model != model.name:
            return None
        return Caching(record.caching)

    def continuation(self) -> CallRequest:
        """Return the request for a call that continues the conversation of this one."""
        past = self._request.past
        if self._session is not None:
            past = Past(tuple(self._session.exchanges), self._unsent)
        return CallRequest(
            self.function,
            self.inputs,
            self._request.timeout,
            model=self._request.model,
            budget=self._request.budget,
            rules=self._request.rules,
            past=past,
        )

    def when_answering(self, wake: Callable[[], None]) -> None:
        """Call *wake* when the model has begun to answer, or the call has ended."""
        self._first.add_done_callback(lambda _: wake())

    # The conversation

    def converse(
        self,
        model: Model,
        system: str,
        functions: Sequence[Function],
        settings: ModelSettings,
        exchanges: Sequence[Exchange] = (),
    ) -> Session:
        """Open a conversation, or reopen the same one with other settings."""
        try:
            session = model.open(system, functions, settings, exchanges=exchanges)
        except OtherProtocolError:
            session = _translated(model, system, functions, settings, exchanges)
        self._parts = list(session.transcript)
        self.responses = len(session.exchanges)
        self.take_up(session, model, system, functions, settings)
        return session

    def take_up(
        self,
        session: Session,
        model: Model,
        system: str,
        functions: Sequence[Function],
        settings: ModelSettings,
    ) -> None:
        """Continue *session*, which outlives this call; its past does not belong to the call."""
        self._model = model
        self._session = session
        self._system = len(system)
        self._accounted = session.usage
        names = tuple(function.name for function in functions)
        caching = Caching.NONE if settings.caching is None else settings.caching
        continues = self._has_conversed or self.record is not None
        self._has_conversed = True
        said = () if continues else tuple(self._parts)
        self.tree.publish(
            ConversationOpened(self.id, model.name, system, names, caching.value, said, continues)
        )

    async def request(
        self,
        *inputs: UserText | ToolResult,
        over_budget: bool = False,
        on_event: Callable[[ModelEvent], None] | None = None,
    ) -> ResponseCompleted:
        """Send *inputs* and return the response, after waiting for pauses, a lease and a slot.

        With *over_budget*, budgets that allow one last call are not checked. *on_event* is called
        with each event as it arrives; an exception that it raises ends the request.

        Raises:
            BudgetExceeded: it does not fit into a budget.
            ModelProviderException: the provider failed.
            ModelRefusedError: the provider or the model will not answer this.
        """
        model, session = self._opened()
        self._unsent = inputs
        async with self._allowed_to_ask(model):
            accounts = [account for node in upwards(self) for account in node.accounts]
            estimate = self._estimate(inputs, accounts)
            strict = [a for a in accounts if not (over_budget and a.budget.last_call)]
            check(strict, estimate, root_of(self))
            set_aside(accounts, estimate)
            self._unanswered = inputs
            self.tree.publish(RequestSent(self.id, time.time(), inputs))
            failure: Failure | None = None
            try:
                async with aclosing(session.send(*inputs)) as events:
                    async for event in events:
                        self._note(event)
                        if on_event is not None:
                            on_event(event)
            except BaseException as error:
                failure = Failure.of(error)
                raise
            finally:
                usage, cost = self._charge(accounts, estimate, failed=failure is not None)
                if failure is not None:
                    failed = RequestFailed(self.id, time.time(), failure, usage, cost)
                    self.tree.publish_instead(failed)
        return self._complete(session, usage, cost)

    def keep(self, text: str, *inputs: UserText | ToolResult) -> ResponseCompleted:
        """Record a response that was cut off after *text* as if it were complete."""
        _, session = self._opened()
        session.keep(text, *inputs)
        return self._complete(session, TokenUsage(), Decimal(0))

    def _complete(
        self, session: Session, usage: TokenUsage, cost: Decimal | None
    ) -> ResponseCompleted:
        exchange = session.exchanges[-1]
        parts = tuple(session.parts(len(session.exchanges) - 1))
        self._parts += parts
        self.responses += 1
        self._unsent = self._unanswered = ()
        completed = ResponseCompleted(self.id, time.time(), exchange, parts, usage, cost)
        self.tree.publish_instead(completed)
        return completed

    def _opened(self) -> tuple[Model, Session]:
        if self._model is None or self._session is None:
            raise UsageError(f"{self!r} has not begun a conversation")
        return self._model, self._session

    @asynccontextmanager
    async def _allowed_to_ask(self, model: Model) -> AsyncGenerator[None, None]:
        """Wait until no pause holds the call, and hold a lease and a slot of the provider."""
        limits = self.services.limits
        pool = limits.pools.get(model.provider)
        while True:
            await wait_while_paused(self)
            if limits.pool.is_full and usable_lease(self) is None:
                self.tree.publish(LeaseAwaited(self.id))
            await take_lease(self, limits.pool)
            if pool is not None:
                await pool.take()
            if pause_over(self) is None:
                break
            # It was paused while it waited for the slot.
            if pool is not None:
                pool.put_back()
        try:
            yield
        finally:
            if pool is not None:
                pool.put_back()

    def _note(self, event: ModelEvent) -> None:
        match event:
            case Noticed():
                self.notices.append(event.text)
                self.tree.publish(NoticeGiven(self.id, event.text))
            case AttemptFailed():
                self.tree.publish_instead(
                    RequestRetried(self.id, time.time(), event.attempt, event.failure, event.wait)
                )
            case ResponseStarted():
                pass  # there is no text yet
            case PartCompleted() | ResponseEnded():
                settle(self._first)
            case _:
                settle(self._first)
                self.tree.publish_live(ResponseStreamed(self.id, event))

    def _estimate(
        self, inputs: Sequence[UserText | ToolResult], accounts: Sequence[Account]
    ) -> Estimate:
        """Estimate the next request: the whole conversation is sent again, with *inputs*."""
        model, session = self._opened()
        new = sum(len(p.text if isinstance(p, UserText) else p.content) for p in inputs)
        if not session.exchanges:
            new += self._system
        usage = TokenUsage(input=new // _CHARACTERS_PER_TOKEN + 1)
        if session.exchanges:
            usage += session.exchanges[-1].usage
        cost: Decimal | None = None
        if any(account.budget.usd is not None for account in accounts):
            cost = price(usage, model)
            if cost is None:
                raise UnknownPriceError(
                    f"{model.name} has no known price, so a budget in US dollars cannot be kept:"
                    " give one in tokens, or tell the model what it costs (price=)"
                )
        return Estimate(usage.total, cost)

    def _charge(
        self, accounts: Sequence[Account], estimate: Estimate, *, failed: bool
    ) -> tuple[TokenUsage, Decimal | None]:
        """Add the usage of a request to this call, to every call above and to *accounts*."""
        model, session = self._opened()
        usage = session.usage - self._accounted
        cost = Decimal(0) if failed and not usage.total else _price_if_known(usage, model)
        self._accounted = session.usage
        self._own.add(usage, cost)
        for node in upwards(self):
            node.spent = node.spent or Spent()
            node.spent.add(usage, cost)
        for account in accounts:
            account.charge(estimate, usage, cost)
        return usage, cost


def _translated(
    model: Model,
    system: str,
    functions: Sequence[Function],
    settings: ModelSettings,
    exchanges: Sequence[Exchange],
) -> Session:
    """Open a conversation that continues exchanges with another provider's model."""
    from treefold.models.reading import to_plain  # noqa: PLC0415 - knows every protocol

    session = model.open(system, functions, settings, exchanges=to_plain(exchanges))
    if exchanges[-1].finish is Finish.TOOL_USE and not session.pending:
        raise UsageError(
            f"{model.name} cannot take over the calls that another model asked for last: continue"
            " from an earlier response"
        )
    return session


def _inputs(record: Record) -> tuple[UserText | ToolResult, ...]:
    return tuple([part for part in record.said if isinstance(part, UserText | ToolResult)])


def _price_if_known(usage: TokenUsage, model: Model) -> Decimal | None:
    try:
        return price(usage, model)
    # Foreign code may raise anything, and the usage has to be recorded all the same.
    except Exception:
        log.exception("the price of %s cannot be told", model.name)
        return None
