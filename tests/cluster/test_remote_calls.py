"""Calls that other workers run than their caller."""

import asyncio
import logging
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from cluster.conftest import Workers
from cluster.quick import QUICK
from cluster.serving import Serving
from cluster.test_shared_runtime import ADD, PATIENCE, eventually
from treefold import (
    AgentFunction,
    Budget,
    BudgetExceeded,
    CodeFunction,
    Ensemble,
    Limits,
    NodeState,
    RunContext,
    Runtime,
    ThinkMore,
    ToolResult,
    ToolUse,
    WorkerSettings,
    attach,
)
from treefold.core.call_request import CallRequest
from treefold.core.decisions import Rules
from treefold.engines import InProcess, Ticket
from treefold.errors import UsageError
from treefold.runtime.calls.node import CallNode
from treefold.stores import Load, Orders
from treefold.stores.postgres import PostgresStore
from treefold.testing import ScriptedModel, ScriptedRequest
from treefold.testing.cluster_suite import cluster_of
from treefold.toolbox import human_in_loop
from work_engines import make_engine
from wrapped_engine import WrappedEngine
from wrapped_part import WrappedPart


def serving(*queues: str, slots: int = 50) -> WorkerSettings:
    """Return settings for a worker of these queues."""
    return replace(QUICK, queues=queues, slots=slots)


def remote(name: str, body: Any, queue: str = "far", **options: Any) -> CodeFunction:
    """Return a function that workers of *queue* run."""
    return CodeFunction(name=name, callable=body, remote=queue, **options)


def calling(name: str, *functions: CodeFunction) -> CodeFunction:
    """Return a function that calls each of *functions* with its own argument, one by one."""

    async def call(ctx: RunContext, n: int) -> list[Any]:
        return [await ctx.invoke(function, {"n": n}) for function in functions]

    return CodeFunction(name=name, callable=call, uses=functions)


class Place:
    """A function that knows which runtimes have run it."""

    def __init__(self) -> None:
        self.runtimes: list[Any] = []

    async def __call__(self, ctx: RunContext, n: int) -> int:
        self.runtimes.append(ctx.runtime)
        return n * 2


def test_a_remote_call_runs_on_a_worker_of_its_queue_and_is_part_of_its_tree(
    any_workers: Workers,
):
    place = Place()
    double = remote("double", place)
    work = calling("work", double, double)
    near = any_workers(work, worker=serving("near"))
    far = any_workers(work, worker=serving("far"))
    node = near.invoke(work, {"n": 4})
    assert node.result(PATIENCE) == [8, 8]
    assert place.runtimes == [far, far]
    view = near.get_view(node.id)
    assert [(child.fn, child.state, child.outputs) for child in view.children] == [
        ("double", NodeState.Success, 8)
    ] * 2
    with attach(any_workers.url) as observer:
        eventually(lambda: observer.get_view(node.id).state is NodeState.Success)
        seen = observer.get_view(node.id)
    assert [child.path for child in seen.children] == [child.path for child in view.children]
    assert [child.id > seen.id for child in seen.children] == [True, True]


def test_an_agent_has_its_tools_and_sub_agents_run_elsewhere(any_workers: Workers):
    place = Place()
    double = remote("double", place, desc="Double it.")
    helper = AgentFunction(
        "helper", "Help.", user_prompt_template="Help.", uses=[double], remote="far"
    )
    chief = AgentFunction("chief", "Lead.", user_prompt_template="Lead.", uses=[helper])
    models = {
        "default": ScriptedModel([ToolUse("1", "helper", {})], "chief is done"),
    }
    far_model = ScriptedModel([ToolUse("2", "double", {"n": 3})], "helper is done")
    near = any_workers(chief, models=models, worker=serving("near"))
    any_workers(chief, models=far_model, worker=serving("far"))
    node = near.invoke(chief)
    assert node.result(PATIENCE) == "chief is done"
    view = near.get_view(node.id)
    assert [child.outputs for child in view.children] == ["helper is done"]
    eventually(lambda: [c.outputs for c in near.get_view(node.id).children[0].children] == [6])


def test_nested_remote_calls_do_not_deadlock_with_one_slot(any_workers: Workers):
    inner = remote("inner", Place())
    middle = calling("middle", inner)
    middle.queue = "far"
    outer = calling("outer", middle)
    outer.queue = "far"
    top = calling("top", outer)
    near = any_workers(top, worker=serving("near"))
    any_workers(top, worker=serving("far", slots=1))
    assert near.invoke(top, {"n": 1}).result(PATIENCE) == [[[2]]]


