"""The key that a call gives to a service which does nothing twice for the same key."""

from contextlib import suppress
from typing import Any, Final

from support import forever, wait
from treefold import CancellationException, CodeFunction, MemoryStore, Node, RunContext, Runtime
from treefold.testing import replay

PATIENCE: Final = 60  # seconds


class Bank:
    """Whoever pays here says who he is; the first payments never end."""

    def __init__(self, slow: int) -> None:
        self._slow = slow
        self.told: list[str] = []

    @property
    def settle(self) -> CodeFunction:
        """Code that signs, and pays with what it has signed."""

        def sign(ctx: RunContext, name: str) -> str:
            self.told.append("signed")
            return name

        async def pay(ctx: RunContext) -> str:
            self.told.append(ctx.idempotency_key)
            if len(self.told) <= self._slow + 1:
                await forever()
            return ctx.idempotency_key

        signing = CodeFunction(callable=sign)
        paying = CodeFunction(callable=pay, repeatable=True)

        async def settle(ctx: RunContext) -> list[Any]:
            signed = await ctx.invoke(signing, {"name": ctx.idempotency_key})
            return [signed, await ctx.invoke(paying)]

        return CodeFunction(callable=settle, uses=[signing, paying])


def cancel(node: Node) -> None:
    node.cancel()
    with suppress(CancellationException):
        node.result(PATIENCE)


def test_a_call_that_is_resumed_has_the_key_that_it_had() -> None:
    bank, store = Bank(slow=2), MemoryStore()
    settle = bank.settle
    with Runtime([settle], store=store) as runtime:
        first = runtime.invoke(settle)
        wait(lambda: len(bank.told) > 1)
        cancel(first)
        second = runtime.resume(first.id)
        wait(lambda: len(bank.told) > 2)
        cancel(second)
    with Runtime([settle], store=store) as runtime:
        third = runtime.resume(second.id)
        own, paid = third.result(PATIENCE)
    signed, *keys = bank.told
    assert (signed, keys) == ("signed", [paid] * 3)  # and it was recognised what was done
    assert own != paid
    again = replay([settle], store, third.id)
    again.check()
    assert again.output == [own, paid]


def test_a_call_that_is_made_anew_in_a_fork_has_a_key_of_its_own() -> None:
    bank = Bank(slow=1)
    settle = bank.settle
    with Runtime([settle], store=MemoryStore()) as runtime:
        first = runtime.invoke(settle)
        wait(lambda: len(bank.told) > 1)
        cancel(first)
        second = runtime.resume(first.id)
        second.result(PATIENCE)
        runtime.fork(runtime.get_subtree(second.id)[-1]).result(PATIENCE)
    keys = [key for key in bank.told if key != "signed"]
    assert keys[0] == keys[1] != keys[2]
