"""``AgentConversation``: the conversation of an agent's call with its model, as agents see it.

``RunContext.conversation`` returns one. It belongs to the runtime, which sends the requests; this
module knows neither budgets nor journals.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from treefold.core.agent_errors import AgentException, BudgetExceeded
from treefold.core.agent_events import ConversationOpened, ResponseCompleted
from treefold.core.decisions import RuleChain
from treefold.core.epoch import Epoch
from treefold.core.function import Function, ModelFinder
from treefold.core.model import Model, ModelSettings, Session
from treefold.core.model_events import ModelEvent
from treefold.core.said import SaidMessage
from treefold.core.transcript import ToolResult, ToolUse, TranscriptPart, UserText

Inputs = Sequence[UserText | ToolResult]


@dataclass(slots=True, frozen=True, kw_only=True)
class PriorConversation:
    """The beginning of a conversation: what an earlier process, another call or a fork left.

    Attributes:
        said: the responses, with the exchanges that they completed.
        unsent: the inputs that are still to be sent.
        response: the last response, if it has not been acted on yet.
        is_begun: whether an earlier process has sent the first prompt.
        system: the system prompt, if an earlier process has opened the conversation, or a fork has
            edited it.
        prompt: the first prompt, if a fork has edited it.
        opened: how the conversation was opened last, if another call had opened it.
        offered: the names of the functions that it was opened with last.
    """

    said: Sequence[ResponseCompleted] = ()
    unsent: Inputs = ()
    response: ResponseCompleted | None = None
    is_begun: bool = False
    system: str | None = None
    prompt: str | None = None
    opened: ConversationOpened | None = None
    offered: Sequence[str] = ()


class AgentConversation(Protocol):  # noqa: PLR0904 - half of them are properties
    """The conversation of one call of an agent."""

    # What it begins with

    @property
    def prior(self) -> PriorConversation:
        """What an earlier process, another call or a fork left."""
        ...

    @property
    def handed_over(self) -> Any:
        """What the caller passed as the conversation to continue."""
        ...

    @property
    def model_ref(self) -> Any:
        """The model that was requested for this call only."""
        ...

    @property
    def model(self) -> str | None:
        """The name of the model that it was opened with last."""
        ...

    @property
    def models(self) -> ModelFinder:
        """The models of the runtime."""
        ...

    def find_model(self, model_ref: Any) -> Model:
        """Return the model that *model_ref* refers to; None is for the default of this call.

        Raises:
            InvalidValueError: it refers to no model.
            NoModelError: it is None, and there is no default.
        """
        ...

    def adopt(self, model: Model) -> Model:
        """Make *model* the default of agents below; return the model that answers in its place.

        That is *model* itself, except in a replay. Only chats use this: the model of an agent is
        found by its own name, and not the default of others.
        """
        ...

    # What applies to it

    @property
    def rules(self) -> RuleChain:
        """The rules for the calls that the model asks for, the widest first."""
        ...

    @property
    def is_below_agent(self) -> bool:
        """Whether the call was made below the call of another agent."""
        ...

    @property
    def decisions(self) -> Mapping[tuple[str, str], str]:
        """What decision hooks have had the model told instead; see ``HookDecided`` for the keys."""
        ...

    def note_decision(self, hook: str, key: str, text: str) -> None:
        """Record a decision, which is then not made again after a crash."""
        ...

    @property
    def pauses_on_provider_failure(self) -> bool:
        """Whether a failed request pauses the call instead of failing it."""
        ...

    @property
    def pauses_on_tool_error(self) -> bool:
        """Whether a failed call that the model asked for pauses the agent."""
        ...

    async def ask_for_more(self, exceeded: BudgetExceeded) -> bool:
        """Ask a person for a larger budget, if the runtime pauses for that; whether it did."""
        ...

    async def pause(self, why: str, key: str, choices: Sequence[str] = ()) -> str:
        """Pause the call until a person chooses how to continue: resume, or one of *choices*.

        Returns the choice. If it is to cancel, the call is cancelled and this does not return.
        """
        ...

    def made_args(self, tool_use_id: str) -> Mapping[str, Any] | None:
        """Return the arguments of a call that an earlier process was allowed to make, or None.

        The call is one of the last response, as is that of ``edited_args``.
        """
        ...

    def edited_args(self, tool_use_id: str) -> Mapping[str, Any] | None:
        """Return the arguments that a fork or a person substituted in a call, or None."""
        ...

    # What has happened

    @property
    def responses(self) -> int:
        """The number of the last response, as its event has it; 0 if there is none."""
        ...

    @property
    def said(self) -> Sequence[ResponseCompleted]:
        """All responses, those of a call that this one continues included."""
        ...

    @property
    def epoch(self) -> Epoch:
        """Where requests begin."""
        ...

    @property
    def transcript(self) -> Sequence[TranscriptPart]:
        """The transcript of all completed exchanges; callers must not change it."""
        ...

    @property
    def pending(self) -> Sequence[ToolUse]:
        """The calls of the last response, which have no results yet."""
        ...

    @property
    def notices(self) -> Sequence[str]:
        """Notices for the person who runs the agent."""
        ...

    @property
    def resignations(self) -> Sequence[AgentException]:
        """The exceptions by which the agent gave up; the same objects that were raised."""
        ...

    def now(self) -> float:
        """Return the time, as the events of the tree have it."""
        ...

    # How large it is, in tokens, as far as that can be told

    @property
    def window(self) -> int | None:
        """How many tokens a request and its answer may have; None if it is not known."""
        ...

    def learn_window(self, tokens: int) -> None:
        """Note the window that a provider has stated; it counts from the next opening on."""
        ...

    def size(self, inputs: Inputs) -> int:
        """Return the size of the next request, if it has these *inputs*."""
        ...

    def size_of(self, response: ResponseCompleted) -> int:
        """Return the size of the exchange of a response, which every request repeats."""
        ...

    @property
    def fixed_size(self) -> int:
        """The size of what precedes all messages: the system prompt and the functions."""
        ...

    def waiting_messages(self, *, is_idle: bool) -> Sequence[UserText]:
        """Return what people said and has not been sent; some only if the agent *is_idle*."""
        ...

    @property
    def messages(self) -> Sequence[SaidMessage]:
        """What people said to it while it ran."""
        ...

    # Talking

    def open(
        self,
        model: Model,
        system: str,
        functions: Sequence[Function],
        settings: ModelSettings,
        epoch: Epoch | None = None,
    ) -> None:
        """Open the conversation with *model*, or open it again; it continues what was said.

        Requests begin as *epoch* says (``Window.of``). None leaves them as they were, if that is
        possible: another model, system prompt or function begins an epoch without thinking.
        """
        ...

    def take_over(
        self,
        session: Session,
        model: Model,
        system: str,
        functions: Sequence[Function],
        settings: ModelSettings,
    ) -> None:
        """Continue *session*, which outlives this call; its past does not belong to the call."""
        ...

    async def with_caching(
        self, settings: ModelSettings, model: Model, functions: Sequence[Function]
    ) -> ModelSettings:
        """Return *settings* with a caching policy: an earlier process's, or one from past runs."""
        ...

    def begin(self, epoch: Epoch) -> None:
        """Open the conversation again as it was opened last, with an *epoch*."""
        ...

    def offer(self, functions: Sequence[Function]) -> None:
        """Open the conversation again with these *functions*, otherwise as it was opened last."""
        ...

    @property
    def is_replayed(self) -> bool:
        """Whether all of it is taken from a recording."""
        ...

    @property
    def replayed_epochs(self) -> Sequence[Epoch]:
        """The epochs that began after the last response in the recording."""
        ...

    def forbid_calls(self) -> None:
        """Reopen it so that the model can call no more functions."""
        ...

    async def request(
        self,
        *inputs: UserText | ToolResult,
        over_budget: bool = False,
        on_event: Callable[[ModelEvent], None] | None = None,
    ) -> ResponseCompleted:
        """Send *inputs* and return the response, after waiting until it may be sent.

        With *over_budget*, budgets that allow one last call are not checked. *on_event* is called
        with each event as it arrives; an exception that it raises ends the request.

        Raises:
            BudgetExceeded: it does not fit into a budget.
            ModelProviderException: the provider failed.
            ModelRefusedError: the provider or the model will not answer this.
        """
        ...

    def keep(self, text: str, *inputs: UserText | ToolResult) -> ResponseCompleted:
        """Record a response that was cut off after *text* as if it were complete.

        For chats, whose turn ends with it: a resumed loop takes it for the answer.
        """
        ...

    def finish(self) -> None:
        """Note that the agent has its answer: later runs choose their caching by its statistics."""
        ...
