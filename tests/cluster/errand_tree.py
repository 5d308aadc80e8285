"""A small tree with an agent, its tools and a remote call, and a note of everything it did.

Two workers of this process run it: the remote call is for the second.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from treefold import (
    AgentFunction,
    CodeFunction,
    FunctionArg,
    Node,
    RunContext,
    Runtime,
    ToolResult,
    ToolUse,
    UserText,
    WorkerPhase,
    WorkerSettings,
)
from treefold.engines import WorkEngine
from treefold.stores.postgres import PostgresStore
from treefold.testing import ScriptedModel, ScriptedRequest

FAR: Final = "far"  # the queue of the second worker


class Errands:
    """The functions of the tree, and its model.

    Attributes:
        done: how often each thing was done; each tree does nine.
    """

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self._lock = threading.Lock()
        weigh = self._tool("weigh", remote=FAR)
        clerk = AgentFunction(
            "clerk",
            "Settle an account.",
            args=[FunctionArg("n", int)],
            user_prompt_template="Account {n}",
            uses=[self._tool("look", repeatable=True), self._tool("pay")],
        )

        async def errand(ctx: RunContext, n: int) -> list[Any]:
            self._note("errand", n)
            weight = await ctx.invoke(weigh, {"n": n})
            said = await ctx.invoke(clerk, {"n": n})
            return [weight, said, await ctx.invoke(sign, {"n": n})]

        sign = self._tool("sign")
        self.root = CodeFunction(callable=errand, uses=[weigh, clerk, sign], repeatable=True)
        self.model = ScriptedModel(self._reply)

    def _tool(self, name: str, **options: Any) -> CodeFunction:
        async def work(ctx: RunContext, n: int) -> str:
            self._note(name, n)
            await asyncio.sleep(0)
            return f"{name} {n}"

        return CodeFunction(callable=work, name=name, desc=f"To {name}.", **options)

    def _reply(self, request: ScriptedRequest) -> Any:
        first, *rest = request.transcript
        assert isinstance(first, UserText)
        n = int(first.text.split()[1])
        had = sum(isinstance(part, ToolResult) for part in rest)
        self._note(f"request {had}", n)
        return "Settled." if had == 2 else ToolUse(f"{had}", ("look", "pay")[had], {"n": n})

    def _note(self, what: str, n: int) -> None:
        with self._lock:
            self.done[f"{what} of {n}"] += 1


def everything(*numbers: int) -> "Counter[str]":
    """Return what is done for these trees if nothing is done twice."""
    steps = ("errand", "weigh", "request 0", "look", "request 1", "pay", "request 2", "sign")
    return Counter(f"{step} of {n}" for step in steps for n in numbers)


def result(n: int) -> list[Any]:
    """Return what the tree with this number returns."""
    return [f"weigh {n}", "Settled.", f"sign {n}"]


@asynccontextmanager
async def two_workers(
    errands: Errands,
    open_store: Callable[[], PostgresStore],
    engine: Callable[[], WorkEngine],
    settings: WorkerSettings,
) -> AsyncGenerator[Runtime]:
    """Run two workers, each with a store and an engine of its own; give the first."""
    stop = asyncio.Event()
    options: dict[str, Any] = {"models": errands.model}
    far = replace(settings, queues=[FAR])
    async with (
        Runtime(
            [errands.root], store=open_store(), engine=engine(), worker=settings, **options
        ) as first,
        Runtime(
            [errands.root], store=open_store(), engine=engine(), worker=far, **options
        ) as second,
        asyncio.TaskGroup() as group,
    ):
        for worker in (first, second):
            group.create_task(worker.work(stop=stop, drain=1.0))
        try:
            for worker in (first, second):
                while worker.worker_status().phase is not WorkerPhase.Ready:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            yield first
        finally:
            stop.set()


async def ended(nodes: list[Node], patience: float) -> list[Any]:
    """Return the results of these trees."""
    async with asyncio.timeout(patience):
        return [await node for node in nodes]
