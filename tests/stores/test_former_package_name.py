"""Journals and exported trees that were written when the package had another name."""

import gzip
from pathlib import Path

import pytest
from pydantic import BaseModel

from support import wait
from treefold import (
    AgentException,
    AgentOptions,
    Client,
    NodeState,
    RunContext,
    Runtime,
    SessionStore,
    SqliteStore,
    agent,
    attach,
    tool,
)
from treefold.stores import import_tree
from treefold.testing import ScriptedModel
from treefold.toolbox import human_in_loop, raise_exception
from treefold.turns.registry import registries

RECORDED = Path(__file__).parent / "recorded"


class Report(BaseModel):
    cause: str
    line: int


with registries():

    @tool(repeatable=True)
    async def read_log(lines: int) -> str:
        """Read the last lines of the log."""
        return "not read again"

    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount} again"

    @agent(system="You investigate bugs.", uses=[read_log, raise_exception], returns=Report)
    def find_bug(program: str) -> str:
        """Find the cause of a crash."""
        return f"Why does {program} crash?"

    @agent(uses=[human_in_loop])
    def tidy(folder: str) -> str:
        return f"Tidy {folder}."

    @tool(uses=[find_bug, pay])
    async def job(ctx: RunContext, amount: int) -> str:
        report = await ctx.invoke(find_bug, {"program": "invoice"})
        paid = await ctx.invoke(pay, {"amount": amount})
        return f"{report.cause}: {paid}"


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Four runs: one succeeded, one gave up, one waits for a person, one was killed as it paid."""
    path = tmp_path / "run.db"
    path.write_bytes(gzip.decompress((RECORDED / "before-the-name.db.gz").read_bytes()))
    return path


def test_its_runs_are_read(journal: Path) -> None:
    with attach(str(journal)) as observer:
        trees = observer.trees()
        assert [(tree.function, tree.state) for tree in trees] == [
            ("job", NodeState.Success),
            ("find_bug", NodeState.Error),
            ("tidy", NodeState.Running),
            ("job", NodeState.Running),
        ]
        assert observer.get_view(trees[0].id).outputs == "division by zero: paid 5"


def test_its_open_runs_are_resumed(journal: Path) -> None:
    with Runtime([job, tidy], store=str(journal), models=ScriptedModel("Done.")) as runtime:
        _, gave_up, tidying, killed = runtime.list_toplevel()
        with pytest.raises(AgentException, match="no idea"):
            gave_up.result()
        wait(lambda: len(runtime.questions()) == 2 or None)
        human, in_doubt = sorted(runtime.questions(), key=lambda question: question.node_id)
        assert (human.text, in_doubt.kind) == ("What may go?", "in_doubt")
        runtime.answer(human.id, "everything old")
        runtime.answer(in_doubt.id, "retry")
        assert tidying.result() == "Done."
        assert killed.result() == "division by zero: paid 13 again"


async def test_its_chats_are_resumed(journal: Path) -> None:
    model = ScriptedModel("Hello again!")
    with SessionStore(journal) as store:
        options = AgentOptions("You are brief.", model)
        async with Client(options, session="greetings", store=store) as client:
            assert [message["content"] for message in client.history] == ["Hello?", "Hello!"]
            await client.query("And?")
            assert [block async for block in client.receive_messages()]


def test_its_exported_trees_are_imported(tmp_path: Path) -> None:
    file = tmp_path / "tree.jsonl"
    file.write_bytes(gzip.decompress((RECORDED / "before-the-name.jsonl.gz").read_bytes()))
    with SqliteStore(tmp_path / "other.db") as store:
        store.acquire()
        import_tree(store, file)
        (tree,) = store.trees()
        assert (tree.function, tree.state) == ("job", "success")
