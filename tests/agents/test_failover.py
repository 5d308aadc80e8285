"""When a model fails, the next one goes on with the conversation."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support import wait
from treefold import (
    AgentFunction,
    CodeFunction,
    ModelProviderException,
    Node,
    Provider,
    RunContext,
    Runtime,
    ToolUse,
    agent,
)
from treefold.errors import InvalidValueError
from treefold.events import ConversationOpened, RequestFailed
from treefold.models import Failover, Retry, find_model
from treefold.testing import ScriptedFailure, ScriptedModel, replay

BUSY = ScriptedFailure(529, "overloaded")


def look(place: int) -> ToolUse:
    return ToolUse(f"call_{place}", "look", {"place": place})


def searching(made: list[int], model: Any, **options: Any) -> AgentFunction[Any, str]:
    def looked(ctx: RunContext, place: int) -> str:
        made.append(place)
        return f"{place} is empty"

    tool: Any = CodeFunction(name="look", desc="Look at a place.", callable=looked)

    @agent(uses=[tool], model=model, **options)
    def search() -> str:
        """Search."""
        return "Look at 1, 2 and 3."

    return search


def models_of(runtime: Runtime, node: Node) -> Sequence[str]:
    """Return the models that the conversation was opened with."""
    events = runtime.events(node).read()
    return [event.model for event in events if isinstance(event, ConversationOpened)]


def done(node: Node) -> Any:
    return node.result(30)


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize(
    "failure", [BUSY, ScriptedFailure(401, "wrong key"), ScriptedFailure(429), ScriptedFailure()]
)
def test_the_next_model_goes_on_where_the_first_failed(at: int, failure: ScriptedFailure):
    made: list[int] = []
    replies = [look(1), look(2), look(3), "all empty"]
    first = ScriptedModel(*replies[:at], failure, name="first", retry=Retry((60, 60)))
    second = ScriptedModel(*replies[at:], name="second")
    search = searching(made, Failover(first, second))
    with Runtime([search]) as runtime:
        node = runtime.invoke(search)
        assert done(node) == "all empty"
        assert models_of(runtime, node) == ["first", "second"]
    assert made == [1, 2, 3]
    assert len(first.requests) == at + 1  # it is not asked again


def test_the_first_model_is_asked_again_after_a_while():
    made: list[int] = []
    first = ScriptedModel(BUSY, "back", name="first")
    # The time is over as soon as it has begun.
    second = ScriptedModel(look(1), name="second")
    search = searching(made, Failover(first, second, retry_primary=1e-9))
    with Runtime([search]) as runtime:
        node = runtime.invoke(search)
        assert done(node) == "back"
        assert models_of(runtime, node) == ["first", "second", "first"]
    assert made == [1]


def test_a_first_model_that_still_fails_is_asked_once():
    made: list[int] = []
    first = ScriptedModel(BUSY, BUSY, "back", name="first")
    second = ScriptedModel(look(1), look(2), name="second")
    search = searching(made, Failover(first, second, retry_primary=1e-9))
    with Runtime([search]) as runtime:
        node = runtime.invoke(search)
        assert done(node) == "back"
        assert models_of(runtime, node) == ["first", "second", "first", "second", "first"]
    assert made == [1, 2]


def test_a_run_fails_when_all_of_its_models_have_failed():
    made: list[int] = []
    first = ScriptedModel(BUSY, BUSY, BUSY, name="first", retry=Retry((0,)))
    second = ScriptedModel(BUSY, name="second")
    search = searching(made, Failover(first, second))
    with Runtime([search]) as runtime:
        node = runtime.invoke(search)
        with pytest.raises(ModelProviderException, match="first"):
            done(node)
    # At last the first is asked again, with its own retries.
    assert (len(first.requests), len(second.requests)) == (3, 1)


def test_a_resumed_run_begins_with_the_model_that_answered_last(tmp_path: Path):
    made: list[int] = []
    store = tmp_path / "run.db"
    # When all fail, the first is asked once more.
    first = ScriptedModel(BUSY, BUSY, name="first")
    second = ScriptedModel(look(1), BUSY, name="second")
    last = ScriptedModel(BUSY, name="first")
    search = searching(made, Failover(first, second))
    with Runtime([search], store=store) as runtime:
        node = runtime.invoke(search, key="k")
        with pytest.raises(ModelProviderException):
            done(node)
    again = ScriptedModel("all empty", name="second")
    search = searching(made, Failover(last, again))
    with Runtime([search], store=store) as runtime:
        assert done(runtime.invoke(search, key="k")) == "all empty"
    assert made == [1]


def test_a_run_in_which_another_model_went_on_is_replayed(tmp_path: Path):
    made: list[int] = []
    store = tmp_path / "run.db"
    first = ScriptedModel(look(1), BUSY, name="first")
    second = ScriptedModel(look(2), "all empty", name="second")
    search = searching(made, Failover(first, second))
    with Runtime([search], store=store) as runtime:
        node = runtime.invoke(search)
        assert done(node) == "all empty"
        failed = [e for e in runtime.events(node).read() if isinstance(e, RequestFailed)]
        assert len(failed) == 1
    assert replay([search], store).divergence is None


def test_a_failover_is_named_by_its_models():
    given = Failover("anthropic:claude-opus-4-1", "ollama:qwen3")
    named = find_model(given.name)
    assert isinstance(named, Failover)
    assert (named.name, named.models) == (given.name, given.models)
    with pytest.raises(InvalidValueError, match="give two or more models"):
        Failover("local")
    with pytest.raises(InvalidValueError, match="give seconds, or None"):
        Failover("local", "ollama:qwen3", retry_primary=0)


def test_a_misspelt_model_is_found_before_anything_runs():
    search = searching([], Failover("anthropic:claude-opus-4-1", "antropic:x"))
    with pytest.raises(Exception, match="no provider is called 'antropic'"):
        Runtime([search])


def test_all_models_are_asked_again_when_a_paused_run_is_resumed():
    made: list[int] = []
    first = ScriptedModel(BUSY, BUSY, BUSY, name="first")
    second = ScriptedModel(BUSY, "all empty", name="second")
    search = searching(made, Failover(first, second))
    with Runtime([search], on_provider_failure="pause") as runtime:
        node = runtime.invoke(search)
        (question,) = wait(runtime.questions)
        runtime.answer(question.id, "resume")
        assert done(node) == "all empty"


@pytest.mark.parametrize("is_first", [True, False])
def test_a_model_that_cannot_be_used_is_left_out(
    monkeypatch: pytest.MonkeyPatch, *, is_first: bool
):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    first, last = ScriptedModel(BUSY, name="first"), ScriptedModel("all empty", name="last")
    without_key = "anthropic:claude-opus-4-1"
    models = [without_key, first, last] if is_first else [first, without_key, last]
    search = searching([], Failover(*models))
    with Runtime([search]) as runtime:
        assert done(runtime.invoke(search)) == "all empty"


def test_models_of_which_none_can_be_used_are_named(monkeypatch: pytest.MonkeyPatch):
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    search = searching([], Failover("anthropic:claude-opus-4-1", "openai:gpt-4o"))
    with Runtime([search]) as runtime, pytest.raises(ModelProviderException, match="needs a key"):
        done(runtime.invoke(search))


def test_the_window_is_that_of_the_model_that_goes_on():
    made: list[int] = []
    first = ScriptedModel(BUSY, name="first", context_window=200_000)
    second = ScriptedModel("all empty", name="second", context_window=4_000)
    search = searching(made, Failover(first, second))
    with Runtime([search]) as runtime:
        node = runtime.invoke(search)
        assert done(node) == "all empty"
        events = runtime.events(node).read()
        opened = [event for event in events if isinstance(event, ConversationOpened)]
    assert [event.epoch.window for event in opened] == [200_000, 4_000]


def test_a_result_by_schema_is_not_asked_for_beside_functions():
    gemini = ScriptedModel("3", name="second")
    gemini.provider = Provider.Gemini
    first = ScriptedModel(BUSY, name="first")

    @agent(model=Failover(first, gemini), returns=int, compaction="auto")
    def count() -> str:
        """Count."""
        return "Count to three."

    with Runtime([count]) as runtime:
        assert runtime.invoke(count).result(30) == 3
    assert gemini.requests[0].functions == ()


def test_the_first_model_is_asked_once_again_after_all_have_failed():
    made: list[int] = []
    retry = Retry((0, 0))
    first = ScriptedModel(BUSY, look(1), BUSY, look(2), name="first", retry=retry)
    second = ScriptedModel(BUSY, "all empty", name="second")
    search = searching(made, Failover(first, second))
    with Runtime([search]) as runtime:
        assert done(runtime.invoke(search)) == "all empty"
    assert made == [1]
