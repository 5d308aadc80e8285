"""Sessions with the real default model, in this process."""

import asyncio
import json
from pathlib import Path

import pytest

from treefold import Provider
from treefold.core.errors import TreefoldError
from treefold.core.exchange import Exchange
from treefold.core.model import ModelSettings
from treefold.core.transcript import ModelText, UserText
from treefold.models import LocalModel, find_model, price
from wire.protocols import answer

BRIEF = ModelSettings(max_tokens=12, temperature=0.0)


@pytest.mark.usefixtures("smollm2")
class TestLocal:
    async def test_it_needs_no_key_and_costs_nothing(self, monkeypatch: pytest.MonkeyPatch):
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
            monkeypatch.delenv(name, raising=False)
        model = find_model("local")
        async with asyncio.timeout(120):
            session = model.open(settings=BRIEF)
            await answer(session, UserText("Say hello."))
        assert model.provider is Provider.Local
        assert price(session.usage, model) == 0
        assert isinstance(session.transcript[-1], ModelText)

    async def test_a_file_can_be_named(self, smollm2: Path):
        async with asyncio.timeout(120):
            session = find_model(f"local:{smollm2}").open(settings=BRIEF)
            await answer(session, UserText("Say hello."))
        assert isinstance(session.transcript[-1], ModelText)

    async def test_what_was_saved_goes_on_with_the_same_answer(self):
        async with asyncio.timeout(120):
            session = LocalModel().open("Be brief.", settings=BRIEF)
            await answer(session, UserText("What is the capital of France?"))
            saved = json.dumps([exchange.to_dict() for exchange in session.exchanges])
            await answer(session, UserText("And of Italy?"))
            loaded = [Exchange.from_dict(data) for data in json.loads(saved)]
            again = LocalModel().open("Be brief.", settings=BRIEF, exchanges=loaded)
            await answer(again, UserText("And of Italy?"))
        assert again.transcript == session.transcript

    async def test_an_answer_has_the_schema_that_was_asked_for(self):
        schema = {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}, "big": {"type": "boolean"}},
            "required": ["city", "big"],
            "additionalProperties": False,
        }
        settings = ModelSettings(max_tokens=60, temperature=0.0, response_schema=schema)
        async with asyncio.timeout(120):
            session = LocalModel().open("Answer in JSON.", settings=settings)
            await answer(session, UserText("Name a city."))
        last = session.transcript[-1]
        assert isinstance(last, ModelText)
        found = json.loads(last.text)
        assert set(found) == {"city", "big"}
        assert isinstance(found["big"], bool)

    async def test_two_sessions_may_ask_at_once(self):
        async def ask(question: str) -> str:
            session = LocalModel().open("You are a helpful assistant.", settings=BRIEF)
            await answer(session, UserText(question))
            last = session.transcript[-1]
            assert isinstance(last, ModelText)
            return last.text

        questions = ["What is the capital of France?", "How many legs has a dog?"]
        async with asyncio.timeout(240):
            alone = [await ask(question) for question in questions]
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(ask(question)) for question in questions]
        assert [task.result() for task in tasks] == alone

    def test_it_serves_one_loop_after_another(self):
        async def ask() -> str:
            async with asyncio.timeout(120):
                session = model.open(settings=BRIEF)
                await answer(session, UserText("What is the capital of France?"))
            return repr(session.transcript[-1])

        model = LocalModel()
        assert asyncio.run(ask()) == asyncio.run(ask())

    async def test_a_question_that_does_not_fit_is_refused_in_words(self):
        async with asyncio.timeout(120):
            session = LocalModel(context=256).open(settings=BRIEF)
            with pytest.raises(TreefoldError, match="too large|context"):
                await answer(session, UserText("word " * 2000))
            assert session.transcript == []
