"""Answers whose reply is lost: they are taken once, and whoever gave them is told so."""

from urllib.parse import urlsplit

import pytest

from cluster.conftest import Workers
from support import wait
from tcp_proxy import Cut, TcpProxy
from treefold import CodeFunction, Observer, RunContext, attach
from treefold.errors import UnknownQuestionError
from treefold.stores.postgres import PostgresStore


async def ask(ctx: RunContext) -> str:
    return await ctx.ask("Well?")


ASK = CodeFunction(callable=ask, repeatable=True)


class Answering(PostgresStore):
    """Has the next answer that it posts cut off by a proxy."""

    proxy: TcpProxy | None = None

    def post(self, body: str, *, node: int | None = None, question: str | None = None) -> bool:
        if self.proxy is not None:
            self.proxy.arm(Cut.HELD)
        return super().post(body, node=node, question=question)


def test_whoever_answers_is_not_told_that_another_did_if_only_the_reply_was_lost(workers: Workers):
    node = workers(ASK).invoke(ASK)
    parts = urlsplit(workers.url)
    with attach(workers.url) as observer:
        [asked] = wait(observer.questions)

        def taken() -> None:
            with PostgresStore(workers.url) as store:
                wait(lambda: observer.get_view(node.id).state.final and not store.inbox())

        with TcpProxy(parts.port or 5432, spare=b"treefold_", pause=taken) as proxy:
            through = parts._replace(netloc=f"{parts.username}@127.0.0.1:{proxy.port}").geturl()
            with Answering(through) as store, Observer(store) as person:
                assert person.questions() == [asked]
                # From here on it is one request: the statement is prepared.
                assert not store.post("", question="another")
                store.proxy = proxy
                person.answer(asked.id, "yes")
                assert proxy.cuts == 1
        assert node.result() == "yes"


def test_an_answer_that_is_given_twice_is_one_answer(workers: Workers):
    node = workers(ASK).invoke(ASK)
    with attach(workers.url) as observer, attach(workers.url) as other:
        [asked] = wait(observer.questions)
        for _ in range(2):
            observer.answer(asked.id, "yes", token="one of a person")
        with pytest.raises(UnknownQuestionError):
            other.answer(asked.id, "no", token="one of another person")
        assert node.result(60) == "yes"
        observer.answer(asked.id, "yes", token="one of a person")
        with pytest.raises(UnknownQuestionError):
            other.answer(asked.id, "yes")
