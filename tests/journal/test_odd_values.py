"""Values that are hard to write down: the run goes on, and so does the next one."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from pydantic import BaseModel, computed_field, model_validator

from ramify import CodeFunction, MemoryStore, Runtime
from ramify.core.packing import Opaque

PATIENCE: Final = 20  # seconds


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
        assert isinstance(runtime.invoke(give, {}, key="a").result(PATIENCE), Opaque)


def test_a_call_with_an_argument_that_is_within_itself_is_made() -> None:
    count = CodeFunction(name="count", callable=lambda ctx, items: len(items))

    async def outer(ctx: Any) -> int:
        return await ctx.invoke(count, {"items": within_itself()})

    calls = CodeFunction(name="outer", callable=outer, uses=[count])
    with Runtime([calls], store=MemoryStore()) as runtime:
        assert runtime.invoke(calls).result(PATIENCE) == 1


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
        assert isinstance(runtime.invoke(give, {}, key="a").result(PATIENCE), Opaque)
