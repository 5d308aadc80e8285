"""Keys of failed runs that several processes invoke at once."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from cluster.conftest import Workers
from support import wait
from treefold import (
    AgentFunction,
    Budget,
    BudgetExceeded,
    CodeFunction,
    ModelProviderException,
    Node,
    QuestionKind,
    RunContext,
    Runtime,
    ToolUse,
    attach,
)
from treefold.testing import ScriptedFailure, ScriptedModel

PATIENCE: Final = 60  # seconds


class Server:
    """A provider of all workers, which may be down; it counts what was paid for."""

    def __init__(self) -> None:
        self.is_up = True
        self.paid: Counter[int] = Counter()
        self._lock = threading.Lock()

    def reply(self, request: Any) -> Any:
        made = sum(isinstance(part, ToolUse) for part in request.transcript)
        with self._lock:
            if made and not self.is_up:
                return ScriptedFailure(503, "the server is down")
            self.paid[made] += 1
        return "found" if made == 3 else ToolUse(f"{made}", "look")


def job_of(looked: list[str]) -> CodeFunction:
    look = CodeFunction(name="look", callable=lambda ctx: looked.append("looked"))
    find = AgentFunction("find", "Finds.", user_prompt_template="Find.", uses=[look])

    async def job(ctx: RunContext) -> str:
        return await ctx.invoke(find)

    return CodeFunction(callable=job, uses=[find])


def failed(node: Node) -> BaseException:
    try:
        node.result(PATIENCE)
    except (BudgetExceeded, ModelProviderException) as error:
        return error
    raise AssertionError("it has not failed")


def test_a_key_that_several_processes_invoke_at_once_is_continued_once(any_workers: Workers):
    server, looked = Server(), list[str]()
    job = job_of(looked)
    runtimes = [any_workers(job, models=ScriptedModel(server.reply)) for _ in range(3)]
    server.is_up = False
    first = runtimes[0].invoke(job, key="a")
    assert isinstance(failed(first), ModelProviderException)
    server.is_up = True

    def invoke(runtime: Runtime) -> Node:
        return runtime.invoke(job, key="a")

    with ThreadPoolExecutor(9) as pool:
        nodes = list(pool.map(invoke, runtimes * 3))
    assert [node.result(PATIENCE) for node in nodes] == ["found"] * 9
    assert len({node.id for node in nodes}) == 1
    assert nodes[0].id != first.id
    with attach(any_workers.url) as observer:
        assert [tree.source for tree in observer.trees()] == [0, first.id]
    assert server.paid == {0: 1, 1: 1, 2: 1, 3: 1}
    assert len(looked) == 3


def test_the_new_budget_holds_wherever_the_run_goes_on(any_workers: Workers):
    server, looked = Server(), list[str]()
    job = job_of(looked)
    runtimes = [any_workers(job, models=ScriptedModel(server.reply)) for _ in range(2)]
    assert "1 of 1" in str(failed(runtimes[0].invoke(job, key="a", budget=Budget(calls=1))))
    assert "3 of 3" in str(failed(runtimes[1].invoke(job, key="a", budget=Budget(calls=3))))
    assert runtimes[0].invoke(job, key="a", budget=Budget(calls=4)).result(PATIENCE) == "found"
    assert server.paid == {0: 1, 1: 1, 2: 1, 3: 1}
    assert len(looked) == 3


def test_any_process_answers_with_a_larger_budget(any_workers: Workers):
    server, looked = Server(), list[str]()
    job, model = job_of(looked), ScriptedModel(server.reply)
    runtimes = [any_workers(job, models=model, on_budget="pause") for _ in range(2)]
    node = runtimes[0].invoke(job, budget=Budget(calls=1))
    [question] = wait(runtimes[1].questions)
    assert question.kind is QuestionKind.Budget
    runtimes[1].answer(question.id, "calls=4")
    assert node.result(PATIENCE) == "found"
    assert server.paid == {0: 1, 1: 1, 2: 1, 3: 1}
