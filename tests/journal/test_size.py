"""What a journal takes, counted in bytes, commits and reads: time would differ between machines."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from treefold import (
    AgentFunction,
    CodeFunction,
    ModelText,
    RunContext,
    Runtime,
    SqliteStore,
    ToolUse,
)
from treefold.core.errors import FencedError
from treefold.stores import Batch, Store
from treefold.testing import ScriptedModel, ScriptedRequest
from treefold.toolbox import human_in_loop

PAYLOAD = 4_000
PLACES = ["text", "arguments", "result"]


class CountingStore:
    """A store that keeps what it is asked for."""

    def __init__(self, path: Path) -> None:
        self._store: Store = SqliteStore(path)
        self.batches: list[list[str]] = []
        self.asked: Counter[str] = Counter()

    @property
    def as_store(self) -> Any:
        """Itself; what it does not have, the store has."""
        return self

    def append(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        self.batches += [[entry.kind for entry in batch.entries] for batch in batches]
        return self._store.append(batches)

    def __getattr__(self, name: str) -> Any:
        if callable(found := getattr(self._store, name)):
            self.asked[name] += 1
        return found


def noise(seed: str) -> str:
    return f"{random.Random(seed).getrandbits(PAYLOAD * 4):0{PAYLOAD}x}"


def worker(steps: int, place: str) -> AgentFunction:
    """An agent that makes one call in each step, with the payload in one *place*."""

    async def look(ctx: RunContext, number: int, query: str) -> str:
        """Look something up."""
        return noise(f"{number}") if place == "result" else "nothing"

    def reply(request: ScriptedRequest) -> Any:
        number = sum(isinstance(part, ToolUse) for part in request.transcript)
        if number == steps:
            return "done"
        said = noise(f"{number}") if place == "text" else "I look."
        query = noise(f"{number}") if place == "arguments" else "all"
        call = ToolUse(f"call_{number:024}", "look", {"number": number, "query": query})
        return [ModelText(said), call]

    return AgentFunction(
        "work",
        "Look.",
        user_prompt_template="go",
        uses=[CodeFunction(callable=look)],
        default_model=ScriptedModel(reply),
        max_steps=steps + 1,
    )


def asker() -> AgentFunction:
    question = ToolUse("call", "human_in_loop", {"question": "May I?"})
    return AgentFunction(
        "ask",
        "Ask.",
        user_prompt_template="go",
        uses=[human_in_loop],
        default_model=ScriptedModel(lambda _: [question]),
    )


async def run(agent: AgentFunction, store: Any, times: int = 1) -> None:
    async with asyncio.timeout(60), Runtime([agent], store=store) as runtime:
        for _ in range(times):
            assert await runtime.invoke(agent) == "done"


STEPS = (20, 80, 140)


@pytest.fixture(scope="module", params=PLACES)
def sizes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    """The bytes of three journals, of runs with so many ``STEPS``."""
    folder = tmp_path_factory.mktemp("sizes")
    found: list[int] = []
    for steps in STEPS:
        path = folder / f"{steps}.db"
        asyncio.run(run(worker(steps, request.param), path))
        found.append(path.stat().st_size)
    return found


def test_a_step_takes_its_payload_once_and_little_more(sizes: list[int]):
    fixed = 28 * 4096  # a page of each table and index
    assert (sizes[-1] - fixed) / STEPS[-1] < 1.3 * PAYLOAD + 1_500


def test_the_last_step_takes_no_more_than_the_first(sizes: list[int]):
    early, late = sizes[1] - sizes[0], sizes[2] - sizes[1]
    assert late < 1.05 * early  # a page more or less is chance


async def test_a_step_is_two_commits(tmp_path: Path):
    store = CountingStore(tmp_path / "run.db")

    await run(worker(20, "result"), store)

    last = Counter(batch[-1] for batch in store.batches)  # what somebody has waited for
    assert (last["CallStarted"], last["CallEnded"]) == (21, 21)  # the steps, and the agent itself


async def test_a_start_reads_nothing_of_trees_that_have_ended(tmp_path: Path):
    asked: list[Counter[str]] = []
    for count in (1, 10):
        path = tmp_path / f"{count}.db"
        await run(worker(1, "text"), path, times=count)
        store = CountingStore(path)
        async with Runtime([worker(1, "text")], store=store.as_store):
            asked.append(Counter(store.asked))

    assert asked[0] == asked[1]
    assert asked[0]["entries"] == 0


async def test_a_tree_that_waits_for_a_person_is_not_loaded_at_the_start(tmp_path: Path):
    agent, path = asker(), tmp_path / "run.db"
    async with asyncio.timeout(60), Runtime([agent], store=path) as runtime:
        for _ in range(10):
            runtime.invoke(agent)
    store = CountingStore(path)

    async with Runtime([agent], store=store.as_store) as runtime:
        questions = runtime.questions()
        reads = Counter(store.asked)

    assert len(questions) == 10
    assert (reads["entries"], reads["text"], reads["find"], reads["questions"]) == (0, 0, 0, 1)
    assert store.batches == []
