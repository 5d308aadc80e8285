"""Bytes in arguments and results come back as they were, and tell calls apart."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from pydantic import BaseModel

from support import wait
from treefold import CodeFunction, MemoryStore, RunContext, Runtime, SqliteStore
from treefold.stores import export_tree, import_tree

PATIENCE: Final = 60  # seconds
BINARY: Final = b"\xff\x00"


@dataclass
class Page:
    data: bytes
    parts: list[bytes] = field(default_factory=list[bytes])


class Pair(NamedTuple):
    number: int
    data: bytes


class Sheet(BaseModel):
    page: Page
    data: bytes


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Page, Page(b"text", [b"a", "ä".encode()])),
        (Page | None, Page(b"text")),
        (list[Page], [Page(b"text")]),
        (Pair, Pair(1, b"text")),
        (Sheet, Sheet(page=Page(b"text"), data=b"more")),
        (bytes, BINARY),
        (bytearray, bytearray(BINARY)),
        (dict, {"a": bytearray(BINARY), "b": BINARY}),
    ],
)
def test_bytes_in_a_result_come_back(kind: Any, value: Any) -> None:
    def give(ctx: Any) -> Any:
        return value

    give.__annotations__["return"] = kind
    gives, store = CodeFunction(callable=give), MemoryStore()
    with Runtime([gives], store=store) as runtime:
        runtime.invoke(gives, key="a").result(PATIENCE)
    with Runtime([gives], store=store) as runtime:
        found = runtime.invoke(gives, key="a").result(PATIENCE)
    assert (type(found), found) == (type(value), value)


def asking(read: Callable[[Page], bytes]) -> CodeFunction:
    async def ask(ctx: RunContext, page: Page) -> bytes:
        await ctx.ask("Ready?")
        return read(page)

    return CodeFunction(callable=ask, repeatable=True)


def test_bytes_in_an_argument_come_back() -> None:
    ask, store = asking(lambda page: page.data), MemoryStore()
    with Runtime([ask], store=store) as runtime:
        runtime.invoke(ask, {"page": Page(b"text")})
    with Runtime([ask], store=store) as runtime:
        [node] = runtime.recover()
        [question] = wait(runtime.questions)
        runtime.answer(question.id, "yes")
        assert node.result(PATIENCE) == b"text"


def test_calls_are_told_apart_by_bytes_that_are_no_text() -> None:
    order, made = [BINARY, BINARY * 2], list[bytes]()

    def look(ctx: RunContext, page: Page) -> bytes:
        made.append(page.data)
        return page.data

    looks = CodeFunction(callable=look)

    async def work(ctx: RunContext) -> list[bytes]:
        seen = [await ctx.invoke(looks, {"page": Page(data)}) for data in order]
        await ctx.ask("Ready?")
        return seen

    works, store = CodeFunction(callable=work, uses=[looks]), MemoryStore()
    with Runtime([works], store=store) as runtime:
        runtime.invoke(works)
    order.reverse()
    with Runtime([works], store=store) as runtime:
        [node] = runtime.recover()
        [question] = wait(runtime.questions)
        runtime.answer(question.id, "yes")
        assert node.result(PATIENCE) == [BINARY * 2, BINARY]
    assert made == [BINARY, BINARY * 2]


def test_many_bytes_are_kept_once(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(100_000)

    async def echo(ctx: RunContext, data: bytes, n: int) -> bytes:
        return data

    echoes = CodeFunction(callable=echo)

    async def work(ctx: RunContext) -> bytes:
        found = data
        for n in range(10):
            found = await ctx.invoke(echoes, {"data": found, "n": n})
        return found

    works, file = CodeFunction(callable=work, uses=[echoes]), tmp_path / "run.db"
    with Runtime([works], store=file) as runtime:
        runtime.invoke(works, key="a").result(PATIENCE)
    assert file.stat().st_size < 3 * len(data)
    with SqliteStore(file) as store, SqliteStore(tmp_path / "other.db") as other:
        export_tree(store, 1, tmp_path / "tree.jsonl")
        other.join()
        import_tree(other, tmp_path / "tree.jsonl")
    for name in "run.db", "other.db":
        with Runtime([works], store=tmp_path / name) as runtime:
            assert runtime.invoke(works, key="a").result(PATIENCE) == data
