"""What is gone on with when a journal is opened, and by whom."""

from typing import Any, Final

from ramify import CodeFunction, MemoryStore, Runtime

PATIENCE: Final = 20  # seconds


class Stopped:
    """Code that waits the first time, until its runtime is closed, and gives 7 the next."""

    def __init__(self) -> None:
        self.runs = 0
        self.function = CodeFunction(name="work", callable=self._run, repeatable=True)

    async def _run(self, ctx: Any) -> int:
        self.runs += 1
        return 7 if self.runs > 1 else await ctx.ask("Is it time?")


def left_open(work: Stopped) -> MemoryStore:
    """Return a journal with a call that has not ended."""
    store = MemoryStore()
    with Runtime([work.function], store=store) as runtime:
        runtime.invoke(work.function, key="a")
    return store


def test_a_tree_that_was_deleted_is_not_among_those_that_were_recovered() -> None:
    work = Stopped()
    store = left_open(work)
    with Runtime([work.function], store=store) as runtime:
        (node,) = runtime.recover()
        runtime.answer(runtime.questions()[0].id, "yes")
        assert node.result(PATIENCE) == 7
        runtime.delete(node.id)
        assert runtime.recover() == []


def test_code_that_is_left_open_makes_no_calls_that_would_be_made_again() -> None:
    store, made = MemoryStore(), list[str]()
    clean = CodeFunction(name="clean", callable=lambda ctx, after: made.append(after))

    async def outer(ctx: Any) -> str:
        answer = "nothing"
        try:
            answer = await ctx.ask("Is it time?")
        finally:
            await ctx.invoke(clean, {"after": answer})
        return answer

    calls = CodeFunction(name="outer", callable=outer, uses=[clean])
    with Runtime([calls], store=store) as runtime:
        runtime.invoke(calls)
    assert made == []
    with Runtime([calls], store=store) as runtime:
        runtime.answer(runtime.questions()[0].id, "yes")
    assert made == ["yes"]
