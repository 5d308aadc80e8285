"""Functions and models made of a plan, and what is seen of them while they run."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from agent_scripts import WrappedSession
from random_trees.plans import (
    Agent,
    Ask,
    Call,
    CancelChild,
    Code,
    Crowd,
    Fail,
    Hang,
    Pensive,
    Plan,
    Program,
    Sleep,
    Step,
)
from random_trees.rules import asks_while_held, unanswered_calls
from treefold import (
    HOOK_PRE_TOOL_USE,
    AgentFunction,
    CodeFunction,
    Ensemble,
    Function,
    HookDecision,
    Limits,
    ModelText,
    Node,
    PreToolUseEvent,
    Provider,
    RunContext,
    Runtime,
    ThinkMore,
    TokenUsage,
    ToolResult,
    ToolUse,
    UserText,
)
from treefold.models import Exchange, Model, ModelEvent, ModelSettings, Retry, Session, Timers
from treefold.testing import HANGS, ScriptedFailure, ScriptedModel, ScriptedRequest
from treefold.toolbox import human_in_loop, raise_exception

LAST_CALL: Final = "The budget for this task is used up"
_SPECIAL: Final = {"ask": "human_in_loop", "give_up": "raise_exception", "unknown": "nobody"}
_ARGUMENTS: Final = {"ask": {"question": "How?"}, "give_up": {"msg": "I cannot."}}


@dataclass(frozen=True)
class Asked:
    """A request that a node made."""

    node: int
    is_last_call: bool


@dataclass
class Stage:
    """Runs one program, and writes down what the calls and the models in it saw."""

    program: Program
    faults: list[str] = field(default_factory=list[str])
    requests: list[Asked] = field(default_factory=list[Asked])
    in_flight: Counter[Any] = field(default_factory=Counter[Any])
    hanging: set[int] = field(default_factory=set[int])  # nodes, in code or in a request
    _agents: dict[str, "Role"] = field(default_factory=dict[str, "Role"])
    _failed: Counter[Any] = field(default_factory=Counter[Any])
    _numbers: Any = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        program = self.program
        self.roots = [self.function(plan) for plan in program.roots]
        per_provider = {Provider.OpenAI: program.provider_limit} if program.provider_limit else None
        self.limits = Limits(program.limit, per_provider=per_provider)
        self.models = {
            "default": StageModel(self, "first", Provider.OpenAI),
            "other": StageModel(self, "second", Provider.Anthropic),
        }

    def runtime(self) -> Runtime:
        """Return a runtime for the whole program."""
        program = self.program
        return Runtime(
            self.roots,
            models=self.models,
            limits=self.limits,
            budget=program.budget,
            hooks={HOOK_PRE_TOOL_USE: [self._decide]},
            on_provider_failure="pause" if program.pause_on_provider_failure else "raise",
            on_tool_error="pause" if program.pause_on_tool_error else "report",
        )

    # Functions

    def function(self, plan: Plan) -> Function:
        """Make the function that a plan describes, and all that it calls."""
        number = next(self._numbers)
        match plan:
            case Code():
                return self._code(plan, f"code_{number}")
            case Agent():
                return self._agent(plan, f"agent_{number}")
            case Crowd():
                instances: dict[Provider | str | Model, int] = {"default": plan.first}
                if plan.second:
                    instances["other"] = plan.second
                member = self._agent(plan.agent, f"member_{number}")
                return Ensemble(member, instances, allow_fail=None if plan.allow_fail else 0)
            case Pensive():
                return ThinkMore(self._agent(plan.agent, f"thinker_{number}"))

    def _code(self, plan: Code, name: str) -> Function:
        steps = [(step, self._callee(step)) for step in plan.steps]
        cleanup = plan.cleanup and (plan.cleanup, self._callee(plan.cleanup))

        async def work(ctx: RunContext) -> int:
            children: list[Node] = []
            try:
                for step, function in steps:
                    await self._take(step, function, ctx, children, tolerant=plan.tolerant)
                for child in children:
                    await _outcome(child, tolerant=plan.tolerant)
                return len(children)
            finally:
                if cleanup is not None:
                    await self._take(*cleanup, ctx, [], tolerant=True)

        uses = [function for _, function in steps if function is not None]
        if cleanup is not None and cleanup[1] is not None:
            uses.append(cleanup[1])
        return CodeFunction(name=name, callable=work, uses=uses)

    def _callee(self, step: Step) -> Function | None:
        return self.function(step.plan) if isinstance(step, Call) else None

    async def _take(
        self,
        step: Step,
        function: Function | None,
        ctx: RunContext,
        children: list[Node],
        *,
        tolerant: bool,
    ) -> None:
        match step:
            case Call():
                assert function is not None  # it was made for this step
                tied = children[-1] if step.tied and children else None
                child = ctx.invoke(
                    function, timeout=step.timeout, tied_with=tied, budget=step.budget
                )
                children.append(child)
                if step.at_once:
                    await _outcome(child, tolerant=tolerant)
            case CancelChild():
                for child in children[-1:]:
                    child.cancel("its caller changed its mind")
            case _:
                await self._take_alone(step, ctx)

    async def _take_alone(self, step: Sleep | Ask | Fail | Hang, ctx: RunContext) -> None:
        match step:
            case Sleep(seconds, without_lease=True):
                async with ctx.lease_released():
                    if ctx.has_lease:
                        self.faults.append(f"{ctx.node} has a lease that it gave up")
                    await asyncio.sleep(seconds)
            case Sleep(seconds):
                await asyncio.sleep(seconds)
            case Ask(choices):
                answer = await ctx.ask("What now?", choices)
                if choices and answer not in choices:
                    self.faults.append(f"{answer!r} is none of {choices}")
            case Fail():
                raise ZeroDivisionError("it is in the plan")
            case Hang():
                await self._hang(ctx.node.id)

    async def _hang(self, node: int) -> None:
        self.hanging.add(node)
        try:
            await asyncio.Event().wait()
        finally:
            self.hanging.discard(node)

    def _agent(self, plan: Agent, name: str) -> AgentFunction:
        role = Role(self, plan, name)
        self._agents[name] = role
        return AgentFunction(
            name,
            "Does as planned.",
            system_prompt=name,
            user_prompt_template="Do as planned.",
            uses=[*role.callees, human_in_loop, raise_exception],
            returns=int if plan.returns else None,
            max_steps=plan.max_steps,
            parallel_tools=plan.parallel,
            budget=plan.budget,
        )

    async def _decide(self, event: PreToolUseEvent) -> HookDecision | None:
        agent = RunContext.active.get().node
        assert isinstance(agent.function, AgentFunction)
        name = str(agent.function.system_prompt)
        match self._agents[name].rule(event.tool_use_id):
            case "asked":
                return HookDecision(ask="May it?")
            case "forbidden":
                return HookDecision(continue_=False)
            case "edited":
                return HookDecision(modified_input={})
            case _:
                return None

    # Requests

    def role(self, system: str) -> "Role":
        """Return the agent with this system prompt."""
        return self._agents[system]

    def fails_once_more(self, key: object, times: int) -> bool:
        """Whether a request that is to fail so often has not done so yet."""
        self._failed[key] += 1
        return self._failed[key] <= times

    def began(self, node: int, provider: Provider, inputs: Sequence[UserText | ToolResult]) -> None:
        """Count a request."""
        last = inputs[-1] if inputs else None
        is_last = isinstance(last, UserText) and last.text.startswith(LAST_CALL)
        self.requests.append(Asked(node, is_last))
        self.in_flight["all"] += 1
        self.in_flight[provider] += 1
        if self.in_flight["all"] > self.limits.concurrent_requests:
            self.faults.append(f"{self.in_flight['all']} requests are under way")
        pool = self.limits.pools.get(provider)
        if pool is not None and self.in_flight[provider] > pool.size:
            self.faults.append(f"{self.in_flight[provider]} requests to {provider} are under way")

    def ended(self, provider: Provider) -> None:
        """Count it no longer as under way."""
        self.in_flight["all"] -= 1
        self.in_flight[provider] -= 1


async def _outcome(node: Node, *, tolerant: bool) -> None:
    try:
        await node
    except Exception:
        if not tolerant:
            raise


class Role:
    """What one agent's model says, round by round."""

    def __init__(self, stage: Stage, plan: Agent, name: str) -> None:
        self.plan = plan
        self.name = name
        self.callees: list[Function] = []
        self._stage = stage
        self._replies: list[list[ToolUse]] = []
        self._rules: dict[str, str] = {}
        for number, round in enumerate(plan.rounds):
            reply: list[ToolUse] = []
            for place, call in enumerate(round.calls):
                id = f"{name}-{number}-{place}"
                self._rules[id] = call.rule
                if isinstance(call.callee, str):
                    function, args = _SPECIAL[call.callee], _ARGUMENTS.get(call.callee, {})
                else:
                    callee = stage.function(call.callee)
                    self.callees.append(callee)
                    function, args = callee.name, {}
                more = {"surplus": 1} if call.bad_arguments else {}
                reply.append(ToolUse(id, function, args | more))
            self._replies.append(reply)

    def rule(self, id: str) -> str:
        """Return what the hook says of the call with this id."""
        return self._rules.get(id, "allowed")

    def reply(self, request: ScriptedRequest, number: int, *, may_call: bool) -> Any:
        """Return what the model says after so many responses."""
        plan = self.plan
        self._stage.faults += unanswered_calls(request.transcript)
        round = plan.rounds[number] if number < len(plan.rounds) else plan.answer
        if self._stage.fails_once_more((self.name, number), round.failures):
            return ScriptedFailure(500 if number % 2 else 400)
        if round.hangs:
            return HANGS
        if not may_call:
            return "I ran out."
        if number < len(plan.rounds):
            return self._replies[number] or ""
        if plan.returns:
            return ToolUse(f"{self.name}-{number}", "return_result", {"result": number})
        return ModelText(f"{self.name} is done")

    def seconds(self, number: int) -> float:
        """Return how long that takes."""
        rounds = self.plan.rounds
        return (rounds[number] if number < len(rounds) else self.plan.answer).seconds


