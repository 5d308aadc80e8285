"""The conversation of an agent's call with its model, one request at a time."""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from decimal import Decimal
from functools import partial
from typing import Any, Final

from treefold.core.agent_errors import AgentException, BudgetExceeded
from treefold.core.agent_events import (
    ConversationOpened,
    HookDecided,
    MessagePosted,
    NoticeGiven,
    RequestFailed,
    RequestRetried,
    RequestSent,
    ResponseCompleted,
)
from treefold.core.call_keys import of_tool_use
from treefold.core.conversation import Inputs, PriorConversation
from treefold.core.decisions import RuleChain
from treefold.core.epoch import FIRST, Epoch
from treefold.core.errors import (
    InvalidValueError,
    ModelProviderException,
    UsageError,
)
from treefold.core.events import Failure
from treefold.core.fact import replace
from treefold.core.function import Function, ModelFinder
from treefold.core.model import Caching, Model, ModelSettings, Session, before_attempt
from treefold.core.model_events import (
    AttemptFailed,
    ModelEvent,
    Noticed,
    ResponseStarted,
    TextDelta,
    TextWasThinking,
    ThinkingDelta,
    ToolUseDelta,
)
from treefold.core.record import ConversationRecord
from treefold.core.said import SaidMessage, When
from treefold.core.transcript import ToolResult, ToolUse, TranscriptPart, UserText
from treefold.core.usage import TokenUsage
from treefold.core.window import Window
from treefold.models.caching import RUNS, PastRun, caching_policy, depends_on_past
from treefold.models.reopening import prefix_of, reopen
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import root_of, upwards
from treefold.runtime.calls.ways_out import way_out
from treefold.runtime.conversations.admission import admitted, price_if_known
from treefold.runtime.conversations.opened import Measured, Opened, size_of
from treefold.runtime.conversations.partial_output import PartialOutput
from treefold.runtime.loops.loop_handle import settle
from treefold.runtime.questions.ask import ask_to_resume
from treefold.runtime.questions.more_budget import ask_for_more
from treefold.runtime.services import Services

_LONG: Final = 16_384  # characters of a response