def test_a_worker_that_serves_the_queue_runs_the_calls_of_its_own_trees_in_place(
    any_workers: Workers,
):
    place = Place()
    work = calling("work", remote("double", place, "default"))
    runtime = any_workers(work)
    node = runtime.invoke(work, {"n": 2})
    assert node.result(PATIENCE) == [4]
    assert place.runtimes == [runtime]


def test_the_exception_of_a_remote_call_is_raised_in_its_caller(any_workers: Workers):
    async def fail(ctx: RunContext, n: int) -> None:
        raise ValueError(f"{n} will not do")

    work = calling("work", remote("fail", fail))
    near = any_workers(work, worker=serving("near"))
    any_workers(work, worker=serving("far"))
    with pytest.raises(ValueError, match="5 will not do"):
        near.invoke(work, {"n": 5}).result(PATIENCE)


def test_cancelling_the_caller_cancels_the_call_elsewhere(any_workers: Workers):
    begun, cancelled = threading.Event(), threading.Event()

    async def wait(ctx: RunContext, n: int) -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    work = calling("work", remote("wait", wait))
    near = any_workers(work, worker=serving("near"))
    any_workers(work, worker=serving("far"))
    node = near.invoke(work, {"n": 1})
    assert begun.wait(PATIENCE)
    near.cancel(node.id, "enough")
    assert cancelled.wait(PATIENCE)
    eventually(lambda: node.state is NodeState.Canceled)
    assert near.get_view(node.id).children[0].state is NodeState.Canceled


def test_a_question_of_a_remote_call_is_answered_from_the_process_of_its_caller(
    any_workers: Workers,
):
    async def ask(ctx: RunContext, n: int) -> str:
        return await ctx.ask("Which colour?")

    work = calling("work", remote("ask", ask, repeatable=True))
    near = any_workers(work, worker=serving("near"))
    any_workers(work, worker=serving("far"))
    node = near.invoke(work, {"n": 1})
    eventually(near.questions, "the question")
    near.answer(near.questions()[0].id, "red")
    assert node.result(PATIENCE) == ["red"]


def test_a_caller_that_is_taken_over_finds_its_remote_call_again(any_workers: Workers):
    begun, gate, runs = threading.Event(), threading.Event(), [0]

    def wait(ctx: RunContext, n: int) -> str:
        runs[0] += 1
        begun.set()
        assert gate.wait(PATIENCE)
        return "done"

    work = calling("work", remote("wait", wait))
    first = any_workers(work, worker=serving("near"))
    any_workers(work, worker=serving("far"))
    node = first.invoke(work, {"n": 1})
    assert begun.wait(PATIENCE)
    any_workers.close(first)
    second = any_workers(work, worker=serving("near"))
    eventually(lambda: second.get_view(node.id).state is NodeState.Running)
    gate.set()
    eventually(lambda: second.get_view(node.id).outputs == ["done"], "the end")
    assert runs == [1]


class Withholding(InProcess):
    """Delivers no drive of a queue until it is told to."""

    def __init__(self, queue: str) -> None:
        super().__init__()
        self.is_open = threading.Event()
        self._queue = queue

    async def submit(self, ticket: Ticket) -> None:
        if ticket.queue != self._queue or self.is_open.is_set():
            await super().submit(ticket)


