"""Questions for values of a type, with defaults and time limits, in one process."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest
from pydantic import BaseModel, field_validator

from agent_scripts import until
from treefold import CodeFunction, NodeState, RunContext, Runtime
from treefold.errors import DefinitionError, InvalidValueError, QuestionExpiredError
from treefold.events import QuestionEscalated, QuestionSettled

PATIENCE = 60  # seconds


class Trip(BaseModel):
    city: str
    nights: int = 2

    @field_validator("city")
    @classmethod
    def known(cls, city: str) -> str:
        if city == "Atlantis":
            raise ValueError("there is no such city")
        return city


def asking(*given: Any, **options: Any) -> CodeFunction:
    async def ask(ctx: RunContext) -> Any:
        return await ctx.ask(*given, **options)

    return CodeFunction(callable=ask)


async def outcome(*given: Any, **options: Any) -> Any:
    """Return the answer to a question that nobody answers."""
    async with asyncio.timeout(PATIENCE), Runtime() as runtime:
        return await runtime.invoke(asking(*given, **options))


@pytest.mark.parametrize(
    "given", [Trip(city="Rome"), {"city": "Rome"}, '{"city": "Rome", "nights": 2}']
)
async def test_an_answer_is_given_as_a_value_or_as_json(given: Any):
    async with asyncio.timeout(PATIENCE), Runtime() as runtime:
        node = runtime.invoke(asking(Trip, "Where to?"))
        [question] = await until(runtime.questions)
        assert question.form == Trip.model_json_schema()
        runtime.answer(question.id, given)
        assert await node == Trip(city="Rome")


async def test_a_wrong_answer_is_refused_and_the_question_stays_open():
    async with asyncio.timeout(PATIENCE), Runtime() as runtime:
        node = runtime.invoke(asking(Trip, "Where to?"))
        [question] = await until(runtime.questions)
        for wrong, why in (
            ("{}", "city is missing"),
            ({"city": 3}, "city must be text, got 3"),
            ({"city": "Atlantis"}, "there is no such city"),
        ):
            with pytest.raises(InvalidValueError, match=why):
                runtime.answer(question.id, wrong)
            assert runtime.questions() == [question]
        runtime.answer(question.id, {"city": "Rome"})
        assert await node == Trip(city="Rome")


async def test_a_literal_of_texts_is_a_choice():
    async with asyncio.timeout(PATIENCE), Runtime() as runtime:
        node = runtime.invoke(asking(Literal["yes", "no"], "Deploy?"))
        [question] = await until(runtime.questions)
        assert (question.choices, question.form) == (("yes", "no"), None)
        with pytest.raises(InvalidValueError, match="does not answer"):
            runtime.answer(question.id, "maybe")
        runtime.answer(question.id, "y")
        assert await node == "yes"


@pytest.mark.parametrize(
    ("given", "default"),
    [
        (("Deploy?", ["yes", "no"]), "no"),
        (("Why?",), ""),
        ((Trip, "Where to?"), Trip(city="Rome")),
        ((int | None, "How many?"), None),
        ((bool, "Sure?"), False),
    ],
)
async def test_the_default_is_the_answer_when_nobody_answers_in_time(given: Any, default: Any):
    assert await outcome(*given, default=default, expires=0.01) == default
    assert await outcome(*given, default=default, expires=timedelta(milliseconds=10)) == default
    assert await outcome(*given, default=default, expires=datetime.now(UTC)) == default


async def test_a_question_without_a_default_fails_when_it_expires():
    with pytest.raises(QuestionExpiredError, match="nobody answered 'Deploy\\?' in time"):
        await outcome("Deploy?", expires=0.01)


async def test_an_answer_in_time_is_the_answer():
    async with asyncio.timeout(PATIENCE), Runtime() as runtime:
        node = runtime.invoke(asking(int, "How many?", default=1, expires=3600))
        [question] = await until(runtime.questions)
        assert (question.default, question.expires is None) == ("1", False)
        runtime.answer(question.id, "3")
        assert await node == 3
        [settled] = [e for e in runtime.events(node).read() if isinstance(e, QuestionSettled)]
        assert settled.answer is not None
        assert (settled.answer.text, settled.answer.expired) == ("3", False)


async def test_a_question_goes_to_somebody_else_in_time():
    async with asyncio.timeout(PATIENCE), Runtime() as runtime:
        node = runtime.invoke(asking("Why?", to="anna", escalate={"team": 0.01, "boss": 3600}))
        [question] = await until(lambda: [q for q in runtime.questions() if q.to == "team"])
        assert [one.to for one in question.escalations] == ["boss"]
        runtime.answer(question.id, "so")
        assert await node == "so"
        events = runtime.events(node).read()
        assert [e.question.to for e in events if isinstance(e, QuestionEscalated)] == ["team"]


@pytest.mark.parametrize(
    ("given", "options", "error", "why"),
    [
        ((object(), "?"), {}, DefinitionError, "pydantic can describe"),
        ((int,), {}, InvalidValueError, "with a type and a text"),
        (("Why?", "because"), {}, InvalidValueError, "choices a list of strings"),
        (("Why?", ["a"]), {"default": "b"}, InvalidValueError, "does not answer"),
        ((int, "How many?"), {"default": "b"}, InvalidValueError, "valid integer"),
        (("Why?",), {"expires": "soon"}, InvalidValueError, "seconds, a timedelta or a datetime"),
        (("Why?",), {"expires": datetime(2030, 1, 1)}, InvalidValueError, "time zone"),
        (("Why?",), {"expires": -1}, InvalidValueError, "seconds, a timedelta or a datetime"),
        (("Why?",), {"escalate": {1: 2}}, InvalidValueError, "named by strings"),
    ],
)
async def test_what_makes_no_sense_is_refused(
    given: Any, options: Any, error: type[Exception], why: str
):
    with pytest.raises(error, match=why):
        await outcome(*given, **options)


async def test_a_call_that_is_cancelled_asks_no_more():
    async with asyncio.timeout(PATIENCE), Runtime() as runtime:
        node = runtime.invoke(asking("Why?", default="so", expires=3600))
        await until(runtime.questions)
        node.cancel()
        await until(lambda: node.state.final)
        assert (node.state, runtime.questions()) == (NodeState.Canceled, [])