class Conversation:  # noqa: PLR0904 - half of the public methods are properties
    """The conversation of one call of an agent, as ``AgentConversation`` describes it.

    What was said is in the record of the call. Each ``request`` waits until it may be sent, is
    charged to the budgets of all calls above, and is published to the tree.
    """

    def __init__(
        self, node: CallNode, services: Services, above: "Conversation | None" = None
    ) -> None:
        self._node = node
        self._services = services
        self._above = above  # that of the nearest agent above
        self._opened: Opened | None = None
        self._prior: PriorConversation | None = None
        self._rules: RuleChain | None = None
        self._substitute: Model | None = None  # answers instead of every other model
        self._replayed: Mapping[tuple[str, str], str] | None = None  # decisions, in a replay
        self._replayed_epochs: Sequence[Epoch] | None = None  # the same
        self._replayed_messages: Sequence[SaidMessage] = ()  # the same
        self.notices: list[str] = []
        # They are compared by identity: their node ids prove nothing, since other runtimes use the
        # same ids.
        self.resignations: list[AgentException] = []
        self._default_model: Model | None = None  # for agents below that name no model
        self._unsent: tuple[UserText | ToolResult, ...] = ()  # to be sent again on resume
        self._sent_at = 0.0  # when the last request was sent
        self._first_chunk: float | None = None  # seconds until its response began to arrive
        self._charged = TokenUsage()  # the part of the session's usage that has been charged
        # Done when the model begins to answer.
        self.is_requesting = False  # whether a request is under way
        self._is_finished = False  # the agent has its answer
        self._answering = node.loop_handle.loop.create_future()
        node.add_end_callback(partial(settle, self._answering))
        if node.record.conversation.responses:  # the model has answered in an earlier process
            settle(self._answering)

    @property
    def transcript(self) -> Sequence[TranscriptPart]:
        return self._node.record.conversation.transcript

    @property
    def responses(self) -> int:
        # A call that continues the conversation of another one counts on.
        earlier = self._earlier
        return self._node.record.conversation.step or (earlier[-1].step if earlier else 0)

    @property
    def _earlier(self) -> Sequence[ResponseCompleted]:
        """What was said in the call whose conversation this one continues."""
        given = self._node.request.prior
        return given.said if isinstance(given, PriorConversation) else ()

    @property
    def said(self) -> Sequence[ResponseCompleted]:
        return [*self._earlier, *self._node.record.conversation.responses]

    @property
    def epoch(self) -> Epoch:
        last = self._last_opening
        return FIRST if last is None else last.epoch

    # What it begins with

    @property
    def prior(self) -> PriorConversation:
        # The record changes with each request; this is what it was before the first.
        if self._prior is None:
            self._prior = self._find_prior()
        return self._prior

    def _find_prior(self) -> PriorConversation:
        record = self._node.record.conversation
        opened = record.opened
        prompt = None if record.edit is None else record.edit.prompt
        system = None if record.edit is None else record.edit.system
        if record.responses or record.unanswered:  # in an earlier process
            return PriorConversation(
                said=tuple(record.responses),
                unsent=_inputs(record),
                response=record.response,
                is_begun=True,
                system=opened.system if system is None and opened is not None else system,
                prompt=prompt,
                offered=() if opened is None else opened.functions,
            )
        if system is None and opened is not None:
            # An earlier process has opened it, and has not sent anything yet.
            system = opened.system
        given = self._node.request.prior
        prior = given if isinstance(given, PriorConversation) else PriorConversation()
        offered = () if opened is None else opened.functions
        return dataclasses.replace(prior, system=system, prompt=prompt, offered=offered)

    @property
    def handed_over(self) -> Any:
        return self._node.request.prior

    def continuation(self) -> Any:
        """Return what another call needs to continue this conversation."""
        if self._opened is None:
            return self.handed_over
        return PriorConversation(said=self.said, unsent=self._unsent, opened=self._last_opening)

    # Models and rules

    @property
    def model(self) -> str | None:
        """The name of its model."""
        return self._node.record.conversation.model

    @property
    def model_ref(self) -> Any:
        edit = self._node.record.conversation.edit
        return self._node.request.model if edit is None or edit.model is None else edit.model

    @property
    def models(self) -> ModelFinder:
        return self._services.models

    def find_model(self, model_ref: Any) -> Model:
        if self._substitute is not None:
            return self._substitute
        above: Conversation | None = self
        while model_ref is None and above is not None:
            model_ref, above = above._default_model, above._above
        models = self._services.models
        if models.is_unchosen(model_ref) and self.model is not None:
            # A conversation of an earlier process continues with its own model.
            with suppress(InvalidValueError):
                return models.find(self.model)
        return models.find(model_ref)

    def adopt(self, model: Model) -> Model:
        self._default_model = model
        return model if self._substitute is None else self._substitute

    def replay(
        self,
        model: Model,
        prompt: str | None,
        decisions: Mapping[tuple[str, str], str] | None = None,
        epochs: Sequence[Epoch] = (),
        messages: Sequence[SaidMessage] = (),
    ) -> None:
        """Let *model* answer instead of every other model, and begin with *prompt* if given.

        *decisions* are those of hooks, which are not asked then; *epochs* are those that began, and
        *messages* what people said.
        """
        self._substitute = model
        self._replayed = decisions
        self._replayed_epochs = epochs
        self._replayed_messages = messages
        self._prior = dataclasses.replace(self.prior, prompt=prompt)

    @property
    def is_replayed(self) -> bool:
        return self._replayed_epochs is not None

    @property
    def replayed_epochs(self) -> Sequence[Epoch]:
        return [one for one in self._replayed_epochs or () if one.bare == self.responses]

    async def with_caching(
        self, settings: ModelSettings, model: Model, functions: Sequence[Function]
    ) -> ModelSettings:
        if settings.caching is not None:
            return settings
        opened = self._node.record.conversation.opened
        if opened is not None and opened.model == model.name:
            return dataclasses.replace(settings, caching=Caching(opened.caching))
        past: Sequence[Sequence[float]] = ()
        if depends_on_past(functions):
            name = self._node.record.requested.function
            past = await self._services.past_runs.of(name, RUNS)
        return dataclasses.replace(
            settings, caching=caching_policy(functions, list(map(PastRun, past)))
        )

    @property
    def rules(self) -> RuleChain:
        # They are first read while the call runs, and the requests above it stay the same then.
        if self._rules is None:
            above = [node.request for node in reversed(upwards(self._node))]
            levels = above[0].levels
            levels = (self._services.guarding.rules,) if levels is None else levels
            own = [request.rules for request in above if request.rules is not None]
            self._rules = RuleChain((*levels, *own))
        return self._rules

    @property
    def is_below_agent(self) -> bool:
        return self._above is not None

    @property
    def decisions(self) -> Mapping[tuple[str, str], str]:
        recorded = self._node.record.conversation.decisions
        return recorded if self._replayed is None else self._replayed

    def note_decision(self, hook: str, key: str, text: str) -> None:
        self._node.tree.publish(HookDecided(self._node.id, hook, key, text))

    @property
    def pauses_on_provider_failure(self) -> bool:
        return self._services.pauses_on_provider_failure

    @property
    def pauses_on_tool_error(self) -> bool:
        return self._services.pauses_on_tool_error

    def made_args(self, tool_use_id: str) -> Mapping[str, Any] | None:
        known = self._node.calls.unclaimed.get(of_tool_use(self.responses, tool_use_id))
        # A call starts before its gate, which may still be waiting for a person.
        if known is None or known.record.started is None or not known.record.allowed:
            return None
        return None if known.record.foreign else known.inputs

    def edited_args(self, tool_use_id: str) -> Mapping[str, Any] | None:
        calls = self._node.child_calls
        if calls is None or not calls.unclaimed:
            return None
        known = calls.unclaimed.get(of_tool_use(self.responses, tool_use_id))
        return None if known is None or not known.record.edited else known.inputs

    async def pause(self, why: str, key: str, choices: Sequence[str] = ()) -> str:
        return await ask_to_resume(self._node, why, key, choices)

    async def ask_for_more(self, exceeded: BudgetExceeded) -> bool:
        account = exceeded.account
        # Time that is over stops a call whatever it waits for.
        if not self._services.pauses_on_budget or account is None or account.seconds_left() == 0:
            return False
        await ask_for_more(self._node, account, exceeded.limit)
        return True

    # Opening it

    def open(
        self,
        model: Model,
        system: str,
        functions: Sequence[Function],
        settings: ModelSettings,
        epoch: Epoch | None = None,
    ) -> None:
        prefix = prefix_of(system, functions, settings)
        window = Window.of(self.said, epoch or self._epoch(model, system, prefix))
        session = reopen(model, system, functions, settings, window)
        said = tuple([part for parts in window.parts for part in parts])
        measured = Measured(window.exchanges, window.epoch.head)
        opened = Opened(session, model, system, functions, settings, measured)
        self._begin(opened, said, window.epoch, prefix)

    @property
    def _last_opening(self) -> ConversationOpened | None:
        """How it was opened last: by this call, or by the one whose conversation it continues."""
        given = self._node.request.prior
        opened = self._node.record.conversation.opened
        return given.opened if opened is None and isinstance(given, PriorConversation) else opened

    def _epoch(self, model: Model, system: str, prefix: str) -> Epoch:
        """Return the epoch that continues with *model* and what precedes all messages."""
        last, window = self._last_opening, self._services.windows.get(model.name)
        window = window or model.context_window
        if last is None:
            return Epoch(window=window)
        if (last.model, last.prefix) == (model.name, prefix):
            return last.epoch
        if not self.said:
            return replace(last.epoch, window=window)
        if last.model != model.name:
            why = f"another model: {model.name}"
        else:
            why = "another system prompt" if last.system != system else "other functions"
        return replace(last.epoch, why=why, bare=self.responses, window=window)

    def begin(self, epoch: Epoch) -> None:
        opened = self._get_opened()
        self.open(opened.model, opened.system, opened.functions, opened.settings, epoch)

    def offer(self, functions: Sequence[Function]) -> None:
        opened = self._get_opened()
        self.open(opened.model, opened.system, functions, opened.settings)

    def forbid_calls(self) -> None:
        opened = self._get_opened()
        settings = dataclasses.replace(opened.settings, call_functions=False)
        self.open(opened.model, opened.system, opened.functions, settings)

    def take_over(
        self,
        session: Session,
        model: Model,
        system: str,
        functions: Sequence[Function],
        settings: ModelSettings,
    ) -> None:
        measured = Measured(session.exchanges)
        self._begin(Opened(session, model, system, functions, settings, measured))

    def _begin(
        self,
        opened: Opened,
        transcript: tuple[TranscriptPart, ...] = (),
        epoch: Epoch = FIRST,
        prefix: str = "",
    ) -> None:
        """Publish that the conversation is open; *transcript* is what it continues."""
        # An earlier process, or this one with other settings, had opened it before.
        continues = self._node.record.conversation.opened is not None
        self._opened = opened
        self._charged = opened.session.usage
        caching = opened.settings.caching or Caching.NONE
        self._node.tree.publish(
            ConversationOpened(
                self._node.id,
                opened.model.name,
                opened.system,
                tuple(function.name for function in opened.functions),
                caching.value,
                () if continues else transcript,
                continues,
                opened.model.address,
                epoch,
                prefix,
            )
        )

    def _get_opened(self) -> Opened:
        if self._opened is None:
            raise UsageError(f"{self._node!r} has not begun a conversation")
        return self._opened

    def now(self) -> float:
        return self._node.tree.now()

    # What people say to it

    @property
    def messages(self) -> Sequence[SaidMessage]:
        return list((self._node.record.conversation.messages or {}).values())

    def waiting_messages(self, *, is_idle: bool) -> Sequence[UserText]:
        waiting = [one for one in self.messages if one.step is None]
        # A replay has them where they were delivered.
        waiting += [one for one in self._replayed_messages if one.step == self.responses + 1]
        return [UserText(one.text, one.id) for one in waiting if is_idle or one.when is When.NEXT]

    def say(self, said: SaidMessage) -> None:
        """Have a message delivered with a later request, once for each id.

        Raises:
            UsageError: it is too late.
        """
        node = self._node
        if said.id in (node.record.conversation.messages or {}):
            return  # the command was executed before
        if node.is_concluded or self._is_finished:
            raise UsageError(f"{node!r} has ended; it is too late to say something to it")
        now = node.tree.now()
        node.tree.publish(MessagePosted(node.id, now, said.id, said.text, said.when))

    # How large it is

    @property
    def window(self) -> int | None:
        return self.epoch.window

    def learn_window(self, tokens: int) -> None:
        self._services.windows[self._get_opened().model.name] = tokens

    def size(self, inputs: Inputs) -> int:
        return self._get_opened().size(inputs)

    def size_of(self, response: ResponseCompleted) -> int:
        return size_of(response.exchange)

    @property
    def fixed_size(self) -> int:
        return self._get_opened().fixed_size

    # Requests

    @property
    def pending(self) -> Sequence[ToolUse]:
        return () if self._opened is None else self._opened.session.pending

    def when_answering(self, wake: Callable[[], None]) -> None:
        """Call *wake* when the model has begun to answer, or the call has ended."""
        self._answering.add_done_callback(lambda _: wake())

    async def request(
        self,
        *inputs: UserText | ToolResult,
        over_budget: bool = False,
        on_event: Callable[[ModelEvent], None] | None = None,
    ) -> ResponseCompleted:
        opened, node = self._get_opened(), self._node
        self._unsent = inputs
        async with admitted(
            node, self._services, opened, inputs, over_budget=over_budget
        ) as admission:
            node.tree.publish(RequestSent(node.id, node.tree.now(), inputs))
            self.is_requesting = True
            self._sent_at, self._first_chunk = time.monotonic(), None
            failure: Failure | None = None
            paths = {
                one.name: one.result_path for one in opened.functions if one.result_path is not None
            }
            output = PartialOutput(paths) if paths else None
            token = before_attempt.set(admission.confirm)
            try:
                async with aclosing(opened.session.send(*inputs)) as events:
                    async for event in events:
                        self._note(event)
                        if output and (found := output.find(event)) is not None:
                            node.tree.stream(node.id, found)
                        if on_event is not None:
                            on_event(event)
            except BaseException as error:
                failure = Failure.of(error)
                if isinstance(error, ModelProviderException):
                    error.remedy = way_out(root_of(node))
                raise
            finally:
                before_attempt.reset(token)
                self.is_requesting = False
                usage, cost = self._take_usage(opened, failed=failure is not None)
                admission.usage, admission.cost = usage, cost
                if failure is not None:
                    failed = RequestFailed(node.id, node.tree.now(), failure, usage, cost)
                    node.tree.publish(failed)
        completed = self._complete(opened.session, usage, cost)
        if sum(map(len, completed.exchange.received)) > _LONG:
            await asyncio.sleep(0)  # others run before its calls are made, which takes as long
        return completed

    def keep(self, text: str, *inputs: UserText | ToolResult) -> ResponseCompleted:
        session = self._get_opened().session
        session.keep(text, *inputs)
        self._first_chunk = None
        return self._complete(session, TokenUsage(), Decimal(0))

    def _complete(
        self, session: Session, usage: TokenUsage, cost: Decimal | None
    ) -> ResponseCompleted:
        node, exchanges = self._node, session.exchanges
        parts = tuple(session.parts(len(exchanges) - 1))
        self._get_opened().measured.add(exchanges[-1])
        self._unsent = ()
        completed = ResponseCompleted(
            node.id,
            node.tree.now(),
            exchanges[-1],
            parts,
            usage,
            cost,
            self.responses + 1,
            self._first_chunk,
        )
        node.tree.publish(completed)
        return completed

    def _note(self, event: ModelEvent) -> None:
        node = self._node
        match event:
            case Noticed():
                self.notices.append(event.text)
                node.tree.publish(NoticeGiven(node.id, event.text))
            case AttemptFailed():
                self._first_chunk = None
                node.tree.publish(
                    RequestRetried(
                        node.id, node.tree.now(), event.attempt, event.failure, event.wait
                    )
                )
            case ResponseStarted():
                pass  # there is no text yet
            case _:
                if self._first_chunk is None:
                    self._first_chunk = round(time.monotonic() - self._sent_at, 6)
                if not self._answering.done():
                    self._answering.set_result(None)
                if isinstance(event, TextDelta | ThinkingDelta | TextWasThinking | ToolUseDelta):
                    # For observers: the complete response is published.
                    node.tree.stream(node.id, event)

    def _take_usage(self, opened: Opened, *, failed: bool) -> tuple[TokenUsage, Decimal | None]:
        """Return the usage and the cost of the last request."""
        total = opened.session.usage
        usage, self._charged = total - self._charged, total
        if failed and not usage.total:
            return usage, Decimal(0)
        return usage, price_if_known(usage, opened.model)

    def finish(self) -> None:
        self._is_finished = True
        name = self._node.record.requested.function
        starts = [child.started_at for child in self._node.record.children]
        times = [start.timestamp() for start in starts if start is not None]
        self._services.past_runs.add(name, times, RUNS)


def _inputs(record: ConversationRecord) -> tuple[UserText | ToolResult, ...]:
    return tuple([part for part in record.unanswered if isinstance(part, UserText | ToolResult)])
