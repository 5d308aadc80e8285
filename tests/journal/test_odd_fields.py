"""What a program gives instead of what the types say: the next process can read its run."""

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, Final, cast

import pytest

import treefold
from agent_scripts import StagedModel, WrappedSession, worker
from support import wait
from treefold import (
    CodeFunction,
    ModelText,
    NodeState,
    Question,
    RunContext,
    Runtime,
    SqliteStore,
    StoreError,
    TokenUsage,
    ToolUse,
)
from treefold.core.agent_events import ResponseCompleted
from treefold.core.errors import InvalidValueError, TreefoldError
from treefold.core.fact import replace
from treefold.core.transcript import TranscriptPart
from treefold.models import ModelEvent
from treefold.runtime.durable.tree_reader import read_events
from treefold.testing import ScriptedModel
from treefold.testing.store_suite import write

PATIENCE: Final = 60  # seconds


class Words(str):
    __slots__ = ()


async def ask(ctx: RunContext) -> str:
    return await ctx.ask(Words("Well?"), [Words("yes"), Words("no")], to=Words("team"))


asking = CodeFunction(callable=ask, repeatable=True)


def asked(runtime: Any) -> Question:
    [question] = wait(runtime.questions)
    return question


@pytest.mark.parametrize("reason", [ValueError("it is late"), 5, Words("it is late")])
def test_a_run_that_was_cancelled_for_any_reason_is_read_again(path: Path, reason: Any):
    with Runtime([asking], store=path) as runtime:
        node = runtime.invoke(asking)
        asked(runtime)
        node.cancel(reason)
        wait(lambda: node.state is NodeState.Canceled)
    with Runtime([asking], store=path) as runtime:
        view = runtime.get_view(node.id)
        assert view.exception is not None
        assert view.exception.message.endswith(str(reason))


def test_a_question_in_texts_of_a_class_of_its_own_is_read_and_answered_by_others(path: Path):
    with Runtime([asking], store=path) as runtime:
        node = runtime.invoke(asking)
        with treefold.attach(path) as observer:
            question = asked(observer)
            assert (question.text, question.choices, question.to) == (
                "Well?",
                ("yes", "no"),
                "team",
            )
            observer.answer(question.id, "yes")
        assert node.result(PATIENCE) == "yes"


def test_edited_arguments_without_names_do_not_answer_a_question(path: Path):
    pay = CodeFunction(name="pay", callable=lambda ctx, n: n, ask=True)
    agent = worker("payer", pay, default_model=ScriptedModel(ToolUse("1", "pay", {"n": 1}), "paid"))
    with Runtime([agent], store=path) as runtime:
        node = runtime.invoke(agent)
        question = asked(runtime)
        with pytest.raises(InvalidValueError, match="args a mapping of names or None"):
            runtime.answer(question.id, args=cast("Any", {1: 2}))
        runtime.answer(question.id, args={"n": 2})
        assert node.result(PATIENCE) == "paid"


class OddSession(WrappedSession):
    """A session of somebody's own, which is careless about types."""

    def __init__(self, model: "OddModel", inner: Any) -> None:
        super().__init__(inner)
        self._model = model

    async def send(self, *inputs: Any) -> AsyncGenerator[ModelEvent, None]:
        async for event in self._inner.send(*inputs):
            yield event

    @property
    def usage(self) -> TokenUsage:
        usage = self._inner.usage
        return TokenUsage(input=cast("int", float(usage.input)), output=usage.output)

    def parts(self, number: int) -> Sequence[TranscriptPart]:
        return [ModelText(self._model.text)]


class OddModel(StagedModel):
    def __init__(self, text: Any) -> None:
        super().__init__(ScriptedModel("Hello", usage=TokenUsage(input=100)))
        self.text = text

    def open(self, *args: Any, **options: Any) -> Any:
        return OddSession(self, self.script.open(*args, **options))


def test_tokens_that_a_session_counts_as_floats_are_recorded_as_whole_numbers(path: Path):
    agent = worker("odd", default_model=OddModel("Hello"))
    with Runtime([agent], store=path) as runtime:
        node = runtime.invoke(agent)
        assert node.result(PATIENCE) == "Hello"
    with Runtime([agent], store=path) as runtime:
        usage = runtime.get_view(node.id).usage
        assert usage.input > 0
        assert type(usage.input) is int


def test_a_response_that_could_not_be_read_again_fails_its_call_in_a_run_that_can(path: Path):
    agent = worker("odd", default_model=OddModel(None))
    with Runtime([agent], store=path) as runtime:
        node = runtime.invoke(agent)
        with pytest.raises(TreefoldError, match="ModelText.text cannot be recorded"):
            node.result(PATIENCE)
    with Runtime([agent], store=path) as runtime:
        view = runtime.get_view(node.id)
        assert view.state is NodeState.Error
        assert "ModelText.text" in str(view.exception)


def damage(path: Path, exchange: str) -> Path:
    """Return a file with the run in *path*, whose responses have another *exchange*."""
    damaged = path.with_name("damaged.db")
    with SqliteStore(path) as store, SqliteStore(damaged) as copy:
        copy.join()
        for one in store.entries(1):
            body = one.body.partition("\n")[0] + exchange if "\n" in one.body else one.body
            write(copy, [replace(one, body=body, texts=store.texts(1), seq=0)])
    return damaged


@pytest.mark.parametrize("exchange", ["{", "{}", '{"dialect":{"$":"nothing","v":1}}'])
def test_a_damaged_exchange_says_of_which_run_it_is(path: Path, exchange: str):
    agent = worker("greeter", default_model=ScriptedModel("Hello", "Hello again"))
    with Runtime([agent], store=path) as runtime:
        node = runtime.invoke(agent)
        assert node.result(PATIENCE) == "Hello"
    damaged = damage(path, f"\n{exchange}")
    with SqliteStore(damaged) as store:
        found = [one for one in read_events(store, node.id) if isinstance(one, ResponseCompleted)]
        for _ in range(2):
            with pytest.raises(StoreError, match=f"node:{node.id} cannot be read"):
                _ = found[0].exchange.dialect
    with Runtime([agent], store=damaged) as runtime:
        assert runtime.get_view(node.id).outputs == "Hello"
        fork = runtime.fork(node.id, at=1)
        with pytest.raises(StoreError, match=f"node:{node.id} cannot be read"):
            fork.result(PATIENCE)


def test_a_run_with_a_response_that_has_lost_its_exchange_cannot_be_read(path: Path):
    agent = worker("greeter", default_model=ScriptedModel("Hello"))
    with Runtime([agent], store=path) as runtime:
        node = runtime.invoke(agent)
        assert node.result(PATIENCE) == "Hello"
    lost = f"node:{node.id} cannot be read: ResponseCompleted without an exchange"
    with Runtime([agent], store=damage(path, "")) as runtime, pytest.raises(StoreError, match=lost):
        runtime.get_view(node.id)
