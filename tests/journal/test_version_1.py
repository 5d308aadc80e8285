"""A journal whose bodies have version 1, which says several things only in words."""

import gzip
import json
from pathlib import Path

import pytest

from journal.varied_program import (
    FUNCTIONS,
    ask_about_seven,
    greeting,
    leaving,
    open_runtime,
    summary,
)
from support import wait
from treefold import (
    HOOK_PRE_TOOL_USE,
    CancellationException,
    Edit,
    NodeState,
    Runtime,
    attach,
)
from treefold.testing import replay

RECORDED = Path(__file__).parent / "recorded"
OPEN = {"24-1", "17-2", "18-2", "19-1", "27-1", "21-1", "32-1"}  # questions, as they were asked


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "run.db"
    found.write_bytes(gzip.decompress((RECORDED / "version-1.db.gz").read_bytes()))
    return found


def test_it_is_shown_as_the_version_that_wrote_it_showed_it(path: Path) -> None:
    assert summary(path) == json.loads((RECORDED / "version-1.json").read_text())


def asked(runtime: Runtime) -> set[str]:
    return {question.id for question in runtime.questions()}


def test_its_runs_are_resumed_and_nothing_is_asked_twice(path: Path) -> None:
    with open_runtime(path) as runtime:
        nodes = {node.function.name: node for node in runtime.recover()}
        assert asked(runtime) == OPEN
        for id, text in {
            "24-1": "use: paid",
            "17-2": "yes",
            "18-2": "good",
            "19-1": "report",
            "27-1": "allow",
            "21-1": "cancel",
            "32-1": "cancel",
        }.items():
            runtime.answer(id, text)
        assert nodes["paying"].result(60) == "paid"
        assert nodes["asking"].result(60) == ["one", "yes"]
        assert nodes["chatting"].result(60)[1::2] == ["fine", "good"]
        assert nodes["failing"].result(60) == "answer 1 to Fail."
        assert nodes["approved"].result(60) == "answer 1 to Approve this."
        for name in "provided", "slow":
            with pytest.raises(CancellationException):
                nodes[name].result(60)
        assert asked(runtime) == set()


def test_a_question_that_it_has_open_is_not_asked_again_by_the_resumed_call(path: Path) -> None:
    with open_runtime(path) as runtime:
        nodes = {node.function.name: node for node in runtime.recover()}
        for id, text in {"24-1": "use: ", "19-1": "resume", "27-1": "allow"}.items():
            runtime.answer(id, text)  # so that these trees really run in this process
        wait(lambda: nodes["approved"].state.final or None)
        wait(lambda: "19-2" in asked(runtime) or None)
        assert asked(runtime) == OPEN - {"24-1", "19-1", "27-1"} | {"19-2"}


def test_its_finished_runs_are_replayed(path: Path) -> None:
    with attach(path) as observer:
        trees = [tree for tree in observer.trees() if tree.state is NodeState.Success]
        outputs = {tree.id: observer.get_view(tree.id).outputs for tree in trees}
    assert len(outputs) == 10
    hooks = {HOOK_PRE_TOOL_USE: [ask_about_seven]}
    for id, output in outputs.items():
        replayed = replay(FUNCTIONS, path, id, hooks)
        replayed.check()
        assert replayed.output == output


def test_its_runs_are_forked(path: Path) -> None:
    with open_runtime(path) as runtime:
        [greeted, *_] = [n for n in runtime.list_toplevel() if n.function is greeting]
        fork = runtime.fork(greeted, edit=Edit(prompt="Say goodbye."))
        assert fork.result(60) == "answer 0 to Say goodbye."
        [left, *_] = [n for n in runtime.list_toplevel() if n.function is leaving]
        assert runtime.fork(left).result(60) == "left"
