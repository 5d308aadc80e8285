"""``Ensemble``: ask several models, or one several times, and reconcile the answers."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, Final

from treefold.agents.calls import error_text
from treefold.agents.function import AgentFunction
from treefold.agents.prompts import as_text
from treefold.agents.wrapper import AgentWrapper
from treefold.core.agent_errors import EnsembleError
from treefold.core.call_request import StartedCall
from treefold.core.errors import ClosedError, InvalidValueError
from treefold.core.function import ModelFinder, P, R_co, RunContext
from treefold.core.model import Model
from treefold.core.parameter import Parameter
from treefold.core.provider import Provider
from treefold.core.states import NodeState

_MORE: Final = """\
This task was given to {count} experts who worked independently of each other. Their answers:

{candidates}

Reconcile them into one final answer to the task. Where they agree, that is probably right; where \
they differ, find out who is right, by your own reasoning and not by counting votes. Take over \
what only one of them saw, if it holds. Do not mention the experts: give the answer itself, \
complete."""


class Ensemble(AgentWrapper[P, R_co]):
    """Calls an agent several times in parallel, then has the answers reconciled into one.

    First each of *instances* answers. Then the agent gets the same prompt with all answers below
    it, and an instruction to reconcile them. Members with the same model start when the first of
    them has begun to answer, so that they find the prompt in the provider's cache.

    Args:
        agent: the agent to call.
        instances: the number of members by Provider, Model or name of a model.
        name: by default the name of the agent followed by ``_ensemble``.
        reconcile_by: the model that reconciles; by default the first of *instances*. If it fails,
            the others try, so that answers that were paid for are not lost.
        allow_fail: how many members may fail; by default all but one.

    Example:
        >>> from treefold import Ensemble, Runtime, agent
        >>> from treefold.testing import ScriptedModel
        >>> @agent
        ... def add(a: int, b: int) -> str:
        ...     return f"What is {a} + {b}?"
        >>> model = ScriptedModel("4", "5", "It is 4.")
        >>> with Runtime(models={"sharp": model}) as runtime:
        ...     runtime.invoke(Ensemble(add, {"sharp": 2}), {"a": 2, "b": 2}).result()
        'It is 4.'
    """

    def __init__(
        self,
        agent: AgentFunction[P, R_co],
        instances: Mapping[Provider | str | Model, int],
        name: str | None = None,
        reconcile_by: Provider | str | Model | None = None,
        allow_fail: int | None = None,
    ) -> None:
        if not isinstance(instances, Mapping):
            raise InvalidValueError(f"instances go by model, {{'model': 2}}: not {instances!r}")
        self.instances = dict(instances)
        self.reconcile_by = reconcile_by
        for model in (*self.instances, reconcile_by):
            if not isinstance(model, Model | str | None):
                raise InvalidValueError(f"a model is a Model, a Provider or a name, not {model!r}")
        for model, count in self.instances.items():
            if not isinstance(count, int) or count < 1:
                raise InvalidValueError(f"an ensemble asks {model!r} once or more, not {count!r}")
        self._size = sum(self.instances.values())
        if not self._size:
            raise InvalidValueError("an ensemble needs members: instances={'model': 2}")
        self.allow_fail = self._size - 1 if allow_fail is None else allow_fail
        if not isinstance(self.allow_fail, int) or not 0 <= self.allow_fail < self._size:
            raise InvalidValueError(f"allow_fail={allow_fail!r} of {self._size} leaves no answer")
        candidates = Parameter("candidates", list[str], description="reconciles several answers")
        super().__init__(agent, name, "ensemble", "reconciled", candidates, _reconciling)

    def faults(self, models: ModelFinder) -> list[str]:
        """Return why models cannot be used."""
        # A wrong model name is a fault of the definition, not the failure of a member.
        return [fault for model in self._models for fault in self.agent.model_faults(models, model)]

    def definition(self) -> Mapping[str, Any]:
        members = {str(getattr(one, "name", one)): count for one, count in self.instances.items()}
        last = self._models[0]
        settings = [members, str(getattr(last, "name", last)), self.allow_fail]
        return {**super().definition(), "settings": settings}

    @property
    def _models(self) -> list[Provider | str | Model]:
        """Every model that it uses, the reconciling one first."""
        preferred = [] if self.reconcile_by is None else [self.reconcile_by]
        return list(dict.fromkeys([*preferred, *self.instances]))

    async def _work(self, ctx: RunContext, **args: Any) -> Any:
        ended: asyncio.Queue[StartedCall] = asyncio.Queue()
        groups = self._start(ctx, args, ended)
        failures: list[BaseException] = []
        for _ in range(self._size):
            failure = (await ended.get()).exception
            failures += [] if failure is None else [failure]
            if len(failures) > self.allow_fail:
                for member in chain(*groups):
                    member.cancel("too many members of the ensemble failed")
                raise self._failed("too many members failed", _answers(groups), failures)
        candidates = _answers(groups)
        if len(candidates) == 1:
            return candidates[0]
        return await self._reconcile(ctx, args, candidates)

    def _start(
        self, ctx: RunContext, args: Mapping[str, Any], ended: "asyncio.Queue[StartedCall]"
    ) -> list[list[StartedCall]]:
        """Start one member of each model, and the others when that one answers or has ended.

        Each member is put into *ended* at its end.
        """
        groups: list[list[StartedCall]] = []

        def add(group: list[StartedCall], model: Provider | str | Model) -> StartedCall:
            tied = groups[0][0] if groups else None
            member = self._call(ctx, self.agent, args, model=model, tied_with=tied)
            member.asked_for = True
            member.add_end_callback(partial(ended.put_nowait, member))
            group.append(member)
            return member

        def add_more(group: list[StartedCall], model: Provider | str | Model, count: int) -> None:
            # The ensemble may have ended meanwhile.
            with suppress(ClosedError):
                for _ in range(count):
                    add(group, model)

        for model, count in self.instances.items():
            group: list[StartedCall] = []
            first = add(group, model)
            groups.append(group)
            first.when_answering(partial(add_more, group, model, count - 1))
        return groups

    async def _reconcile(
        self, ctx: RunContext, args: Mapping[str, Any], candidates: list[Any]
    ) -> Any:
        texts = [as_text(candidate) for candidate in candidates]
        failures: list[BaseException] = []
        for model in self._models:
            more = self._variant.with_extra(args, texts)
            try:
                return await self._call(ctx, self._variant, more, model=model)
            except Exception as error:  # noqa: BLE001 - another model may succeed
                failures.append(error)
        raise self._failed("no model could reconcile the answers", candidates, failures)

    def _failed(
        self, why: str, candidates: list[Any], failures: list[BaseException]
    ) -> EnsembleError:
        reasons = "; ".join(error_text(failure) for failure in failures)
        return EnsembleError(
            f"{self.name}: {why} ({len(candidates)} answers are in 'candidates'): {reasons}",
            candidates,
            failures,
        )


def _answers(groups: Iterable[Iterable[StartedCall]]) -> list[Any]:
    """Return the answers of the members that succeeded, in their order."""
    return [one.outputs for one in chain(*groups) if one.state is NodeState.Success]


def _reconciling(candidates: list[str]) -> str:
    listed = "\n\n".join(
        f'<answer number="{number}">\n{candidate}\n</answer>'
        for number, candidate in enumerate(candidates, 1)
    )
    count = str(len(candidates))
    head, _, tail = _MORE.replace("{count}", count).partition("{candidates}")
    return head + listed + tail