class StageModel(Model):
    """Plays the models of all agents, each by its role; a token costs a dollar, or nobody knows."""

    def __init__(self, stage: Stage, name: str, provider: Provider) -> None:
        self.name = name
        self.provider = provider
        self.stage = stage

    def price(self, usage: TokenUsage) -> Decimal | None:
        return Decimal(usage.total) if self.stage.program.priced else None

    def open(
        self,
        system: str = "",
        functions: Sequence[Function] = (),
        settings: ModelSettings | None = None,
        *,
        exchanges: Sequence[Exchange] = (),
    ) -> Session:
        role = self.stage.role(system)
        may_call = settings is None or settings.call_functions

        def reply(request: ScriptedRequest) -> Any:
            return role.reply(request, len(inner.exchanges), may_call=may_call)

        script = ScriptedModel(
            reply,
            usage=TokenUsage(input=role.plan.tokens),
            retry=Retry([1.0]),
            timers=Timers(first_byte=None, idle=None, total=None),
        )
        inner = script.open(system, functions, settings, exchanges=exchanges)
        return StageSession(self, role, inner)


class StageSession(WrappedSession):
    """A conversation of one agent."""

    def __init__(self, model: StageModel, role: Role, inner: Session) -> None:
        super().__init__(inner)
        self._model = model
        self._role = role

    async def send(self, *inputs: UserText | ToolResult) -> AsyncGenerator[ModelEvent, None]:
        stage, provider = self._model.stage, self._model.provider
        ctx = RunContext.active.get()
        node = ctx.node.id
        stage.began(node, provider, inputs)
        stage.faults += asks_while_held(ctx.node, ctx.runtime.questions())
        stage.hanging.add(node)
        events = self._inner.send(*inputs)
        try:
            await asyncio.sleep(self._role.seconds(len(self.exchanges)))
            async for event in events:
                yield event
        finally:
            await events.aclose()
            stage.hanging.discard(node)
            stage.ended(provider)
