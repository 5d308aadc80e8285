"""An agent needs no runtime: it runs in any context that has what agents use of RunContext."""

import asyncio
from collections.abc import Generator
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

from treefold import AgentFunction, CodeFunction, ModelText, RunContext, ToolResult, ToolUse
from treefold.core.agent_events import ResponseCompleted
from treefold.core.call_request import CallRequest
from treefold.core.conversation import PriorConversation
from treefold.core.decisions import RuleChain
from treefold.core.states import NodeState
from treefold.core.usage import TokenUsage
from treefold.testing import ScriptedModel


class FakeContext:
    """A context whose calls run when they are awaited."""

    def __init__(self, agent: AgentFunction, model: ScriptedModel) -> None:
        self.node = SimpleNamespace(function=agent, inputs={})
        self.conversation = FakeConversation(model)

    def start(self, request: CallRequest) -> "FakeNode":
        return FakeNode(self, request)


class FakeNode:
    exception, state = None, NodeState.Success

    def __init__(self, ctx: FakeContext, request: CallRequest) -> None:
        self.function, self.inputs, self._ctx = request.function, request.args, ctx

    def __await__(self) -> Generator[Any, None, Any]:
        work = self.function.run_call(cast("RunContext", self._ctx), self.inputs)
        self.outputs = yield from work.__await__()


class FakeConversation:
    """Sends each request at once, without leases, budgets or a journal."""

    prior, rules, model_ref, responses = PriorConversation(), RuleChain(), None, 0
    model, models, window = None, None, None
    decisions, is_below_agent = dict[tuple[str, str], str](), False

    def __init__(self, model: ScriptedModel) -> None:
        self.find_model = lambda model_ref: model
        self.edited_args = lambda tool_use_id: None
        self.finish = lambda: None
        self.resignations: list[Exception] = []

    async def with_caching(self, settings, model, functions) -> Any:
        return settings

    def open(self, model, system, functions, settings) -> None:
        self.session = model.open(system, functions, settings)

    def waiting_messages(self, *, is_idle: bool) -> Any:
        return []

    @property
    def pending(self) -> Any:
        return self.session.pending

    async def request(self, *inputs: Any, **options: Any) -> ResponseCompleted:
        async for _ in self.session.send(*inputs):
            pass
        number = len(self.session.exchanges) - 1
        exchange, parts = self.session.exchanges[number], tuple(self.session.parts(number))
        return ResponseCompleted(1, 0.0, exchange, parts, TokenUsage(), Decimal(0), step=1)


async def add(ctx: RunContext, a: int, b: int) -> int:
    return a + b


def test_an_agent_calls_a_tool_and_answers_in_a_context_without_a_runtime():
    tool = CodeFunction(callable=add)
    agent = AgentFunction("sum", "Add.", user_prompt_template="What is 2 + 3?", uses=[tool])
    context = FakeContext(agent, ScriptedModel(ToolUse("1", "add", {"a": 2, "b": 3}), "It is 5."))

    answer = asyncio.run(agent.run_call(cast("RunContext", context), {}))

    assert answer == "It is 5."
    assert context.conversation.session.transcript[-2:] == [
        ToolResult("1", "5"),
        ModelText("It is 5."),
    ]
