"""Runs a program, meddles as it says, and holds everything against the rules."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Any

from agent_scripts import StagedModel
from random_trees.plans import MOST_TOKENS, Act, Program
from random_trees.program import Stage
from random_trees.rules import FINAL, HELD, Witness, all_in, at_rest, not_over, unlike
from support import settle
from treefold import (
    AgentFunction,
    AgentNode,
    Budget,
    BudgetExceeded,
    ModelProviderException,
    Node,
    Question,
    QuestionKind,
    Runtime,
)
from treefold.core.errors import UsageError
from treefold.runtime.calls.node import CallNode
from treefold.testing import ScriptedModel

REST = 1000.0  # seconds; whatever a program does by itself is over by then
MOST_ROUNDS = 200
PATIENCE = 60  # answers until everything is declined
_ENOUGH = 10  # requests that show that there is room
_PROBE_TOKENS = 2  # what a probe is thought to take


class Left(Exception):  # noqa: N818 - it is no error
    """Somebody left the block of the runtime."""


class Director:
    """Runs one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.stage = Stage(program)
        self.faults = self.stage.faults
        self.roots: list[Node] = []
        self._rng = random.Random(program.answers)
        self._witnesses: list[Witness] = []
        self._cancelled: set[int] = set()

    async def run(self) -> None:
        """Run it to its end; see ``faults`` then."""
        async with asyncio.timeout(REST * MOST_ROUNDS * 2):
            self.runtime = self.stage.runtime()
            async with asyncio.TaskGroup() as self._watchers:
                with suppress(Left):
                    async with self.runtime:
                        await self._play()
            self._check_end()
            await self._check_leases()
        await settle()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        self.faults += [f"{task} still runs" for task in left]

    async def _play(self) -> None:
        for function in self.stage.roots:
            self._add(self.runtime.invoke(function))
        for act in self.program.acts:
            await self._do(act)
        if self.program.leaves_early:
            raise Left
        await self._finish()
        await self._check_budget()

    def _add(self, root: Node) -> None:
        assert isinstance(root, CallNode)
        self.roots.append(root)
        witness, tree = Witness(), root.tree
        self._witnesses.append(witness)

        def see() -> None:
            tree.on_next_event(see)
            witness.see(tree.view(root.id))

        see()
        self._watchers.create_task(self._watch(root))

    async def _watch(self, root: Node) -> None:
        before, last = 0, None
        async for view in self.runtime.watch(root):
            if view.update_seqnum <= before:
                self.faults.append(f"view {view.update_seqnum} is seen after {before}")
            before, last = view.update_seqnum, view.state
        if last is not root.state:
            self.faults.append(f"the last view of {root} is {last}")

    def _nodes(self) -> list[Node]:
        return [node for root in self.roots for node in self.runtime.get_subtree(root.id)]

    # Meddling

    async def _do(self, act: Act) -> None:
        for _ in range(act.turns):
            await asyncio.sleep(0)
        if act.seconds:
            await asyncio.sleep(act.seconds)
        nodes = self._nodes()
        if act.what == "resume":  # those that can be, rather than any
            asking = {q.node_id for q in self.runtime.questions() if q.kind is QuestionKind.Paused}
            nodes = [n for n in nodes if n.id in asking or _failed_by_provider(n)] or nodes
        node = nodes[act.target % len(nodes)]
        match act.what:
            case "cancel":
                self.runtime.cancel(node.id, "somebody said so")
                self._cancelled.add(node.id)
            case "pause":
                self._expect_error(node.state in FINAL, self.runtime.pause, node.id, HELD)
            case "resume":
                self._resume(node)
            case _:
                if questions := self.runtime.questions():
                    self._answer(questions[act.target % len(questions)], act.choice)

    def _expect_error(self, expected: bool, function: Any, *args: Any) -> Any:  # noqa: FBT001
        try:
            result = function(*args)
        except UsageError as error:
            if not expected:
                self.faults.append(f"{function.__name__}: {error}")
            return None
        if expected:
            self.faults.append(f"{function.__name__}{args} was allowed")
        return result

    def _resume(self, node: Node) -> None:
        below = {one.id for one in self.runtime.get_subtree(node.id)}
        paused = [q for q in self.runtime.questions() if q.kind is QuestionKind.Paused]
        again = node.parent is None and _failed_by_provider(node)
        is_paused = any(q.node_id in below for q in paused)
        got = self._expect_error(not (again or is_paused), self.runtime.resume, node.id)
        if again:
            self._add(got)

    def _answer(self, question: Question, choice: int) -> None:
        match question.kind:
            case QuestionKind.Approval:
                if choice == 3:
                    self.runtime.answer(question.id, args={})
                else:
                    self.runtime.answer(question.id, ["allow", "deny", "deny: no"][choice % 3])
            case _:
                choices = question.choices or ("yes",)
                self.runtime.answer(question.id, choices[choice % len(choices)])

    # At rest, and to the end

    async def _finish(self) -> None:
        """Answer everything, and stop what hangs, until all has ended."""
        for number in range(MOST_ROUNDS):
            await asyncio.sleep(REST)
            self._check_rest()
            if all(root.state in FINAL for root in self.roots) or self.faults:
                break
            if questions := self.runtime.questions():
                question = self._rng.choice(questions)
                late = number > PATIENCE
                self._answer(question, -1 if late else self._rng.randrange(6))
            else:
                node = min(self.stage.hanging)
                self.runtime.cancel(node, "it hangs")
                self._cancelled.add(node)
        else:
            self.faults.append("it never ends")
        if self.faults:
            raise Left

    def _check_rest(self) -> None:
        stage = self.stage
        asked = {q.id for q in self.runtime.questions()}
        shown: set[str] = set()
        for root in self.roots:
            view = self.runtime.get_view(root.id)
            self.faults += unlike(root, view)
            self.faults += at_rest(view, stage.hanging, crowded=bool(stage.hanging))
            shown |= {question.id for one in all_in(view) for question in one.questions}
        if asked != shown:
            self.faults.append(f"questions {asked}, in the views {shown}")
        self._check_cancelled()
        for witness in self._witnesses:
            self.faults += witness.faults
            witness.faults = []

    def _check_cancelled(self) -> None:
        """Find nothing that was cancelled and still runs, unless its cleaning up is held up."""
        asking = {question.node_id for question in self.runtime.questions()}
        for node in self._nodes():
            if node.id not in self._cancelled or node.state in FINAL:
                continue
            below = [one.id for one in self.runtime.get_subtree(node.id)]
            if asking.isdisjoint([*_ids_above(node), *below]):
                self.faults.append(f"{node} was cancelled, and does not end")

    def _check_end(self) -> None:
        self._check_rest()
        for root in self.roots:
            self.faults += not_over(root)
            for node in self.runtime.get_subtree(root.id):
                self._check_spent(node)
        self.faults += [f"{question} is open" for question in self.runtime.questions()]

    # What was spent

    def _budgets(self, node: Node) -> Iterator[Budget]:
        assert isinstance(node, CallNode)
        for account in node.accounts:
            if account.owner is node:
                yield account.budget

    def _check_spent(self, node: Node) -> None:
        below = {one.id for one in self.runtime.get_subtree(node.id)}
        asked = [one for one in self.stage.requests if one.node in below and not one.is_last_call]
        for budget in self._budgets(node):
            last_calls = len(below) if budget.last_call else 0
            most = MOST_TOKENS * (self.program.limit + last_calls)
            if budget.calls is not None and len(asked) > budget.calls:
                self.faults.append(f"{len(asked)} requests below {node}, of {budget}")
            if budget.tokens is not None and node.total_usage.total > budget.tokens + most:
                self.faults.append(f"{node.total_usage} below {node}, of {budget}")
            if budget.usd is not None and asked:
                cost = node.total_cost
                if cost is None or cost > Decimal(budget.usd) + most:
                    self.faults.append(f"{cost} below {node}, of {budget}")

    async def _check_budget(self) -> None:
        """Find that exactly what is left of the runtime's budget can be spent."""
        budget = self.program.budget
        if budget is None or budget.seconds is not None or budget.last_call:
            return
        spent = sum(root.total_usage.total for root in self.roots)
        model = ScriptedModel(lambda _: "Well.", price=lambda _: Decimal(0))
        fitting = 0
        with suppress(BudgetExceeded):
            while fitting < _ENOUGH:
                await self.runtime.invoke(_probe(), model=model)
                fitting += 1
        expected = _ENOUGH
        if budget.calls is not None:
            expected = min(_ENOUGH, max(0, budget.calls - len(self.stage.requests)))
        elif budget.tokens is not None:
            expected = _ENOUGH if spent + _PROBE_TOKENS <= budget.tokens else 0
        elif budget.usd is not None:
            expected = _ENOUGH if spent <= Decimal(budget.usd) else 0
        if fitting != expected:
            self.faults.append(f"{fitting} requests fit into what is left of {budget}: {expected}")

    async def _check_leases(self) -> None:
        """Find that as many requests as ever can be under way, and not one more."""
        limits, provider_limit = self.stage.limits, self.program.provider_limit
        most = min(limits.concurrent_requests, provider_limit or limits.concurrent_requests)
        model = StagedModel(ScriptedModel(lambda _: "Well."), held=True)
        async with Runtime(models=model, limits=limits) as runtime:
            nodes = [runtime.invoke(_probe()) for _ in range(most + 2)]
            await asyncio.sleep(REST)
            if model.in_flight != most:
                self.faults.append(f"{model.in_flight} of {most} requests are let through")
            model.gate.set()
        self.faults += [f"{node!r} did not get through" for node in nodes if node.exception]


def _failed_by_provider(node: Node) -> bool:
    return isinstance(node, AgentNode) and isinstance(node.exception, ModelProviderException)


def _ids_above(node: Node) -> Iterator[int]:
    above = node.parent
    while above is not None:
        yield above.id
        above = above.parent


def _probe() -> AgentFunction:
    return AgentFunction("probe", "Asks once.", user_prompt_template="Well?")
