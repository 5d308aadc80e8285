"""Trees that an earlier process left waiting: nothing of them is read before somebody needs it."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from support import wait
from treefold import (
    AgentFunction,
    NodeState,
    RunContext,
    Runtime,
    SqliteStore,
    ToolUse,
    attach,
    tool,
)
from treefold.errors import UnknownQuestionError
from treefold.stores import Entry
from treefold.testing import ScriptedModel, ScriptedRequest
from treefold.toolbox import human_in_loop

PATIENCE: Final = 60  # seconds
MANY: Final = 50


class Counting(SqliteStore):
    """A store that counts how often each tree is read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.reads = Counter[int]()

    def entries(self, tree: int, *, after: int = 0) -> list[Entry]:
        self.reads[tree] += not after
        return super().entries(tree, after=after)


def script(request: ScriptedRequest) -> Any:
    """Ask a person at first, and then repeat what was said."""
    last = request.transcript[-1]
    said = getattr(last, "content", None)
    return ToolUse("1", "human_in_loop", {"question": "May I?"}) if said is None else said


ask: Final = AgentFunction(
    "ask",
    "Ask.",
    user_prompt_template="go",
    uses=[human_in_loop],
    default_model=ScriptedModel(script),
)


def park(path: Path, count: int = MANY) -> list[tuple[int, str]]:
    """Leave so many agents waiting for a person; return their ids and those of their questions."""
    with Runtime([ask], store=path) as runtime:
        roots = [runtime.invoke(ask) for _ in range(count)]
        wait(lambda: len(runtime.questions()) == count)
        return [(root.id, f"{root.children[0].id}-1") for root in roots]


def test_a_start_reads_no_parked_tree(tmp_path: Path):
    parked = park(tmp_path / "run.db")
    ids = [id for id, _ in parked]
    store = Counting(tmp_path / "run.db")
    with store, Runtime([ask], store=store) as runtime:
        questions = runtime.questions()
        assert {one.id for one in questions} == {question for _, question in parked}
        assert [(one.id, one.state) for one in runtime.list_toplevel()] == [
            (id, NodeState.Running) for id in ids
        ]
        assert store.reads == {}
        runtime.answer(parked[7][1], "yes")
        assert runtime.invoke(ask, {}, key="other").path == str(MANY + 1)
        node = runtime.list_toplevel()[7]
        assert node.result(PATIENCE) == "yes"
        assert store.reads == {ids[7]: 1}
        assert len(runtime.questions()) in {MANY - 1, MANY}  # the new one may ask already


def test_each_way_to_a_question_of_a_tree_that_was_not_read(tmp_path: Path):
    path = tmp_path / "run.db"
    parked = park(path, 4)
    ids = [id for id, _ in parked]
    with Runtime([ask], store=path) as runtime, attach(path) as other:
        by_id, at_last, by_other, by_cancel = [question for _, question in parked]
        runtime.answer(by_id, "here")
        other.answer(by_other, "elsewhere")
        runtime.cancel(ids[3])
        with pytest.raises(UnknownQuestionError, match=f"open: .*{at_last}"):
            runtime.answer("999-1", "nobody asked")
        nodes = {node.id: node for node in runtime.recover()}
        assert nodes[ids[0]].result(PATIENCE) == "here"
        assert nodes[ids[2]].result(PATIENCE) == "elsewhere"
        # It may have ended before the others were listed.
        wait(lambda: runtime.get_view(ids[3]).state is NodeState.Canceled)
        assert [one.id for one in runtime.questions()] == [at_last]
        assert by_cancel not in [one.id for one in runtime.questions()]
        runtime.answer(at_last, "at last")
        assert nodes[ids[1]].result(PATIENCE) == "at last"
        with pytest.raises(UnknownQuestionError):
            runtime.answer(at_last, "once more")


def test_people_are_told_once_of_what_an_earlier_process_asked(tmp_path: Path):
    path = tmp_path / "run.db"
    parked = park(path, 3)
    told = list[str]()
    reads = list[int]()
    for _ in range(2):
        store = Counting(path)
        with store, Runtime([ask], store=store, notify=lambda one: told.append(one.question.id)):
            wait(lambda: len(told) == 3)
        assert sorted(told) == sorted(question for _, question in parked)
        reads.append(len(store.reads))
    assert reads == [3, 0]  # when people know of all, nothing is read


async def test_a_tree_that_sleeps_is_read_when_its_time_has_come(tmp_path: Path):
    naps = list[int]()

    @tool(repeatable=True)
    async def nap(ctx: RunContext, n: int, seconds: float) -> int:
        naps.append(n)
        await ctx.sleep(seconds)
        return n

    async with Runtime([nap], store=tmp_path / "run.db") as runtime:
        soon = runtime.invoke(nap, {"n": 1, "seconds": 2.0})
        late = runtime.invoke(nap, {"n": 2, "seconds": 3600.0})
        await asyncio.to_thread(wait, lambda: naps == [1, 2])
        await asyncio.to_thread(runtime.flush)
    store = Counting(tmp_path / "run.db")
    with store:
        async with Runtime([nap], store=store) as runtime:
            assert store.reads == {} or soon.id in store.reads  # on a busy machine it is due
            await asyncio.to_thread(wait, lambda: naps == [1, 2, 1])
            node = next(one for one in runtime.list_toplevel() if one.id == soon.id)
            async with asyncio.timeout(PATIENCE):
                assert await node == 1
            assert late.id not in store.reads
