"""The one loop that drives every model: request, response, calls, results, request.

It knows a conversation and a context, but neither providers nor observers. A policy makes the
decisions that differ between an agent and a turn of a chat; a listener is notified of what happens.
"""

from collections.abc import Callable
from typing import Any, Protocol

from treefold.agents.calls import raise_if_resigned
from treefold.core.agent_errors import BudgetExceeded
from treefold.core.agent_events import ResponseCompleted
from treefold.core.conversation import AgentConversation, Inputs
from treefold.core.errors import (
    CallError,
    ModelProviderException,
    NoModelError,
    StoreError,
    TreefoldError,
    UsageError,
)
from treefold.core.events import Failure
from treefold.core.exchange import Finish
from treefold.core.function import RunContext
from treefold.core.model import Model
from treefold.core.model_events import ModelEvent
from treefold.core.provider_errors import provider_exception
from treefold.core.question import QuestionKey
from treefold.core.transcript import UserText


class Policy(Protocol):
    """Decides how a loop continues.

    ``answer`` and ``follow`` return an answer and the inputs of the next request. The loop ends
    with the answer, which may be None, if there are no inputs.
    """

    def answer(self, response: ResponseCompleted) -> tuple[Any, Inputs]:
        """Decide about a response that asks for no calls."""
        ...

    async def follow(self, response: ResponseCompleted) -> tuple[Any, Inputs]:
        """Deal with the calls that a response asks for."""
        ...

    async def before_end(self, answer: Any) -> Inputs:
        """Return the inputs to send instead of ending with *answer*, if any.

        They include the results of the last calls, if that response asked for any. It is not asked
        after the last request that the loop may make.
        """
        ...

    async def before_request(self, inputs: Inputs) -> Inputs:
        """Prepare a request with *inputs*; return what it has in their place."""
        ...

    async def after_failure(self, failure: ModelProviderException, inputs: Inputs) -> Inputs | None:
        """Return what to send after a request has failed for good; None if nothing helps."""
        ...

    def reopened(self, texts: Inputs) -> Inputs:
        """Return the inputs to go on with, instead of ending: *texts*, after the last results."""
        ...

    def after_budget(self, exceeded: BudgetExceeded, inputs: Inputs) -> Inputs:
        """Return the inputs of one last request instead of *inputs*, or raise *exceeded*."""
        ...

    def out_of_steps(self) -> Any:
        """Return the answer after too many requests, or raise an exception."""
        ...


class LoopListener(Protocol):
    """Is notified of each request and of its response while that arrives."""

    def request_begins(self, inputs: Inputs) -> None:
        """Note that a request is about to be sent, perhaps once more."""
        ...

    def event_arrived(self, event: ModelEvent) -> None:
        """Note a part of the response; an exception that this raises ends the request."""
        ...

    async def response_completed(self, response: ResponseCompleted) -> None:
        """Note a whole response."""
        ...


