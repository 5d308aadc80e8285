"""Values that are hard to write down: the run goes on, and so does the next one."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest
from pydantic import BaseModel, computed_field, model_validator

from support import wait
from treefold import (
    CodeFunction,
    MemoryStore,
    QuestionKind,
    RunContext,
    Runtime,
    ThinkMore,
    ToolUse,
    agent,
    tool,
)
from treefold.core.jsonable import Unserializable
from treefold.testing import HANGS, ScriptedModel

PATIENCE: Final = 60  # seconds


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(5000):
        value = [value]
    return value


def within_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize("make", [deep, within_itself])
def test_a_value_that_is_too_deep_is_kept_as_it_looks(make: Callable[[], Any]) -> None:
    store, value = MemoryStore(), make()
    give = CodeFunction(name="give", callable=lambda ctx, **_: value)
    with Runtime([give], store=store) as runtime:
        assert runtime.invoke(give, {}, key="a").result(PATIENCE) is value
    with Runtime([give], store=store) as runtime:
        assert isinstance(runtime.invoke(give, {}, key="a").result(PATIENCE), Unserializable)


def test_a_call_with_an_argument_that_is_within_itself_is_made() -> None:
    count = CodeFunction(name="count", callable=lambda ctx, items: len(items))

    async def outer(ctx: Any) -> int:
        return await ctx.invoke(count, {"items": within_itself()})

    calls = CodeFunction(name="outer", callable=outer, uses=[count])
    with Runtime([calls], store=MemoryStore()) as runtime:
        assert runtime.invoke(calls).result(PATIENCE) == 1


@pytest.mark.parametrize("make", [deep, within_itself])
def test_a_call_with_an_argument_that_is_too_deep_is_in_doubt_after_a_restart(
    make: Callable[[], Any],
) -> None:
    async def count(ctx: Any, items: list[Any], more: int) -> int:
        return int(await ctx.ask("How many?"))

    counts, store = CodeFunction(callable=count, repeatable=True), MemoryStore()
    with Runtime([counts], store=store) as runtime:
        runtime.invoke(counts, {"items": make(), "more": 2})
    with Runtime([counts], store=store) as runtime:
        [node] = runtime.recover()
        assert node.inputs["more"] == 2
        [question] = runtime.questions()
        runtime.answer(question.id, "7")
        [question] = wait(runtime.questions)
        assert question.kind is QuestionKind.InDoubt
        runtime.answer(question.id, "use: 3")
        assert node.result(PATIENCE) == 3


def test_a_result_that_is_too_deep_to_be_read_is_asked_for_again() -> None:
    async def pay(ctx: RunContext) -> list[int]:
        return [len(await ctx.ask("Paid?"))]

    pays, store = CodeFunction(callable=pay), MemoryStore()
    with Runtime([pays], store=store) as runtime:
        runtime.invoke(pays)
    with Runtime([pays], store=store) as runtime:
        [node] = runtime.recover()
        runtime.answer(runtime.questions()[0].id, "yes")
        for answer in ("use: " + "[" * 100_000, "use: [3]"):
            [question] = wait(runtime.questions)
            assert question.kind is QuestionKind.InDoubt
            runtime.answer(question.id, answer)
        assert node.result(PATIENCE) == [3]


class Picky(BaseModel):
    n: int

    @model_validator(mode="after")
    def _refuse(self) -> "Picky":
        raise KeyError("no such thing")


@pytest.mark.parametrize(("kind", "value"), [(Picky, {"n": 1}), (dict, {"n": 10**6000})])
def test_a_result_that_cannot_be_made_again_is_plain_data(kind: type[Any], value: Any) -> None:
    store = MemoryStore()

    def give(ctx: Any) -> Any:
        return value

    give.__annotations__["return"] = kind
    gives = CodeFunction(name="give", callable=give)
    with Runtime([gives], store=store) as runtime:
        runtime.invoke(gives, key="a").result(PATIENCE)
    with Runtime([gives], store=store) as runtime:
        assert runtime.invoke(gives, key="a").result(PATIENCE) == value


def test_a_number_with_more_digits_than_python_writes_comes_back() -> None:
    store, number = MemoryStore(), -(10**6000)
    give = CodeFunction(name="give", callable=lambda ctx, n: {"is": n})
    with Runtime([give], store=store) as runtime:
        runtime.invoke(give, {"n": number}, key="a").result(PATIENCE)
    with Runtime([give], store=store) as runtime:
        assert runtime.invoke(give, {"n": number}, key="a").result(PATIENCE) == {"is": number}


class Broken(BaseModel):
    @computed_field
    @property
    def total(self) -> int:
        raise KeyError("nobody counted")


def test_a_value_whose_own_code_fails_does_not_stop_the_call() -> None:
    store, value = MemoryStore(), Broken()
    give = CodeFunction(name="give", callable=lambda ctx, **_: value)
    with Runtime([give], store=store) as runtime:
        assert runtime.invoke(give, {}, key="a").result(PATIENCE) is value
    with Runtime([give], store=store) as runtime:
        assert isinstance(runtime.invoke(give, {}, key="a").result(PATIENCE), Unserializable)


# --- sets, which may be in another order in every process, as these two are in one

EIGHT_FIRST, NOTHING_FIRST = {8, 0}, {0, 8}


class Numbers(BaseModel):
    numbers: set[int]


def test_a_call_with_a_set_in_an_argument_is_not_made_twice() -> None:
    store, counted, order = MemoryStore(), list[int](), EIGHT_FIRST

    @tool
    async def count(what: Numbers) -> int:
        counted.append(1)
        return len(what.numbers)

    @tool(uses=[count])
    async def work(ctx: RunContext) -> int:
        found = await ctx.invoke(count, {"what": Numbers(numbers=order)})
        if order is EIGHT_FIRST:
            await asyncio.Event().wait()
        return found

    runtime = Runtime([work], store=store)
    runtime.invoke(work)
    wait(lambda: counted and len(store.entries(1)) == 5)
    runtime.close()
    order = NOTHING_FIRST
    with Runtime([work], store=store) as runtime:
        [node] = runtime.recover()
        assert node.result(PATIENCE) == 2
    assert len(counted) == 1


def test_an_agent_that_gave_a_set_is_not_asked_again() -> None:
    @agent(returns=set[int])
    def draw() -> str:
        return "Draw two numbers."

    store, thinks = MemoryStore(), ThinkMore(draw, rounds=2)
    draws = [ToolUse("1", "return_result", {"result": numbers}) for numbers in ([8, 0], [1, 2])]
    model = ScriptedModel(*draws, HANGS, draws[0])
    runtime = Runtime([thinks], models=model, store=store)
    runtime.invoke(thinks)
    wait(lambda: len(model.requests) == 3)
    runtime.close()
    with Runtime([thinks], models=model, store=store) as runtime:
        [node] = runtime.recover()
        assert node.result(PATIENCE) == {0, 8}
    assert len(model.requests) == 4
