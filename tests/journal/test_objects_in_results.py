"""Objects inside of what functions give: made again by the annotation, or asked about."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Final

import pytest
from pydantic import BaseModel

from support import wait
from treefold import (
    CodeFunction,
    MemoryStore,
    QuestionKind,
    RunContext,
    Runtime,
    TokenUsage,
    attach,
)

PATIENCE: Final = 60  # seconds


@dataclass(frozen=True)
class Place:
    x: int


class Report(BaseModel):
    share: float


DAY: Final = date(2026, 11, 17)


def giving(value: Any, kind: Any) -> CodeFunction:
    def give(ctx: Any) -> Any:
        return value

    give.__annotations__["return"] = kind
    return CodeFunction(callable=give)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (tuple[Report, str], (Report(share=0.5), "half")),
        (tuple[Report, ...] | None, (Report(share=1.0),)),
        (tuple[bytes, Place], (b"\xff", Place(1))),
        (set[Place], {Place(1), Place(2)}),
        (frozenset[tuple[Place, int]], frozenset({(Place(1), 2)})),
        (set[date], {DAY}),
        (list[set[Decimal]], [{Decimal("1.50")}]),
        (dict[str, set[Place]], {"here": {Place(1)}}),
        (dict[tuple[int, int], Place], {(1, 2): Place(3)}),
        (Sequence[Place], [Place(1)]),
        (Iterable[int], [1, 2]),
        (list[int], (1, 2)),  # which it should not have given
    ],
)
def test_objects_in_a_result_come_back(kind: Any, value: Any) -> None:
    give, store = giving(value, kind), MemoryStore()
    with Runtime([give], store=store) as runtime:
        runtime.invoke(give, key="a").result(PATIENCE)
    with Runtime([give], store=store) as runtime:
        found = runtime.invoke(give, key="a").result(PATIENCE)
    assert (type(found), found) == (type(value), value)


def test_a_model_with_a_number_that_is_none_comes_back() -> None:
    give, store = giving(Report(share=float("nan")), Report), MemoryStore()
    with Runtime([give], store=store) as runtime:
        runtime.invoke(give, key="a").result(PATIENCE)
    with Runtime([give], store=store) as runtime:
        found = runtime.invoke(give, key="a").result(PATIENCE)
    assert isinstance(found, Report)
    assert found.share != found.share


@pytest.mark.parametrize("value", [{Place(1): "here"}, {"all": [object()]}, ({"a": object()},)])
def test_a_result_with_something_in_it_that_was_not_kept_is_in_doubt(value: Any) -> None:
    give, store, seen = giving(value, Any), MemoryStore(), list[Any]()

    async def work(ctx: RunContext) -> str:
        seen.append(await ctx.invoke(give))
        return await ctx.ask("Ready?")

    works = CodeFunction(callable=work, uses=[give])
    with Runtime([works], store=store) as runtime:
        runtime.invoke(works)
    with Runtime([works], store=store) as runtime:
        [node] = runtime.recover()
        [question] = runtime.questions()
        runtime.answer(question.id, "yes")
        [question] = wait(runtime.questions)
        assert question.kind is QuestionKind.InDoubt
        runtime.answer(question.id, "retry")
        assert node.result(PATIENCE) == "yes"
    assert seen == [value, value]


def test_a_fact_of_treefold_in_a_result_is_recorded_as_plain_data() -> None:
    def spend(ctx: RunContext) -> dict[str, TokenUsage]:
        return {"all": TokenUsage(input=3)}

    store = MemoryStore()
    with Runtime(store=store) as runtime:
        node = runtime.invoke(CodeFunction(callable=spend))
        assert node.result(PATIENCE) == {"all": TokenUsage(input=3)}
    with attach(store) as observer:
        assert observer.get_view(node.id).outputs["all"]["input"] == 3
