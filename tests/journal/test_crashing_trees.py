"""Trees that kill their process, and trees that are open while others do."""

import os
import signal
from pathlib import Path

import warm_python
from command_line import treefold
from treefold import CodeFunction, Question, QuestionKind, RunContext, Runtime, attach
from treefold.core.states import NodeState
from treefold.runtime.durable.crash_trials import MOST_DEATHS


def live(path: Path, *names: str) -> bool:
    """Run the program once; return whether it survived."""
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    done = warm_python.run("-m", "journal.crashing_program", str(path), *names, env=env)
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.returncode == 0


def asked(path: Path) -> list[Question]:
    with attach(path) as observer:
        return observer.questions()


def states(path: Path) -> list[NodeState]:
    with attach(path) as observer:
        return [tree.state for tree in observer.trees()]


def answer(path: Path, text: str) -> None:
    with attach(path) as observer:
        [question] = observer.questions()
        observer.answer(question.id, text)


def test_a_tree_that_has_killed_five_processes_waits_for_a_person_and_the_others_go_on(path: Path):
    assert not live(path, "deadly", "harmless")
    for _ in range(MOST_DEATHS - 1):
        assert asked(path) == []
        assert not live(path)
    assert live(path)
    assert states(path) == [NodeState.Paused, NodeState.Success]
    [question] = asked(path)
    assert (question.node_id, question.kind, question.choices) == (
        1,
        QuestionKind.Paused,
        ("resume", "cancel"),
    )
    assert "the process died at least 5 times while this ran, and nothing was" in question.text
    assert question.text.split(":")[0] in treefold("questions", cwd=path.parent).stdout
    assert live(path)  # it still waits, and asks no second time
    assert asked(path) == [question]

    answer(path, "resume")  # which is for one more try
    assert not live(path)
    assert live(path)
    [again] = asked(path)
    assert (again.kind, again.text) == (question.kind, question.text)

    path.with_name("mended").touch()
    answer(path, "resume")
    assert live(path)
    assert asked(path) == []
    assert states(path) == [NodeState.Success, NodeState.Success]


def test_a_tree_that_may_have_killed_its_process_can_be_cancelled(path: Path):
    for names in (["deadly"], *[[]] * (MOST_DEATHS - 1)):
        assert not live(path, *names)
    assert live(path)
    answer(path, "cancel")
    assert live(path)
    assert states(path) == [NodeState.Canceled]


async def below(ctx: RunContext) -> str:
    return await ctx.ask("Is it time?")


async def above(ctx: RunContext) -> str:
    return await ctx.invoke(asking)


asking = CodeFunction(callable=below, repeatable=True)
calling = CodeFunction(callable=above, uses=[asking])


def test_a_runtime_that_was_closed_has_not_died(path: Path):
    with Runtime([calling], store=path) as runtime:
        runtime.invoke(calling)
    for _ in range(MOST_DEATHS + 1):
        with Runtime([calling], store=path) as runtime:
            [node] = runtime.recover()
    with Runtime([calling], store=path) as runtime:
        [node] = runtime.recover()
        [question] = runtime.questions()
        assert question.text == "Is it time?"
        runtime.answer(question.id, "yes")
        assert node.result() == "yes"
