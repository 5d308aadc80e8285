"""``ChatFunction``: runs one turn of a chat as a call.

The turn is driven by the model loop of ``agents``. What differs: blocks are passed to a reader
while they arrive, calls may be left to the program, and what an agent decides by itself (to ask
again after an empty answer, to fail after too many steps) is left to the person.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Final

from treefold.agents.approval import approve_prompt, continuation
from treefold.agents.loop import Loop, found_model, provider_faults
from treefold.agents.prompts import system_text
from treefold.chat.options import AgentOptions
from treefold.chat.turn import ChatTurn
from treefold.chat.turn_calls import TurnCalls
from treefold.chat.turn_reader import TurnReader, text_of
from treefold.core.agent_errors import BlockedError, BudgetExceeded, DeniedError
from treefold.core.agent_events import ResponseCompleted
from treefold.core.conversation import AgentConversation, Inputs, PriorConversation
from treefold.core.errors import (
    DefinitionError,
    InvalidValueError,
    ModelProviderException,
    NoModelError,
    UsageError,
)
from treefold.core.function import Function, ModelFinder, RunContext
from treefold.core.model import Model
from treefold.core.parameter import Parameter
from treefold.core.parameters import Parameters
from treefold.core.transcript import ToolResult

log = logging.getLogger("treefold.chat")

NAME: Final = "chat turn"  # has a space, so that no function that a model can call has this name
_PARAMETERS: Final = Parameters(NAME, [Parameter("prompt", str), Parameter("session", str, "")])


class ChatFunction(Function):
    """The function of a turn: each call of it is one turn of a client."""

    is_agent = True

    def __init__(self, options: AgentOptions) -> None:
        description = "A person says something, and a model answers."
        super().__init__(NAME, description, uses=options.functions())
        self._options = options

    @property
    def parameters(self) -> Parameters:
        return _PARAMETERS

    def definition(self) -> Mapping[str, Any]:
        tools = {function.name: function.interface() for function in self.uses}
        return {"prompt": self._options.system_prompt, "tools": tools}

    def faults(self, models: ModelFinder) -> list[str]:
        try:
            self._options.find_model(models).check(self.uses)
        except NoModelError:
            # The turn fails, with an error that lists what could be chosen.
            return []
        except (DefinitionError, InvalidValueError) as error:
            return [str(error)]
        return []

    async def run_call(self, ctx: RunContext, args: Mapping[str, Any]) -> Any:
        if not ctx.node.function.is_agent:
            raise UsageError("a turn of a chat is begun by client.query()")
        conversation: AgentConversation = ctx.conversation
        turn: object = conversation.handed_over
        saved = isinstance(turn, ChatTurn) and turn.saver is not None and conversation.responses
        if not isinstance(turn, ChatTurn) or turn.begun or saved:
            raise UsageError("a turn of a chat cannot be resumed; call client.query() again")
        turn.begun = True
        find = partial(turn.options.find_model, conversation.models)
        model = await found_model(
            ctx, find, turn.options.model, "this chat", 'AgentOptions(model="{}")'
        )
        return await _TurnRun(ctx, conversation, turn, self.uses, model).to_end()


class _TurnRun:
    """One run of a turn; as the policy of the loop, it leaves decisions to the person."""

    def __init__(
        self,
        ctx: RunContext,
        conversation: AgentConversation,
        turn: ChatTurn,
        tools: Sequence[Function],
        model: Model,
    ) -> None:
        options = turn.options
        self._ctx = ctx
        self._conversation = conversation
        self._turn = turn
        self._history = turn.history
        self._tools = tools
        self._model = conversation.adopt(model)
        self._opened_with = copy(options) if self._model is model else self._model
        self._settings = options.settings(model)
        self._system_text = ""  # set when the session is opened
        self._calls = TurnCalls(ctx, conversation, tools, turn)
        self._reader = TurnReader(turn, conversation, self._model)

    async def to_end(self) -> Any:
        """Open the session, send the prompt, and drive the loop to the answer."""
        turn = self._turn
        loop = Loop(self._ctx, self._conversation, self._model, self, self._reader)
        try:
            prior = self._conversation.prior
            await self._open(prior)
            inputs: Inputs = () if prior.response else await self._first_inputs(prior)
            return await loop.run(inputs, turn.options.max_tool_iterations)
        except asyncio.CancelledError:
            # The text of an interrupted response counts as its answer.
            self._reader.keep_text()
            raise
        finally:
            self._history.take_back(keep_prompt=turn.superseded)
            # The program does not make these calls, so no result will come from it.
            rest = turn.options.auto_execute_tools and self._history.answer_rest()
            if rest and turn.saver is not None:
                turn.saver.keep(self._history.waiting)

    async def _open(self, prior: PriorConversation) -> None:
        turn = self._turn
        # Save what an earlier flush left: if that fails, it should fail before the next request.
        await turn.save()
        if prior.said:
            exchanges = [response.exchange for response in prior.said]
            turn.recover(exchanges, is_followed=prior.response is None)
            turn.note_opened()
        self._system_text = await self._system(prior)
        await self._open_session()

    async def _open_session(self) -> None:
        turn, history, conversation = self._turn, self._history, self._conversation
        history.catch_up()
        model, tools, system = self._model, self._tools, self._system_text
        settings = await conversation.with_caching(self._settings, model, tools)
        with provider_faults(self._ctx, model):
            session = history.open(model, system, tools, settings, self._opened_with)
        conversation.take_over(session, model, system, tools, settings)
        if history.rewritten and turn.saver is not None:
            turn.saver.replace(history.exchanges)
            turn.saver.keep(history.waiting)
            history.rewritten = False
            await turn.save()

    async def _system(self, prior: PriorConversation) -> str:
        system = self._turn.options.system_prompt
        if isinstance(system, str):
            return system
        if prior.system is not None:
            return prior.system
        return await system_text(system, self._ctx, "this chat")

    async def _first_inputs(self, prior: PriorConversation) -> Inputs:
        """Return the prompt, or the results that an earlier process sent without a response."""
        prompt = self._turn.prompt
        if prior.said:
            for result in prior.unsent:
                if isinstance(result, ToolResult):
                    self._history.add_result(result)
            return self._history.begin("") if prior.unsent else ()
        if prompt:
            messages = self._calls.messages
            try:
                prompt = await approve_prompt(self._ctx, self._conversation, prompt, messages)
            except DeniedError as error:
                raise BlockedError("Prompt", error.reason) from None
            if not prompt.strip():
                raise InvalidValueError("there is nothing to send: a hook left nothing of it")
        return self._history.begin(prompt)

    def answer(self, response: ResponseCompleted) -> tuple[Any, Inputs]:
        """Return the text, even an empty one."""
        return text_of(response), ()

    async def follow(self, response: ResponseCompleted) -> tuple[Any, Inputs]:
        """Make the calls of *response*, or leave them to the program."""
        answer, inputs = text_of(response), ()
        is_broken = any(call.fault is not None for call in self._conversation.pending)
        if not self._turn.options.auto_execute_tools:
            await self._calls.leave()
        else:
            _, inputs = await self._calls.make()
        if is_broken:
            # The session has the call that could not be parsed, which is not sent.
            await self._open_session()
            inputs = self._history.begin("") if inputs else ()
        return answer, inputs

    async def before_end(self, answer: Any) -> Inputs:
        """Return what hooks tell the model next, unless it waits for results of the program."""
        if self._conversation.pending:
            return ()
        prompt = await continuation(self._ctx, self._conversation, answer, self._calls.messages)
        return () if prompt is None else self._history.begin(prompt)

    async def before_request(self, inputs: Inputs) -> Inputs:
        """Return *inputs*: the program decides what the history holds."""
        return inputs

    async def after_failure(self, failure: ModelProviderException, inputs: Inputs) -> Inputs | None:
        """Return None: the reader of the turn gets the exception."""
        return None

    def reopened(self, texts: Inputs) -> Inputs:
        """Return *texts*."""
        return texts

    def after_budget(self, exceeded: BudgetExceeded, inputs: Inputs) -> Inputs:
        """Raise *exceeded*."""
        raise exceeded

    def out_of_steps(self) -> Any:
        """Return an empty answer, after a warning."""
        log.warning(
            "the model asked for calls %d times (max_tool_iterations), and the turn ends here;"
            " query('') continues it",
            self._turn.options.max_tool_iterations,
        )
        return ""
