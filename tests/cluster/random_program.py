"""A program that does what a plan says: code, agents and tools, each with effects that are noted.

``treefold worker random_program.py:runtime`` runs it. ``RANDOM_FAULTS`` has its ``Setting``, as
JSON. Each step of a plan has a label, which begins with the number of its tree.
"""

import asyncio
import faulthandler
import json
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Final

from agent_scripts import WrappedSession
from treefold import (
    Budget,
    BudgetExceeded,
    Function,
    Limits,
    Provider,
    RunContext,
    Runtime,
    ToolResult,
    ToolUse,
    UserText,
    WorkerSettings,
    agent,
    registries,
    tool,
)
from treefold.core.model import before_attempt
from treefold.errors import CallTimeoutError, CancellationException, InDoubtError
from treefold.models import Exchange, Model, ModelEvent, ModelSettings, Session
from treefold.testing import ScriptedModel
from work_engines import make_engine

VARIABLE: Final = "RANDOM_FAULTS"
FAR: Final = "default"  # the queue of calls that run apart from their caller


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a worker is told.

    Attributes:
        url: of the store, by a way of its own.
        port: of the server that answers for the model.
        effects: the file in which effects are noted.
        requests: how many may be under way at once, in all processes.
        clock: by how many seconds the clock of the process jumps when it has worked for a second.
        planted: whether faults are planted: effects are done twice, and requests sent twice.
    """

    name: str
    url: str
    engine: str
    port: int
    effects: str
    requests: int
    lease: float
    clock: float = 0.0
    planted: bool = False

    def as_text(self) -> str:
        return json.dumps(asdict(self))


@cache
def setting() -> Setting:
    """Return what this process was told."""
    return Setting(**json.loads(os.environ[VARIABLE]))


def note(what: str, label: str, **more: Any) -> None:
    """Append a line to the file of effects, by one write."""
    # A monotonic clock: it is the same in all processes of a machine, and nobody sets it.
    line = {"what": what, "label": label, "at": time.monotonic(), "pid": os.getpid(), **more}
    file = os.open(setting().effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, json.dumps(line).encode() + b"\n")
    finally:
        os.close(file)


with registries():  # so that no test finds their names taken

    @tool(repeatable=True)
    async def look(label: str, seconds: float) -> str:
        """Look; it may be done again."""
        note("look", label)
        await asyncio.sleep(seconds)
        return f"looked {label}"

    async def _pay(ctx: RunContext, label: str, seconds: float) -> str:
        for _ in range(2 if setting().planted else 1):
            note("pay", label, key=ctx.idempotency_key)
        await asyncio.sleep(seconds)
        note("paid", label, key=ctx.idempotency_key)
        return f"paid {label}"

    @tool
    async def pay(ctx: RunContext, label: str, seconds: float) -> str:
        """Pay; it must not be done again."""
        return await _pay(ctx, label, seconds)

    @tool(ask=True)
    async def risky(ctx: RunContext, label: str, seconds: float) -> str:
        """Pay, if a person allows it."""
        return await _pay(ctx, label, seconds)

    @tool(remote=FAR)
    async def far_pay(ctx: RunContext, label: str, seconds: float) -> str:
        """Pay, on any worker."""
        return await _pay(ctx, label, seconds)

    @tool(repeatable=True)
    async def ask(ctx: RunContext, label: str) -> str:
        """Ask a person."""
        return await ctx.ask(f"What about {label}?")

    @tool(repeatable=True)
    async def nap(ctx: RunContext, label: str, seconds: float) -> str:
        """Sleep."""
        await ctx.sleep(seconds)
        return f"slept {label}"

    TOOLS: Final[Mapping[str, Function]] = {
        one.name: one for one in (look, pay, risky, far_pay, ask, nap)
    }

    @agent(uses=[*TOOLS.values()])
    def helper(label: str, script: list[Any]) -> str:
        """Do what the script says."""
        return json.dumps({"label": label, "script": script})

    @agent(uses=[*TOOLS.values()], remote=FAR)
    def far_helper(label: str, script: list[Any]) -> str:
        """Do what the script says, on any worker."""
        return json.dumps({"label": label, "script": script})

    @agent(uses=[*TOOLS.values(), helper, far_helper], parallel_tools=True)
    def lead(label: str, script: list[Any]) -> str:
        """Do what the script says, all calls of one response at once."""
        return json.dumps({"label": label, "script": script})

    LEAVES: Final[Mapping[str, Function]] = {
        **{name: one for name, one in TOOLS.items() if one is not risky},
        **{one.name: one for one in (helper, far_helper, lead)},
    }

    @tool(uses=[*LEAVES.values()], remote=FAR)
    async def far_branch(ctx: RunContext, label: str, steps: list[Any]) -> list[Any]:
        """Go through steps, on any worker."""
        return await _go_through(ctx, steps)

    @tool(uses=[*LEAVES.values()])
    async def branch(ctx: RunContext, label: str, steps: list[Any]) -> list[Any]:
        """Go through steps."""
        return await _go_through(ctx, steps)

    @tool(uses=[*LEAVES.values(), branch, far_branch])
    async def root(ctx: RunContext, tag: int, steps: list[Any]) -> list[Any]:
        """Go through the steps of a tree."""
        return await _go_through(ctx, steps)


CALLED: Final[Mapping[str, Function]] = {
    **LEAVES,
    **{one.name: one for one in (branch, far_branch)},
}


async def _go_through(ctx: RunContext, steps: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [await _do(ctx, step) for step in steps]


async def _do(ctx: RunContext, step: Mapping[str, Any]) -> Any:
    if "all" in step:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_do(ctx, one)) for one in step["all"]]
        return [task.result() for task in tasks]
    label: str = step["args"]["label"]
    budget = Budget(**step["budget"]) if "budget" in step else None
    function = CALLED[step["call"]]
    try:
        return await ctx.invoke(function, step["args"], timeout=step.get("timeout"), budget=budget)
    except InDoubtError:
        return f"doubt {label}"
    except BudgetExceeded:
        return f"spent {label}"
    except CallTimeoutError:
        return f"late {label}"
    except CancellationException:
        return f"cancelled {label}"


class ServedModel(Model):
    """A model whose replies come from a server on loopback, which counts what it is asked."""

    def __init__(self, port: int, worker: str) -> None:
        self.name = "openai:served"
        self.provider = Provider.OpenAI
        self.port = port
        self.worker = worker

    def open(
        self,
        system: str = "",
        functions: Sequence[Function] = (),
        settings: ModelSettings | None = None,
        *,
        exchanges: Sequence[Exchange] = (),
    ) -> Session:
        reply: list[Any] = []
        script = ScriptedModel(lambda _: reply.pop())
        inner = script.open(system, functions, settings, exchanges=exchanges)
        return ServedSession(self, inner, reply)


class ServedSession(WrappedSession):
    """A session of a ServedModel."""

    def __init__(self, model: ServedModel, inner: Session, reply: list[Any]) -> None:
        super().__init__(inner)
        self._model = model
        self._reply = reply

    async def send(self, *inputs: UserText | ToolResult) -> AsyncGenerator[ModelEvent, None]:
        parts = [_plain(part) for part in (*self._inner.transcript, *inputs)]
        said = [part for part in parts if part is not None]
        answer = await self._ask(said)
        if setting().planted:
            await self._ask(said)
        self._reply[:] = [
            answer["text"]
            if "text" in answer
            else [ToolUse(use["id"], use["call"], use["args"]) for use in answer["uses"]]
        ]
        events = self._inner.send(*inputs)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()

    async def _ask(self, said: list[Any]) -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._model.port, limit=1 << 22)
        try:
            request = {"worker": self._model.worker, "pid": os.getpid(), "said": said}
            # As short a time before the request as can be: a process may be stopped in between.
            if (confirm := before_attempt.get()) is not None:
                await confirm()
            writer.write(json.dumps(request).encode() + b"\n")
            line = await reader.readline()
            if not line:
                raise ConnectionError("the server of the model has gone")
            return json.loads(line)
        finally:
            writer.close()


def _plain(part: Any) -> Any:
    match part:
        case UserText(text=text):
            return {"text": text}
        case ToolUse(id=id):
            return {"use": id}
        case ToolResult(tool_use_id=id, content=content):
            return {"result": id, "text": content}
        case _:
            return None


def open_runtime(told: Setting) -> Runtime:
    """Return a runtime that runs plans, or submits them."""
    return Runtime(
        [root],
        store=told.url,
        engine=make_engine(told.engine, told.url),
        models=ServedModel(told.port, told.name),
        limits=Limits(50, cluster_requests=told.requests),
        worker=WorkerSettings(
            name=told.name, lease=told.lease, beat=told.lease / 6, sweep=0.2, poll=0.2
        ),
    )


def tell(*_: object) -> None:
    """Say where all tasks and threads of this process are."""
    with suppress(RuntimeError):
        for task in asyncio.all_tasks():
            sys.stderr.write(f"task {task.get_name()}\n")
            awaited: Any = task.get_coro()
            while (frame := getattr(awaited, "cr_frame", None)) is not None:
                code, known = frame.f_code, frame.f_locals
                about = [known[name] for name in ("node", "child", "root", "run") if name in known]
                where = f"{code.co_filename}:{frame.f_lineno} {code.co_qualname} {about}"
                sys.stderr.write(f"    {where}\n")
                awaited = awaited.cr_await
    sys.stderr.flush()
    faulthandler.dump_traceback(all_threads=True)


def runtime() -> Runtime:
    """Return the runtime of a worker."""
    signal.signal(signal.SIGUSR1, tell)
    told, right, began = setting(), time.time, time.monotonic()
    if told.clock:
        time.time = lambda: right() + (told.clock if time.monotonic() > began + 1.0 else 0.0)
    return open_runtime(told)
