"""The embedded model answers for real."""

import asyncio
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from treefold import AgentNode, CallGraphError, Runtime, agent, registries, tool
from treefold.core.errors import DefinitionError, InvalidValueError, UsageError
from treefold.core.exchange import Finish
from treefold.core.model import ModelSettings
from treefold.core.model_events import ResponseEnded, TextDelta
from treefold.core.transcript import ModelText, UserText
from treefold.models import LocalModel, find_model, price
from wire.protocols import answer

with registries():

    @tool
    async def look() -> None: ...


BRIEF = ModelSettings(max_tokens=24, temperature=0.0)


async def test_the_embedded_model_answers_and_remembers(smollm2: Path):
    session = find_model("local").open("You are a helpful assistant.", settings=BRIEF)
    events = await answer(session, UserText("What is the capital of France?"))
    await answer(session, UserText("And of Italy?"))

    assert len([event for event in events if isinstance(event, TextDelta)]) > 3  # it streams
    first, second = [part.text for part in session.transcript if isinstance(part, ModelText)]
    assert "Paris" in first
    assert "Rome" in second
    assert session.usage.input > 0
    assert session.usage.output > 0
    assert price(session.usage, LocalModel()) == 0


async def test_a_file_of_your_own_runs_the_same_way(smollm2: Path):
    model = LocalModel(smollm2, threads=1, context=512)
    session = model.open(settings=ModelSettings(max_tokens=5, extra={"ignore_eos": True}))
    end = (await answer(session, UserText("Count to one hundred, in words.")))[-1]
    assert isinstance(end, ResponseEnded)
    assert end.exchange.finish is Finish.MAX_TOKENS
    assert model.name == f"local:{smollm2}"


async def test_leaving_the_stream_stops_the_model(smollm2: Path):
    session = LocalModel().open(settings=ModelSettings(max_tokens=1000))
    stream = session.send(UserText("Tell me a very long story."))
    async with asyncio.timeout(60):
        await anext(stream)
        await stream.aclose()
        # Requests are computed one by one: this one would wait for the end of the story.
        other = LocalModel().open(settings=BRIEF)
        await answer(other, UserText("Hello"))
    assert session.transcript == []
    assert isinstance(other.transcript[-1], ModelText)


@pytest.mark.usefixtures("smollm2")
def test_functions_that_the_model_cannot_call_are_refused():
    with pytest.raises(DefinitionError, match="local cannot call functions, and this uses look:"):
        LocalModel().open("", [look], BRIEF)


class City(BaseModel):
    name: Annotated[str, Field(max_length=10)]
    is_large: bool


@pytest.mark.usefixtures("smollm2")
async def test_the_embedded_model_returns_results_of_a_type():
    @agent(returns=City, model="local", settings=ModelSettings(max_tokens=60))
    def capital(country: str) -> str:
        return f"What is the capital of {country}?"

    async with Runtime([capital]) as runtime, asyncio.timeout(120):
        node = runtime.invoke(capital, {"country": "France"})
        assert isinstance(await node, City)
    assert isinstance(node, AgentNode)
    assert node.notices == []


@pytest.mark.usefixtures("smollm2")
async def test_the_embedded_model_cannot_use_functions_and_return_a_type():
    @agent(returns=City, model="local", uses=[look])
    def capital(country: str) -> str:
        return f"What is the capital of {country}?"

    with pytest.raises(CallGraphError, match="capital: local cannot .* such as local:qwen"):
        Runtime([capital])


def test_without_the_weights_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("TREEFOLD_CACHE", str(tmp_path))
    with pytest.raises(UsageError, match="treefold local fetch"):
        LocalModel().open()


def test_what_is_no_model_is_refused_at_once(tmp_path: Path):
    with pytest.raises(InvalidValueError, match="cannot be read"):
        LocalModel(tmp_path / "missing.gguf").open()
    (tmp_path / "fake.gguf").write_text("not weights")
    with pytest.raises(InvalidValueError, match="is not a GGUF file"):
        LocalModel(tmp_path / "fake.gguf").open()
