"""Exceptions that are made in a way of their own: they come back, and so does all beside them."""

import asyncio
import sys
from typing import Any, Final

import pytest
from pydantic import TypeAdapter

from treefold import CodeFunction, MemoryStore, RecordedError, Runtime
from treefold.core.events import Failure
from treefold.testing import replay

PATIENCE: Final = 60  # seconds


class TwoWordsError(Exception):
    def __new__(cls, first: str, second: str) -> "TwoWordsError":
        return super().__new__(cls, first, second)

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


class ChildlessError(Exception):
    def __init__(self, code: int) -> None:
        self.code = code

    def __init_subclass__(cls) -> None:
        raise TypeError("it is the last")

    def __str__(self) -> str:
        return f"code {self.code}"


async def invalid(ctx: Any) -> None:
    TypeAdapter(int).validate_python("many")


async def several(ctx: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(invalid(ctx))


async def two_words(ctx: Any) -> None:
    raise TwoWordsError("not", "found")


async def leaving(ctx: Any) -> None:
    sys.exit(3)


async def childless(ctx: Any) -> None:
    raise ChildlessError(3)


@pytest.mark.parametrize(
    ("raises", "caught"),
    [
        (invalid, ValueError),
        (several, ExceptionGroup),
        (two_words, TwoWordsError),
        (leaving, SystemExit),
    ],
)
def test_code_that_is_run_again_catches_what_it_caught(
    raises: Any, caught: type[BaseException]
) -> None:
    store, fails = MemoryStore(), CodeFunction(name="fails", callable=raises)

    async def outer(ctx: Any) -> str:
        try:
            await ctx.invoke(fails)
        except caught as error:
            said = str(Failure.of(error))
            if await ctx.ask("Go on?") == "yes":
                return said
        return "nobody caught it"

    calls = CodeFunction(name="outer", callable=outer, uses=[fails])
    with Runtime([calls], store=store) as runtime:
        node = runtime.invoke(calls, key="a")
    first = next(view.exception for view in runtime.get_view(node.id).children)
    with Runtime([calls], store=store) as runtime:
        again = runtime.invoke(calls, key="a")
        runtime.answer(runtime.questions()[0].id, "yes")
        assert again.result(PATIENCE) == str(first)
    replay([calls], store).check()


def test_an_exception_that_nobody_can_make_is_recorded() -> None:
    store, fails = MemoryStore(), CodeFunction(name="fails", callable=childless)
    with Runtime([fails], store=store) as runtime, pytest.raises(ChildlessError):
        runtime.invoke(fails, key="a").result(PATIENCE)
    expected = pytest.raises(RecordedError, match="ChildlessError: code 3")
    with Runtime([fails], store=store) as runtime, expected:
        runtime.invoke(fails, key="a").result(PATIENCE)