def test_a_remote_call_that_another_worker_has_begun_is_finished_by_that_of_its_caller(
    workers: Workers,
):
    """The worker of the caller has to read first what the other one has written."""
    begun, gate = threading.Event(), threading.Event()

    async def wait(ctx: RunContext, n: int) -> int:
        first = await ctx.invoke(ADD, {"a": n, "b": n})
        begun.set()
        while not gate.is_set():  # noqa: ASYNC110 - it is set in another thread
            await asyncio.sleep(0.01)
        return await ctx.invoke(ADD, {"a": first, "b": 1})

    work = calling("work", remote("wait", wait, uses=[ADD], repeatable=True))
    engine = Withholding("far")

    async def main() -> Any:
        stop = asyncio.Event()
        async with (
            Runtime(
                [work], store=workers.url, worker=serving("near", "far"), engine=engine
            ) as near,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(near.work(stop=stop))
            far = Runtime([work], store=workers.url, worker=serving("far"))
            far.recover()
            node = near.invoke(work, {"n": 2}, queue="near")
            await asyncio.to_thread(eventually, begun.is_set)
            await asyncio.to_thread(far.close)
            engine.is_open.set()
            gate.set()
            async with asyncio.timeout(PATIENCE):
                result = await node
            stop.set()
        return result

    assert asyncio.run(main()) == [5]


class LosingStore(PostgresStore):
    """Says with each heartbeat that some drives are lost."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        members: Any = LosingMembers(self.cluster.members)
        self.cluster = replace(self.cluster, members=members)


class LosingMembers(WrappedPart):
    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.lost = frozenset[int]()
        self.times = 0  # how often it said so

    def beat(self, load: Load) -> Orders:
        orders: Orders = self.inner.beat(load)
        self.times += bool(self.lost)
        lost = orders.lost | self.lost
        return Orders(lost=lost, messages=orders.messages, drain=orders.drain, now=orders.now)


def test_a_call_that_is_lost_once_more_while_it_cleans_up_leaves_its_caller_alone(
    workers: Workers,
):
    begun, cleans, cleaned = Counter[str](), threading.Event(), threading.Event()

    async def wait(ctx: RunContext, n: int) -> int:
        first = await ctx.invoke(ADD, {"a": n, "b": n})
        begun[ctx.runtime.worker_settings.known_as] += 1
        if ctx.runtime.worker_settings.known_as == "far" or not cleans.is_set():
            try:
                await asyncio.sleep(2 * PATIENCE)
            finally:
                cleans.set()
                while not cleaned.is_set():  # noqa: ASYNC110 - it is set in another thread
                    await asyncio.sleep(0.01)
        return first + 1

    work = calling("work", remote("wait", wait, uses=[ADD], repeatable=True))
    engine, store = Withholding("far"), LosingStore(workers.url)
    losing: Any = store.cluster.members
    both = replace(serving("near", "far"), name="near")

    async def main() -> Any:
        stop = asyncio.Event()
        async with (
            Runtime([work], store=store, worker=both, engine=engine) as near,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(near.work(stop=stop))
            far = Runtime([work], store=workers.url, worker=replace(serving("far"), name="far"))
            far.recover()
            node = near.invoke(work, {"n": 2}, queue="near")
            await asyncio.to_thread(eventually, lambda: begun["far"])
            cleaned.set()
            await asyncio.to_thread(far.close)
            cleans.clear()
            cleaned.clear()
            engine.is_open.set()
            await asyncio.to_thread(eventually, lambda: begun["near"])
            losing.lost = frozenset({near.get_view(node.id).children[0].id})
            await asyncio.to_thread(eventually, lambda: losing.times > 3)
            losing.lost = frozenset()
            cleaned.set()
            async with asyncio.timeout(PATIENCE):
                result = await node
            stop.set()
        return result

    assert asyncio.run(main()) == [5]
    assert begun == {"far": 1, "near": 2}


def test_a_call_is_run_in_the_tree_that_was_taken_over_and_not_in_the_one_that_follows_it(
    workers: Workers,
):
    async def ask(ctx: RunContext, n: int) -> str:
        return await ctx.ask("Which colour?")

    work = calling("work", remote("ask", ask, repeatable=True))
    engine = Withholding("far")
    runtime = Runtime([work], store=workers.url, worker=serving("near", "far"), engine=engine)
    first = Serving(runtime)
    try:
        node = runtime.invoke(work, {"n": 1}, queue="near")
        # It was submitted here: this node follows the one that runs.
        eventually(lambda: node.get_children(), "the call")
        engine.is_open.set()
        eventually(runtime.questions, "the question")
        runtime.answer(runtime.questions()[0].id, "red")
        assert node.result(PATIENCE) == ["red"]
    finally:
        first.close()


class Patient(Runtime):
    """Cancels a call once, and waits for its end."""

    patience = 3600.0


class Stuck(WrappedEngine):
    """Does not answer when a drive of a queue is submitted."""

    def __init__(self, queue: str) -> None:
        super().__init__(InProcess())
        self.is_stuck = threading.Event()
        self._queue = queue

    async def submit(self, ticket: Ticket) -> None:
        if ticket.queue == self._queue:
            self.is_stuck.set()
            await asyncio.Event().wait()
        await super().submit(ticket)


def test_a_caller_is_given_up_though_its_call_is_just_being_submitted(workers: Workers):
    work, engine = calling("work", remote("double", Place())), Stuck("far")
    runtime = Patient([work], store=workers.url, worker=serving("near"), engine=engine)
    first = Serving(runtime)
    try:
        node = runtime.invoke(work, {"n": 2}).id
        eventually(engine.is_stuck.is_set)
        first.drain()
        for queue in ("near", "far"):
            workers(work, worker=serving(queue))
        with attach(workers.url) as observer:
            eventually(lambda: observer.get_view(node).state.final)
            assert observer.get_view(node).outputs == [4]
    finally:
        first.close()


@pytest.mark.parametrize("answer", ["use: 5", None])
def test_a_question_of_a_remote_call_is_settled_there_though_its_tree_is_parked_later(
    workers: Workers, caplog: pytest.LogCaptureFixture, answer: str | None
):
    caplog.set_level(logging.INFO, "treefold")
    begun, gate = threading.Event(), threading.Event()

    async def wait(ctx: RunContext, n: int) -> int:
        begun.set()
        while not gate.is_set():  # noqa: ASYNC110 - it is set in another thread
            await asyncio.sleep(0.01)
        return n

    work = calling("work", remote("wait", wait))
    first = Runtime([work], store=workers.url, worker=serving("a", "far"))
    node = first.invoke(work, {"n": 2}).id
    eventually(begun.is_set)
    first.close()
    engine = Withholding("a")  # the queue of the tree

    async def main() -> None:
        stop = asyncio.Event()
        async with (
            Runtime([work], store=workers.url, worker=serving("a", "far"), engine=engine) as one,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(one.work(stop=stop))
            with attach(workers.url) as observer:
                # The remote call is in doubt before its tree is taken over.
                await asyncio.to_thread(eventually, lambda: len(observer.questions()) == 1)
                engine.is_open.set()
                # The tree is taken over, and parked.
                await asyncio.to_thread(eventually, lambda: "was given up" in caplog.text)
                asked = observer.questions()[0]
                if answer is None:
                    observer.cancel(asked.node_id)
                else:
                    observer.answer(asked.id, answer)
                await asyncio.to_thread(eventually, lambda: not observer.trees()[0].open)
                assert observer.get_view(node).outputs == (None if answer is None else [5])
            stop.set()

    asyncio.run(main())


@pytest.mark.parametrize("is_first", [True, False])
def test_an_answer_to_a_call_in_doubt_below_a_remote_call_reaches_whoever_runs_that(
    workers: Workers, *, is_first: bool
):
    begun, gate = threading.Event(), threading.Event()

    async def pay(ctx: RunContext, n: int) -> int:
        begun.set()
        while not gate.is_set():  # noqa: ASYNC110 - nobody sets it: the process ends
            await asyncio.sleep(0.01)
        return n

    paying = CodeFunction(name="pay", callable=pay)

    async def errand(ctx: RunContext, n: int) -> int:
        return await ctx.invoke(paying, {"n": n})

    work = calling("work", remote("errand", errand, uses=[paying], repeatable=True))
    # It serves both queues, so that the remote call runs as part of its tree.
    first = workers(work, worker=serving("a", "far"))
    node = first.invoke(work, {"n": 2}).id
    eventually(begun.is_set)
    workers.close(first)
    # The next worker of the tree does not run the remote call.
    for queue in ("a", "far") if is_first else ("far", "a"):
        workers(work, worker=serving(queue))
    with attach(workers.url) as observer:
        eventually(observer.questions, "the question")
        [asked] = observer.questions()
        observer.answer(asked.id, "use: 5")
        eventually(lambda: observer.get_view(node).state.final)
        assert observer.get_view(node).outputs == [5]


def test_what_cannot_be_sent_is_refused_before_anything_is_written(workers: Workers):
    work_on = remote("work_on", lambda ctx, n: n)

    async def call(ctx: RunContext) -> Any:
        return await ctx.invoke(work_on, {"n": object()})

    work = CodeFunction(name="work", callable=call, uses=[work_on])
    near = workers(work, worker=serving("near"))
    node = near.invoke(work)
    with pytest.raises(ValueError, match="has no JSON form, and the call is remote"):
        node.result(PATIENCE)
    assert near.get_view(node.id).children == ()


def test_without_a_shared_store_remote_functions_run_here():
    work = calling("work", remote("double", Place()))
    with Runtime([work]) as runtime:
        assert runtime.invoke(work, {"n": 1}).result(PATIENCE) == [2]


def test_a_parked_remote_call_is_released_and_goes_on_when_it_is_answered(any_workers: Workers):
    def reply(request: Any) -> Any:
        done = any(type(part).__name__ == "ToolResult" for part in request.transcript)
        return "Thanks." if done else [ToolUse("1", "human_in_loop", {"question": "Which?"})]

    asker = AgentFunction(
        "asker", "Ask.", user_prompt_template="Ask.", uses=[human_in_loop], remote="far"
    )

    async def call(ctx: RunContext) -> str:
        return await ctx.invoke(asker, {})

    work = CodeFunction(name="work", callable=call, uses=[asker, ADD])
    near = any_workers(work, worker=serving("near"), models=ScriptedModel(reply))
    far = any_workers(work, worker=serving("far"), models=ScriptedModel(reply))
    node = near.invoke(work)
    eventually(near.questions, "the question")
    store = far.store
    assert store is not None
    eventually(
        lambda: [worker.drives for worker in cluster_of(store).members.workers()] == [1, 0],
        "the release",
    )
    near.answer(near.questions()[0].id, "red")
    assert node.result(PATIENCE) == "Thanks."


def far_agent(name: str, queue: str) -> AgentFunction:
    """Return an agent that workers of *queue* run."""
    return AgentFunction(name, "Help.", user_prompt_template="Help.", remote=queue)


def test_a_lease_is_given_up_when_the_remote_call_that_took_it_ends(any_workers: Workers):
    helper = far_agent("helper", "far")
    work = CodeFunction(name="work", callable=_ask_twice(helper), uses=[helper])
    near = any_workers(work, worker=serving("near"))
    any_workers(work, models=ScriptedModel("Yes.", "No."), limits=Limits(1), worker=serving("far"))

    assert near.invoke(work).result(PATIENCE) == ["Yes.", "No."]


def test_agents_of_two_workers_that_wait_for_each_other_hold_no_lease(any_workers: Workers):
    leads = {
        queue: AgentFunction(
            f"lead_{queue}",
            "Lead.",
            user_prompt_template="Lead.",
            uses=[far_agent(f"helper_{other}", other)],
        )
        for queue, other in (("one", "two"), ("two", "one"))
    }
    # Each has its only lease when it asks for help of the other.
    both_lead = threading.Barrier(2)

    def reply(request: ScriptedRequest) -> Any:
        if isinstance(request.transcript[-1], ToolResult):
            return "Done."
        if request.functions:
            both_lead.wait(PATIENCE)
            return ToolUse("1", next(iter(request.functions)), {})
        return "Helped."

    nodes = [
        any_workers(
            *leads.values(), models=ScriptedModel(reply), limits=Limits(1), worker=serving(queue)
        ).invoke(lead)
        for queue, lead in leads.items()
    ]

    assert [node.result(PATIENCE) for node in nodes] == ["Done.", "Done."]


def _ask_twice(helper: AgentFunction) -> Any:
    async def ask(ctx: RunContext) -> list[str]:
        return [await ctx.invoke(helper, {}) for _ in range(2)]

    return ask


class Gate:
    """A function that waits until it is opened."""

    def __init__(self) -> None:
        self.begun, self.opened = threading.Event(), threading.Event()

    async def __call__(self, ctx: RunContext, n: int) -> int:
        self.begun.set()
        while not self.opened.is_set():  # noqa: ASYNC110 - it is set in another thread
            await asyncio.sleep(0.01)
        return n


def drives(runtime: Runtime) -> list[int]:
    """Return how many drives each worker owns."""
    store = runtime.store
    assert store is not None
    return [worker.drives for worker in cluster_of(store).members.workers()]


def test_a_remote_call_can_be_cancelled_before_it_is_written(any_workers: Workers):
    wait = remote("wait", Gate())

    async def call(ctx: RunContext) -> str:
        node = ctx.invoke(wait, {"n": 1})
        node.cancel("at once")
        try:
            await node
        except Exception as error:  # noqa: BLE001 - its name is the result
            return type(error).__name__
        return "ended"

    work = CodeFunction(name="work", callable=call, uses=[wait])
    near = any_workers(work, worker=serving("near"))
    any_workers(work, worker=serving("far"))
    assert near.invoke(work).result(PATIENCE) == "CancellationException"


def test_a_remote_call_is_paused_and_resumed_from_the_process_of_its_caller(any_workers: Workers):
    gate = Gate()

    async def steps(ctx: RunContext, n: int) -> int:
        await gate(ctx, n)
        return await ctx.invoke(ADD, {"a": n, "b": 1})

    work = calling("work", remote("steps", steps, uses=[ADD]))
    near = any_workers(work, worker=serving("near"))
    far = any_workers(work, worker=serving("far"))
    node = near.invoke(work, {"n": 1})
    assert gate.begun.wait(PATIENCE)
    eventually(lambda: near.get_view(node.id).children)
    child = near.get_view(node.id).children[0].id
    near.pause(child)
    eventually(near.questions, "the question")
    gate.opened.set()
    for runtime in (near, far):
        eventually(lambda runtime=runtime: runtime.get_view(child).state is NodeState.Paused)
    near.resume(child)
    assert node.result(PATIENCE) == [2]


def test_a_remote_call_makes_no_call_while_its_caller_is_paused(any_workers: Workers):
    gate = Gate()

    async def steps(ctx: RunContext, n: int) -> int:
        await gate(ctx, n)
        return await ctx.invoke(ADD, {"a": n, "b": 1})

    work = calling("work", remote("steps", steps, uses=[ADD]))
    near = any_workers(work, worker=serving("near"))
    far = any_workers(work, worker=serving("far"))
    node = near.invoke(work, {"n": 1})
    assert gate.begun.wait(PATIENCE)
    eventually(lambda: near.get_view(node.id).children)
    child = near.get_view(node.id).children[0].id
    near.pause(node.id)
    # What is under way goes on, so that it may end before the pause is seen there.
    eventually(lambda: is_held(far, child))
    gate.opened.set()
    eventually(lambda: far.get_view(child).state is NodeState.Paused)
    assert [one.state for one in far.get_view(child).children] == [NodeState.Waiting]
    near.resume(node.id)
    assert node.result(PATIENCE) == [2]


def is_held(runtime: Runtime, id: int) -> bool:
    """Whether a call would begin nothing just now, in the runtime that runs it."""
    [node, *_] = runtime.get_subtree(id)
    assert isinstance(node, CallNode)
    return node.tree.is_held


def resume_once_taken(runtime: Runtime, node: int) -> None:
    """Resume a call; it is refused at the moment at which its tree is taken by a worker."""

    def is_taken() -> bool:
        with suppress(UsageError):
            runtime.resume(node)
            return True
        return False

    eventually(is_taken, "the resume")


@pytest.mark.parametrize("queue", ["far", "near"])
def test_a_remote_call_does_not_begin_while_its_caller_is_paused(any_workers: Workers, queue: str):
    place = Place()
    work = calling("work", remote("double", place))
    near = any_workers(work, worker=serving("near"))
    node = near.invoke(work, {"n": 4})
    eventually(lambda: near.get_view(node.id).children)
    child = near.get_view(node.id).children[0].id
    near.pause(node.id)
    eventually(near.questions, "the question")
    if queue == "near":
        # The same worker takes the caller over, and runs the call as part of its tree.
        any_workers.close(near)
    taking = any_workers(work, worker=serving("far", *({"near"} & {queue})))
    eventually(lambda: taking.get_view(child).state is NodeState.Paused)
    assert not place.runtimes
    with attach(any_workers.url) as observer:
        resume_once_taken(taking, node.id)
        eventually(lambda: observer.get_view(node.id).state.final)
        assert observer.get_view(node.id).outputs == [8]


def test_a_remote_call_that_was_cancelled_in_place_is_released(any_workers: Workers):
    gate = Gate()
    work = calling("work", remote("wait", gate, "default"))
    runtime = any_workers(work)
    node = runtime.invoke(work, {"n": 1})
    assert gate.begun.wait(PATIENCE)
    with attach(any_workers.url) as observer:
        eventually(lambda: observer.get_view(node.id).children)
        observer.cancel(observer.get_view(node.id).children[0].id, "enough")
        eventually(lambda: not observer.trees()[0].open, "the end")
    eventually(lambda: drives(runtime) == [0], "the release")


def test_remote_calls_in_place_take_slots(any_workers: Workers):
    running, most = 0, 0

    async def count(ctx: RunContext, n: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1
        return n

    step = remote("step", count, "default")

    async def call(ctx: RunContext) -> list[int]:
        return [await node for node in [ctx.invoke(step, {"n": n}) for n in range(6)]]

    work = CodeFunction(name="work", callable=call, uses=[step])
    runtime = any_workers(work, worker=serving("default", slots=2))
    assert runtime.invoke(work).result(PATIENCE) == [*range(6)]
    assert most <= 2


def test_a_caller_is_handed_over_though_its_remote_call_must_not_be_repeated(placed: Workers):
    gate = Gate()
    work = calling("work", remote("wait", gate))
    placed(work, worker=serving("far"))
    engine = make_engine(placed.engine, placed.url)
    first = Runtime([work], store=placed.url, worker=serving("near"), engine=engine)
    draining = Serving(first)
    node = placed.submitter(work, worker=serving("near")).invoke(work, {"n": 1})
    assert gate.begun.wait(PATIENCE)
    eventually(lambda: first.get_view(node.id).children[0].state is NodeState.Running)
    draining.drain()
    draining.join()
    assert not gate.opened.is_set()
    placed(work, worker=serving("near"))
    gate.opened.set()
    assert node.result(PATIENCE) == [1]


def test_a_caller_is_parked_though_its_remote_call_must_not_be_repeated(placed: Workers):
    async def ask(ctx: RunContext, n: int) -> str:
        return await ctx.ask("Which colour?")

    work = calling("work", remote("ask", ask))
    near = placed(work, worker=serving("near"))
    placed(work, worker=serving("far"))
    node = near.invoke(work, {"n": 1})
    eventually(near.questions, "the question")
    eventually(lambda: drives(near) == [0, 1], "the release")
    near.answer(near.questions()[0].id, "red")
    assert node.result(PATIENCE) == ["red"]


def test_a_remote_call_of_a_fork_counts_what_the_fork_has_inherited(any_workers: Workers):
    helper = AgentFunction("helper", "Help.", user_prompt_template="Help.", remote="far")
    chief = AgentFunction(
        "chief", "Lead.", user_prompt_template="Lead.", uses=[helper], budget=Budget(calls=1)
    )
    leading = ScriptedModel([ToolUse("1", "helper", {})], lambda _: "chief is done")
    helping = ScriptedModel(lambda _: "helper is done")
    near = any_workers(chief, models=leading, worker=serving("near"))
    any_workers(chief, models=helping, worker=serving("far"))
    node = near.invoke(chief)
    with pytest.raises(BudgetExceeded):
        node.result(PATIENCE)
    fork = near.fork(node, at=1)
    with pytest.raises(BudgetExceeded, match="1 of 1 requests"):
        fork.result(PATIENCE)
    assert (len(leading.requests), len(helping.requests)) == (1, 0)


@pytest.mark.parametrize("at", ["wait", "add"])
def test_a_fork_runs_the_open_remote_calls_that_it_shares(any_workers: Workers, at: str):
    gate = Gate()
    wait = remote("wait", gate, repeatable=True)

    async def call(ctx: RunContext) -> list[int]:
        nodes = ctx.invoke(wait, {"n": 1}), ctx.invoke(ADD, {"a": 1, "b": 1})
        return [await node for node in nodes]

    work = CodeFunction(name="work", callable=call, uses=[wait, ADD])
    near = any_workers(work, worker=serving("near"))
    any_workers(work, worker=serving("far"))
    node = near.invoke(work)
    assert gate.begun.wait(PATIENCE)
    eventually(lambda: [one.fn for one in near.get_view(node.id).children] == ["wait", "add"])
    fork = near.fork(next(one.id for one in near.get_view(node.id).children if one.fn == at))
    gate.opened.set()
    assert [each.result(PATIENCE) for each in (node, fork)] == [[1, 2], [1, 2]]


def orphaned(placed: Workers, work: CodeFunction, gate: Gate) -> tuple[Runtime, Runtime, int]:
    """Have the worker of a caller close while its remote call runs.

    Returns:
        The worker of the remote call, a runtime that only submits, and the id of the tree.
    """
    near = placed(work, worker=serving("near"))
    far = placed(work, worker=serving("far"))
    submitter = placed.submitter(work, worker=serving("near"))
    node = submitter.invoke(work, {"n": 1})
    assert gate.begun.wait(PATIENCE)
    eventually(lambda: drives(far) == [1, 1, 0])
    placed.close(near)
    return far, submitter, node.id


def test_a_caller_that_is_cancelled_while_it_has_no_worker_cancels_its_remote_call(
    placed: Workers,
):
    gate = Gate()
    work = calling("work", remote("wait", gate))
    far, submitter, id = orphaned(placed, work, gate)
    submitter.cancel(id, "enough")
    placed(work, worker=serving("near"))
    with attach(placed.url) as observer:
        eventually(lambda: observer.get_view(id).state is NodeState.Canceled)
        eventually(lambda: observer.get_view(id).children[0].state is NodeState.Canceled)
    eventually(lambda: drives(far) == [0, 0, 0], "the release")
    assert far.worker_status().lost == 0


def test_a_remote_call_that_its_caller_does_not_make_again_is_cancelled_where_it_runs(
    placed: Workers,
):
    gate, is_first = Gate(), [True]
    wait = remote("wait", gate)

    async def call(ctx: RunContext, n: int) -> str:
        if is_first.pop():
            await ctx.invoke(wait, {"n": n})
        return "done"

    work = CodeFunction(name="work", callable=call, uses=[wait], repeatable=True)
    far, submitter, id = orphaned(placed, work, gate)
    is_first.append(False)
    placed(work, worker=serving("near"))
    eventually(lambda: submitter.get_view(id).outputs == "done")
    assert submitter.get_view(id).children[0].state is NodeState.Canceled
    eventually(lambda: drives(far) == [0, 0, 0], "the release")
    assert far.worker_status().lost == 0


def test_what_a_caller_may_not_do_its_remote_calls_do_not_do_either(any_workers: Workers):
    place = Place()
    double = CodeFunction(name="double", callable=place)
    helper = AgentFunction(
        "helper", "Help.", user_prompt_template="Help.", uses=[double], remote="far"
    )
    chief = AgentFunction("chief", "Lead.", user_prompt_template="Lead.", uses=[helper])

    async def call(ctx: RunContext) -> Any:
        rules = Rules.of(None, ["double"], None)
        return await ctx.start(CallRequest(chief, {}, rules=rules))

    work = CodeFunction(name="work", callable=call, uses=[chief])
    models = [ScriptedModel(ToolUse("1", name, {"n": 1}), "Done.") for name in ("helper", "double")]
    near = any_workers(work, models=models[0], worker=serving("near"))
    any_workers(work, models=models[1], worker=serving("far"))
    with pytest.raises(UsageError, match="helper is called under the permissions or hooks"):
        near.invoke(work).result(PATIENCE)
    assert place.runtimes == []


def test_a_remote_call_that_was_not_awaited_to_its_end_is_made_again_after_a_takeover(
    placed: Workers,
):
    gate, hold = Gate(), Gate()
    wait = remote("wait", gate, repeatable=True)
    step = CodeFunction(name="step", callable=hold, repeatable=True)

    async def call(ctx: RunContext, n: int) -> str:
        said = "ended"
        try:
            async with asyncio.timeout(0.2):
                await ctx.invoke(wait, {"n": n})
        except TimeoutError:
            said = "timed out"
        await ctx.invoke(step, {"n": n})
        return said

    work = CodeFunction(name="work", callable=call, uses=[wait, step], repeatable=True)
    near = placed(work, worker=serving("near"))
    placed(work, worker=serving("far"))
    node = placed.submitter(work, worker=serving("near")).invoke(work, {"n": 1})
    assert hold.begun.wait(PATIENCE)
    placed.close(near)
    hold.opened.set()
    placed(work, worker=serving("near"))
    # As a call that runs with its caller: its end is not known, and the same happens again.
    assert node.result(PATIENCE) == "timed out"


def test_a_remote_call_that_was_given_up_before_a_takeover_is_run_for_the_caller_that_awaits_it(
    placed: Workers,
):
    lives: list[int] = []
    hold = Gate()
    wait = remote("wait", _echo, repeatable=True)
    step = CodeFunction(name="step", callable=hold, repeatable=True)

    async def call(ctx: RunContext, n: int) -> int | None:
        lives.append(n)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1 if len(lives) == 1 else PATIENCE):
                return await ctx.invoke(wait, {"n": n})
        await ctx.invoke(step, {"n": n})
        return None

    work = CodeFunction(name="work", callable=call, uses=[wait, step], repeatable=True)
    near = placed(work, worker=serving("near"))
    node = placed.submitter(work, worker=serving("near")).invoke(work, {"n": 7})
    assert hold.begun.wait(PATIENCE)
    with PostgresStore(placed.url) as desk:
        eventually(desk.inbox, "the cancellation")
    placed.close(near)
    placed(work, worker=serving("near"))
    eventually(lambda: len(lives) == 2, "the second life")
    # Only now somebody reads the cancellation, which the first life has asked for.
    placed(work, worker=serving("far"))
    assert node.result(PATIENCE) == 7


async def _echo(ctx: RunContext, n: int) -> int:
    return n


@pytest.mark.parametrize("kind", ["ensemble", "think more"])
def test_the_members_of_an_ensemble_may_be_remote(any_workers: Workers, kind: str):
    member = far_agent("helper", "far")
    several = ThinkMore(member) if kind == "think more" else Ensemble(member, {"a": 1, "b": 1})
    models = [{name: ScriptedModel(*[name] * 3) for name in ("default", "a", "b")} for _ in "12"]
    near = any_workers(several, models=models[0], worker=serving("near"))
    any_workers(several, models=models[1], worker=serving("far"))
    node = near.invoke(several)
    assert node.result(PATIENCE) == ("default" if kind == "think more" else "a")
    outputs = [child.outputs for child in near.get_view(node.id).children]
    assert outputs[:2] == (["default"] * 2 if kind == "think more" else ["a", "b"])
