"""``Task``: what a model is to do in one call of an agent, and how an agent has it done."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from treefold.agents.approval import approve_prompt, continuation
from treefold.agents.bounds import READ_RESULT, Bounds, ReadResult
from treefold.agents.calls import Calls, MadeCall, error_text
from treefold.agents.compactor import Compactor
from treefold.agents.loop import Loop, provider_faults
from treefold.agents.results import ResultType, ReturnResult
from treefold.agents.substitutes import Substitutes
from treefold.core.agent_errors import BudgetExceeded, NoAnswerError, StepLimitError
from treefold.core.agent_events import ResponseCompleted
from treefold.core.compaction import Compaction
from treefold.core.conversation import AgentConversation, Inputs, PriorConversation
from treefold.core.errors import InvalidArgumentsError, ModelProviderException
from treefold.core.exchange import Finish
from treefold.core.function import Function, RunContext
from treefold.core.messages import Message, messages_of
from treefold.core.model import Model, ModelSettings
from treefold.core.suggestions import did_you_mean
from treefold.core.transcript import ModelText, ToolResult, ToolUse, UserText
from treefold.core.verdict import Verdict
from treefold.models.failover import Failover

_REMINDERS: Final = 2  # after a response without a usable answer
_EMPTY: Final = "You said nothing. Give your answer."
_NO_RESULT: Final = "{fault}. Call the function return_result with the result of your task."
_NO_JSON: Final = "{fault}. Answer with JSON of the schema that you were given, and nothing else."
LAST_CALL: Final = (
    "The budget for this task is used up, and you can call no more functions. Answer now, with what"
    " you have, and say what is missing."
)


@dataclass(slots=True, frozen=True, kw_only=True)
class Task:
    """The task of an agent in one call."""

    model: Model
    system: str
    prompt: str
    functions: Sequence[Function]
    settings: ModelSettings
    result: ResultType | None  # None: the last text of the model
    max_steps: int
    parallel_tools: bool
    compaction: Compaction | None = None
    summarize: Function | None = None  # used by it
    is_piece: bool = False  # if it is too long, whoever gave it makes it smaller
    # The models that may go on with it, *model* among them, and what each is opened with.
    models: Sequence[Model] = ()
    retry_primary: float | None = None
    for_model: Callable[[Model], tuple[Sequence[Function], ModelSettings]] | None = None


async def carry_out(ctx: RunContext, conversation: AgentConversation, task: Task) -> Any:
    """Have the model carry out *task*; return its answer: a text, or a value of the result type.

    Raises:
        AgentException: the agent gave up.
        ModelProviderException: the provider failed.
        CallError: there is no answer for another reason.
    """
    policy = AgentPolicy(ctx, conversation, task)
    settings = await conversation.with_caching(task.settings, task.model, policy.functions)
    try:
        with provider_faults(ctx, task.model):
            model = task.model.without_retries() if len(task.models) > 1 else task.model
            conversation.open(model, task.system, policy.functions, settings)
    except ModelProviderException:
        # One without a key, for example, cannot even be opened.
        if not await policy.use_next_model():
            raise
    prior = conversation.prior
    inputs: Inputs = () if prior.response else await policy.first_inputs(prior)
    return await Loop(ctx, conversation, task.model, policy).run(inputs, task.max_steps)


class AgentPolicy:
    """The decisions of an agent, about its answer (``Policy``) and its calls (``CallPolicy``)."""

    def __init__(self, ctx: RunContext, conversation: AgentConversation, task: Task) -> None:
        self._ctx = ctx
        self._conversation = conversation
        self._task = task
        # The conversation as messages, for hooks; each part is converted once.
        self._messages: list[Message] = []
        self._asked: list[ToolUse] = []  # the calls in the parts that were converted last
        self._read = 0  # parts converted so far
        self._reminders = 0
        self._results: Inputs = ()  # of the calls of the last response
        self._exceeded: BudgetExceeded | None = None  # once set, only one answer is allowed
        self._bounds = Bounds(conversation, task.compaction)
        self.functions = self._offered(task)
        self._has_overflowed = False  # the request that is being made
        self._substitutes: Substitutes | None = None
        if len(task.models) > 1:
            self._substitutes = Substitutes(
                conversation, task.models, task.model, task.retry_primary, self._use
            )
        self._compactor: Compactor | None = None
        if task.compaction is not None and task.summarize is not None:
            self._compactor = Compactor(
                ctx, conversation, task.compaction, task.summarize, self._model
            )

    async def first_inputs(self, prior: PriorConversation) -> Inputs:
        """Return the prompt, or what an earlier call could not send."""
        if prior.unsent or prior.said:
            return prior.unsent
        prompt = await approve_prompt(
            self._ctx, self._conversation, self._task.prompt, self.messages
        )
        if not prompt.strip():
            raise InvalidArgumentsError(
                f"{self._ctx.node.function.name}: its prompt is empty; give a user_prompt_template,"
                " or return a text"
            )
        return [UserText(prompt)]

    async def before_request(self, inputs: Inputs) -> Inputs:
        """Return *inputs*, for which there is room now, if the agent makes some."""
        self._has_overflowed = False
        if self._substitutes is not None:
            await self._substitutes.before_request()
        if self._compactor is not None and await self._compactor.make_room(inputs):
            return self._shortened(inputs)
        return inputs

    async def after_failure(self, failure: ModelProviderException, inputs: Inputs) -> Inputs | None:
        """Make room for *inputs*, once, if they were too long; or let another model go on."""
        if failure.is_too_long:
            if self._task.is_piece:
                raise failure
            # Another model would have to read all of it as well.
            if self._compactor is None or self._has_overflowed:
                return None
            self._has_overflowed = True
            if not await self._compactor.after_overflow(failure, inputs):
                return None
            return self._shortened(inputs)
        # Only the same protocol can continue a response that was paused, for which nothing is sent.
        return inputs if inputs and await self.use_next_model() else None

    async def use_next_model(self) -> bool:
        """Let the next model have the conversation; False if there is none."""
        return self._substitutes is not None and await self._substitutes.after_failure()

    def _shortened(self, inputs: Inputs) -> Inputs:
        """Return *inputs*, with the results cut to the room that there is for them by now."""
        self._bounds.share(max(1, sum(isinstance(one, ToolResult) for one in inputs)))
        nodes = {child.tool_use_id: child for child in self._ctx.node.children}
        return [
            self._bounds.shortened(one, nodes[one.tool_use_id])
            if isinstance(one, ToolResult) and one.tool_use_id in nodes
            else one
            for one in inputs
        ]

    def _model(self) -> Model:
        """Return the model that goes on; for a call of another agent."""
        if self._substitutes is None:
            return self._task.model
        return Failover(*self._substitutes.in_order, retry_primary=self._task.retry_primary)

    async def _use(self, model: Model) -> None:
        """Open the conversation with another model."""
        assert self._task.for_model is not None  # there are several models
        functions, settings = self._task.for_model(model)
        conversation = self._conversation
        settings = await conversation.with_caching(settings, model, functions)
        if self._exceeded is not None:
            settings = replace(settings, call_functions=False)
        if functions and any(one.name == READ_RESULT for one in self.functions):
            functions = self._with_read_result(functions)
        with provider_faults(self._ctx, model):
            conversation.open(model, self._task.system, functions, settings)
        self.functions = functions

    # Its answer

    def answer(self, response: ResponseCompleted) -> tuple[Any, Inputs]:
        """Return the answer, or a reminder to a model that gave none."""
        self._results = ()
        text = "".join(part.text for part in response.parts if isinstance(part, ModelText))
        if response.exchange.finish is Finish.MAX_TOKENS:
            raise self._no_answer("its answer was cut off: give it a greater max_tokens", text)
        if self._task.result is None:
            return (text, ()) if text.strip() else (None, self._remind(_EMPTY, text))
        try:
            return self._task.result.from_text(text), ()
        except InvalidArgumentsError as error:
            offered = any(isinstance(function, ReturnResult) for function in self._task.functions)
            by_call = offered and not response.exchange.by_schema
            reminder = _NO_RESULT if by_call else _NO_JSON
            return None, self._remind(reminder.format(fault=error), text)

    def _remind(self, reminder: str, text: str) -> Inputs:
        if self._exceeded is not None:
            raise self._exceeded
        if self._reminders == _REMINDERS:
            asked = f"it was asked {_REMINDERS + 1} times; ask a more capable model, or for less"
            raise self._no_answer(asked, text)
        self._reminders += 1
        return [UserText(reminder)]

    def _no_answer(self, why: str, text: str) -> NoAnswerError:
        noticed = "".join(f"; {notice}" for notice in self._conversation.notices)
        name, model = self._ctx.node.function.name, self._task.model.name
        return NoAnswerError(f"{name} got no answer from {model}: {why}{noticed}", text)

    async def follow(self, response: ResponseCompleted) -> tuple[Any, Inputs]:
        """Make the calls of *response*; return the agent's result, or the inputs to send next."""
        # The model asks for calls although it has no functions any more.
        if self._exceeded is not None:
            raise self._exceeded
        calls = Calls(self._ctx, self._conversation, self.functions, self, self._bounds)
        pending = tuple(self._conversation.pending)
        outcome = await calls.follow(pending, at_once=self._task.parallel_tools)
        self._results = calls.results
        if self._bounds.has_cut:
            self._offer_read_result()
        return outcome

    def _offered(self, task: Task) -> Sequence[Function]:
        """Return the functions of the model: those of the task, and to read long results.

        That one is offered from the beginning where results are expected to be cut, and otherwise
        from the first that is cut: another function begins an epoch.
        """
        expected = task.compaction is not None or any(
            one.max_result_chars is not None for one in task.functions
        )
        is_offered = READ_RESULT in self._conversation.prior.offered
        if task.functions and (expected or is_offered):
            return self._with_read_result(task.functions)
        return task.functions

    def _with_read_result(self, functions: Sequence[Function]) -> Sequence[Function]:
        if any(one.name == READ_RESULT for one in functions):
            return functions
        return [*functions, ReadResult(self._bounds)]

    def _offer_read_result(self) -> None:
        """Let the model read what was cut of a result."""
        functions = self._with_read_result(self.functions)
        if len(functions) > len(self.functions):
            self.functions = functions
            self._conversation.offer(functions)

    async def before_end(self, answer: Any) -> Inputs:
        """Return what hooks tell the agent to do next, with the results of its last calls."""
        if self._exceeded is not None:
            return ()
        prompt = await continuation(self._ctx, self._conversation, answer, self.messages)
        return () if prompt is None else self.reopened([UserText(prompt)])

    def reopened(self, texts: Inputs) -> Inputs:
        """Return *texts*, after the results of the last calls, which were not sent."""
        return [*self._results, *texts]

    def after_budget(self, exceeded: BudgetExceeded, inputs: Inputs) -> Inputs:
        """Prepare one more request, without functions, if the budget allows that."""
        if not exceeded.last_call or not inputs:
            raise exceeded
        self._exceeded = exceeded
        with provider_faults(self._ctx, self._task.model):
            self._conversation.forbid_calls()
        # An earlier process may have added the text without getting a response.
        is_added = inputs[-1] == UserText(LAST_CALL)
        return inputs if is_added else [*inputs, UserText(LAST_CALL)]

    def out_of_steps(self) -> Any:
        """Raise StepLimitError."""
        raise StepLimitError(
            f"{self._ctx.node.function.name} made {self._task.max_steps} requests without giving an"
            " answer: give it a smaller task, or a greater max_steps"
        )

    # Its calls

    async def gate(
        self, call: ToolUse, args: Mapping[str, Any], verdict: Verdict | None
    ) -> Verdict | None:
        """Return *verdict*: a call is made as soon as rules and hooks allow it."""
        return verdict

    async def settle(self, made: MadeCall, failure: BaseException | None) -> None:
        """Set the value of the call as its result, or why it failed or could not be made."""
        if made.node is not None and failure is None:
            made.succeed(made.node, self._bounds)
            return
        text = made.call.fault or self._unknown(made.call.name)
        made.value = text if failure is None else error_text(failure)
        made.result = ToolResult(made.call.id, made.value, is_error=True)

    async def revise(self, result: ToolResult) -> None:
        """Do nothing: results are kept nowhere else."""

    def _unknown(self, name: str) -> str:
        names = [function.name for function in self.functions]
        hint = did_you_mean(name, names, then=" ")
        return f"there is no function {name!r}; {hint}there are: {', '.join(names) or 'none'}"

    def messages(self) -> list[Message]:
        """Return the conversation so far, for hooks."""
        if new := self._conversation.transcript[self._read :]:
            self._messages += messages_of(new, self._asked)
            self._asked = [part for part in new if isinstance(part, ToolUse)]
            self._read += len(new)
        return list(self._messages)
