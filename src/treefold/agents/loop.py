"""The one loop that drives every model: request, stream, calls, results, request.

It knows a task, a node and a context, but neither providers nor observers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from treefold.agents.calls import Calls, MadeCall, gate_for
from treefold.agents.history import History
from treefold.agents.results import ResultType, ReturnResult
from treefold.core.agent_errors import BudgetExceeded, NoAnswerError, StepLimitError
from treefold.core.agent_events import ResponseCompleted
from treefold.core.decisions import HOOK_USER_PROMPT_SUBMIT, UserPromptSubmitEvent
from treefold.core.errors import (
    CallError,
    InvalidArgumentsError,
    ModelProviderException,
    StoreError,
)
from treefold.core.events import Failure
from treefold.core.exchange import Finish
from treefold.core.function import Function
from treefold.core.messages import Message
from treefold.core.model import Model, ModelSettings
from treefold.core.provider_errors import provider_exception
from treefold.core.question import QuestionKey
from treefold.core.states import NodeState
from treefold.core.transcript import ModelText, ToolResult, UserText
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.stack import frames_to
from treefold.runtime.context import Context
from treefold.runtime.conversations.agent_node import AgentNode
from treefold.runtime.questions.ask import ask_to_resume

_REMINDERS: Final = 2  # after a response without a usable answer
_EMPTY: Final = "You said nothing. Give your answer."
# Whether the model has return_result depends on the server. The text does not, because a replay
# compares it and does not know the server.
_NO_RESULT: Final = (
    "{fault}. If you have the function return_result, call it with the result of your task;"
    " otherwise answer with the result as JSON and nothing else."
)
_NO_JSON: Final = "{fault}. Answer with JSON of the schema that you were given, and nothing else."
_LAST_CALL: Final = (
    "The budget for this task is used up, and you can call no more functions. Answer now, with what"
    " you have, and say what is missing."
)

Inputs = Sequence[UserText | ToolResult]


@dataclass(frozen=True, slots=True, kw_only=True)
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


class Loop:
    """One call of an agent, from its prompt to its answer."""

    def __init__(
        self, ctx: Context, node: AgentNode, task: Task, calls: Calls | None = None
    ) -> None:
        self._node = node
        self._conversation = node.conversation
        self._task = task
        self._calls = calls or Calls(ctx, node, task.functions)
        self._reminders = 0
        self._exceeded: BudgetExceeded | None = None  # once set, only one answer is allowed

    async def run(self) -> Any:
        """Return the answer: a text, or a value of the type ``returns``.

        Raises:
            AgentException: the agent gave up.
            ModelProviderException: the provider failed.
            CallError: there is no answer for another reason.
        """
        await self._begin()
        # The last response of an earlier process, whose calls may not have ended.
        unhandled = self._conversation.prior.response
        inputs: Inputs = () if unhandled else await self._opening()
        for _ in range(self._conversation.responses - bool(unhandled), self._task.max_steps):
            response, unhandled = unhandled or await self._request(inputs), None
            if response.exchange.finish is Finish.PAUSED:
                inputs = ()
                continue
            if self._conversation.pending:
                answer, inputs = await self._follow(response)
            else:
                answer, inputs = self._answer(response)
            if not inputs:
                self._check_resigned()
                return self._done(answer)
        return self._out_of_steps()

    async def _begin(self) -> None:
        """Open the conversation, or continue an earlier one."""
        task = self._task
        try:
            self._conversation.open(task.model, task.system, task.functions, task.settings)
        except Exception as error:
            raise provider_fault(self._node, task.model, error) from error

    def _out_of_steps(self) -> Any:
        raise StepLimitError(
            f"{self._node.function.name} made {self._task.max_steps} requests without giving an"
            " answer: give it a smaller task, or a greater max_steps"
        )

    async def _opening(self) -> Inputs:
        """Return the first inputs: the prompt, or what an earlier call could not send."""
        prior = self._conversation.prior
        if prior.unsent or prior.exchanges:
            return prior.unsent
        prompt = await self._submitted(self._task.prompt)
        if not prompt.strip():
            raise InvalidArgumentsError(
                f"{self._node.function.name}: its prompt is empty; give a user_prompt_template, or"
                " return a text"
            )
        return [UserText(prompt)]

    async def _submitted(self, prompt: str) -> str:
        """Return the prompt after the hooks have approved or changed it."""
        rules = self._conversation.rules
        if not rules.asks(HOOK_USER_PROMPT_SUBMIT):
            return prompt
        event = UserPromptSubmitEvent(prompt, self._history())
        decision = await rules.decide(HOOK_USER_PROMPT_SUBMIT, event)
        prompt = prompt if decision.modified_prompt is None else decision.modified_prompt
        if (gate := gate_for(decision, self._node.function.name)) is not None:
            edited = await gate(self._node)
            prompt = prompt if edited is self._node.inputs else _edited_prompt(edited)
        return prompt

    def _history(self) -> list[Message]:
        return History(self._conversation).messages()

    def _done(self, answer: Any) -> Any:
        self._conversation.finish()
        return answer

    # Requests

    async def _request(self, inputs: Inputs) -> ResponseCompleted:
        while True:
            over = self._exceeded is not None
            try:
                return await self._ask(inputs, over_budget=over)
            except BudgetExceeded as exceeded:
                inputs = self._speak_last(inputs, exceeded)
            except ModelProviderException as error:
                error.locate(frames_to(self._node))
                if not self._conversation.pauses_on_provider_failure:
                    raise
                why = f"{error.message}; resume makes the request again"
                await ask_to_resume(self._node, why, QuestionKey.Request)
            except (CallError, StoreError):
                raise
            except Exception as error:
                raise provider_fault(self._node, self._task.model, error) from error

    async def _ask(self, inputs: Inputs, *, over_budget: bool) -> ResponseCompleted:
        return await self._conversation.request(*inputs, over_budget=over_budget)

    def _speak_last(self, inputs: Inputs, exceeded: BudgetExceeded) -> Inputs:
        """Prepare one more request, without functions, if the budget allows that."""
        if not exceeded.last_call or not inputs:
            raise exceeded
        self._exceeded = exceeded
        try:
            self._conversation.forbid_calls()
        except Exception as error:
            raise provider_fault(self._node, self._task.model, error) from error
        # An earlier process may have added the text without getting a response.
        is_added = inputs[-1] == UserText(_LAST_CALL)
        return inputs if is_added else [*inputs, UserText(_LAST_CALL)]

    # Calls and answers

    async def _follow(self, response: ResponseCompleted) -> tuple[Any, Inputs]:
        """Make the calls of *response*; return the agent's result, or the inputs to send next."""
        # The model asks for calls although it has no functions any more.
        if self._exceeded is not None:
            raise self._exceeded
        calls = tuple(self._conversation.pending)
        made = await self._calls.make(calls, at_once=self._task.parallel_tools)
        for one in made:
            failure = None if one.node is None else one.node.exception
            # The agent gave up; all calls that it asked for have been made.
            if failure is not None and failure in self._conversation.resignations:
                raise failure
        self._check_resigned()
        if (returned := _returned(made)) is not None:
            return returned.outputs, ()
        return None, [one.result for one in made if one.result is not None]

    def _check_resigned(self) -> None:
        """Raise the exception that a function posted without raising it, if any."""
        for error in self._conversation.resignations:
            error.locate(frames_to(self._node))
            raise error

    def _answer(self, response: ResponseCompleted) -> tuple[Any, Inputs]:
        """Return the answer, or a reminder to a model that gave none."""
        text = "".join(part.text for part in response.parts if isinstance(part, ModelText))
        if response.exchange.finish is Finish.MAX_TOKENS:
            raise self._no_answer("its answer was cut off: give it a greater max_tokens", text)
        if self._task.result is None:
            return (text, ()) if text.strip() else (None, self._remind(_EMPTY, text))
        try:
            return self._task.result.from_text(text), ()
        except InvalidArgumentsError as error:
            by_call = any(isinstance(function, ReturnResult) for function in self._task.functions)
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
        name, model = self._node.function.name, self._task.model.name
        noticed = "".join(f"; {notice}" for notice in self._conversation.notices)
        return NoAnswerError(f"{name} got no answer from {model}: {why}{noticed}", text)


def _edited_prompt(args: Mapping[str, Any]) -> str:
    """Return the prompt that a person has edited."""
    prompt = args.get("prompt")
    if len(args) != 1 or not isinstance(prompt, str):
        raise InvalidArgumentsError("a prompt is edited by {'prompt': 'the new text'}")
    return prompt


def _returned(made: Sequence[MadeCall]) -> CallNode | None:
    """Return the call that returned the agent's result, if there was one."""
    for one in made:
        node = one.node
        if node is None or node.state is not NodeState.Success:
            continue
        if isinstance(node.function, ReturnResult):
            return node
    return None


def provider_fault(node: AgentNode, model: Model | str, error: Exception) -> Exception:
    """Return *error* as a ModelProviderException; a CallError or StoreError unchanged."""
    if isinstance(error, CallError | StoreError):
        return error
    if not isinstance(error, ModelProviderException):
        kind, name = ("Runtime", model) if isinstance(model, str) else (type(model), model.name)
        provider = kind if isinstance(kind, str) else kind.__name__
        error = provider_exception(provider, name, str(Failure.of(error)), inner=error)
    error.locate(frames_to(node))
    return error