class Loop:
    """Drives the conversation of one call, which is open, to its answer."""

    def __init__(
        self,
        ctx: RunContext,
        conversation: AgentConversation,
        model: Model,
        policy: Policy,
        listener: LoopListener | None = None,
    ) -> None:
        self._ctx = ctx
        self._conversation = conversation
        self._model = model
        self._policy = policy
        self._listener = listener
        self._is_over_budget = False

    async def run(self, inputs: Inputs, max_steps: int) -> Any:
        """Send *inputs* and return the answer, after at most *max_steps* responses.

        Those of an earlier process, and of a call that this one continues, count. If the prior
        conversation ends with a response that has not been acted on, the loop begins with that one,
        and without *inputs*.

        Raises:
            AgentException: the agent gave up.
            ModelProviderException: the provider failed.
            CallError: there is no answer for another reason.
        """
        conversation, policy = self._conversation, self._policy
        unhandled = conversation.prior.response
        for step in range(conversation.responses - bool(unhandled), max_steps):
            response = unhandled or await self._request(inputs)
            unhandled = None
            if response.exchange.finish is Finish.PAUSED:
                # The provider wants to be asked again to go on, with nothing added in between.
                inputs = ()
                continue
            if conversation.pending:
                answer, inputs = await policy.follow(response)
            else:
                answer, inputs = policy.answer(response)
            if not inputs:
                raise_if_resigned(self._ctx, conversation)
                # An agent that has an answer should not fail for want of steps or budget.
                may_go_on = step + 1 < max_steps and not self._is_over_budget
                if may_go_on:
                    inputs = await policy.before_end(answer)
                # Nothing is awaited from here to the end: what is said later comes too late.
                said = conversation.waiting_messages(is_idle=True)
                if not inputs and said and may_go_on:
                    inputs = policy.reopened(said)
                if not inputs:
                    conversation.finish()
                    return answer
        return policy.out_of_steps()

    async def _request(self, inputs: Inputs) -> ResponseCompleted:
        if inputs:  # a response that was paused is continued as it is
            inputs = await self._policy.before_request(inputs)
            inputs = self._with_messages(inputs)
        response = await self._response(inputs)
        if self._listener is not None:
            await self._listener.response_completed(response)
        return response

    def _with_messages(self, inputs: Inputs) -> Inputs:
        """Return *inputs* with what people have said meanwhile, after all results."""
        said = self._conversation.waiting_messages(is_idle=False)
        known = {part.message for part in inputs if isinstance(part, UserText)}
        return [*inputs, *(one for one in said if one.message not in known)]

    async def _response(self, inputs: Inputs) -> ResponseCompleted:
        conversation, listener = self._conversation, self._listener
        on_event = None if listener is None else listener.event_arrived
        while True:
            if listener is not None:
                listener.request_begins(inputs)
            try:
                return await conversation.request(
                    *inputs, over_budget=self._is_over_budget, on_event=on_event
                )
            except BudgetExceeded as exceeded:
                if await conversation.ask_for_more(exceeded):
                    continue
                inputs = self._policy.after_budget(exceeded, inputs)
                self._is_over_budget = True
            except ModelProviderException as error:
                # It has failed for good, after all tries: a person or another model may help.
                error.locate(self._ctx.frames())
                again = await self._policy.after_failure(error, inputs)
                if again is not None:
                    inputs = again
                    continue
                if not conversation.pauses_on_provider_failure:
                    raise
                why = f"{error.message}; resume makes the request again"
                await conversation.pause(why, QuestionKey.Request)
            except (CallError, StoreError):
                raise
            except Exception as error:  # noqa: BLE001 - raised as a fault of the provider
                # A fault of the program, or of a model of its own: the same request fails again.
                raise provider_fault(self._ctx, self._model, error) from _cause(error)


async def found_model(
    ctx: RunContext, find: Callable[[], Model], model_ref: Any, whom: str, option: str
) -> Model:
    """Return the model that *find* finds for *model_ref*; *whom* needs it, and *option* sets it.

    Raises:
        NoModelError: none was chosen.
        ModelProviderException: there is no such model.
    """
    try:
        return find()
    except NoModelError:
        from treefold.models.choice import no_model_error  # noqa: PLC0415 - knows every provider

        raise await no_model_error(whom, option=option) from None
    except TreefoldError as error:
        raise provider_fault(ctx, str(model_ref or "the default model"), error) from _cause(error)


def provider_fault(ctx: RunContext, model: Model | str, error: Exception) -> Exception:
    """Return *error* as a ModelProviderException; a CallError or StoreError unchanged."""
    if isinstance(error, CallError | StoreError):
        return error
    if not isinstance(error, ModelProviderException):
        kind, name = ("Runtime", model) if isinstance(model, str) else (type(model), model.name)
        provider = kind if isinstance(kind, str) else kind.__name__
        fault = provider_exception(provider, name, str(Failure.of(error)), inner=error)
        if isinstance(error, UsageError):
            # No request was made: what the program has to change is all there is to say.
            fault.args = (str(error),)
        error = fault
    error.locate(ctx.frames())
    return error


def _cause(error: Exception) -> Exception | None:
    """Return *error* as the cause of its ModelProviderException; None if that says it all."""
    return None if isinstance(error, UsageError) else error


# A class, because the traceback would show a line of contextlib.
class provider_faults:  # noqa: N801 - it is used as a function
    """Raise each exception of the block as a ModelProviderException, if it is no other of ours."""

    def __init__(self, ctx: RunContext, model: Model) -> None:
        self._ctx = ctx
        self._model = model

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _where: object) -> None:
        if isinstance(error, Exception):
            fault = provider_fault(self._ctx, self._model, error)
            if fault is not error:
                raise fault from _cause(error)
