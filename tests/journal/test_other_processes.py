"""Looking on, answering and stopping from another process than the one that drives."""

import ast
import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import pytest

import treefold
import warm_python
from journal.driver import plain
from support import wait
from treefold import NodeState, Observer, Question, Runtime, StoreError, StoreOwnedError
from treefold.core.errors import (
    ClosedError,
    InvalidValueError,
    UnknownNodeError,
    UnknownQuestionError,
    UsageError,
)

T = TypeVar("T")

PATIENCE: Final = 60  # seconds


class Driver:
    """A process that drives a journal."""

    def __init__(self, path: Path) -> None:
        env = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
        self.talk = warm_python.Talk("-m", "journal.driver", str(path), env=env)
        self.pid = self.talk.program.pid

    def expect(self, line: str) -> None:
        found = self.talk.readline().rstrip("\n")
        assert found == line, found + self.kill()

    def tell(self, line: str) -> str:
        """Return what the driver has to say to *line*."""
        return self.talk.tell(line).rstrip("\n")

    def start(self, function: str) -> int:
        return int(self.tell(f"call {function}"))

    def kill(self) -> str:
        """End it at once; return what it complained of."""
        return self.talk.kill()[1]

    def end(self) -> str:
        """Have it end in its own way; return what it complained of."""
        code, complaints = self.talk.end()
        assert code == 0, complaints
        return complaints


@pytest.fixture
def drive(path: Path) -> Iterator[Callable[[], Driver]]:
    """Starts a process that drives the journal."""
    drivers: list[Driver] = []

    def start() -> Driver:
        driver = Driver(path)
        drivers.append(driver)
        driver.expect("ready")
        return driver

    yield start
    for driver in drivers:
        driver.kill()


Drive = Callable[[], Driver]


def question(observer: Observer, text: str) -> Question:
    """Wait for a question that says *text*."""
    return wait(lambda: next((q for q in observer.questions() if q.text == text), None))


def ended(observer: Observer, id: int) -> treefold.NodeView:
    """Wait for the end of a node."""
    [*_, last] = observer.watch(id, timeout=PATIENCE)
    return last


def is_empty(path: Path) -> bool:
    """Whether nothing is left in the inbox."""
    with treefold.SqliteStore(path) as store:
        return not store.inbox()


# --- answering


def test_an_answer_reaches_a_run_that_is_alive(path: Path, drive: Drive):
    driver = drive()
    id = driver.start("ask")
    with treefold.attach(path) as observer:
        observer.answer(question(observer, "Which colour?").id, "RED")
        observer.answer(question(observer, "Why?").id, "so")
        assert ended(observer, id).outputs == "red, so"
    assert driver.tell(f"result {id}") == "'red, so'"
    wait(lambda: is_empty(path))
    assert driver.end() == ""


def test_an_answer_that_comes_while_nothing_runs_is_followed_by_the_next_driver(
    path: Path, drive: Drive
):
    first = drive()
    id = first.start("twice")
    with treefold.attach(path) as observer:
        asked = question(observer, "Which colour?")
        first.kill()
        observer.answer(asked.id, "blue")
        assert observer.questions() == []
        assert observer.get_view(id).state is NodeState.Running
        second = drive()
        why = question(observer, "Why?")
        assert why.id == f"{asked.node_id}-2"
        observer.answer(why.id, "so")
        assert ended(observer, id).outputs == ["first", "blue, so"]
        seen = repr(plain(observer.get_view(id)))
        wait(lambda: second.tell(f"view {id}") == seen)  # it is written down before it is told
    assert second.end() == ""


def test_a_question_is_answered_once(path: Path, drive: Drive):
    driver = drive()
    driver.start("ask")
    with treefold.attach(path) as one, treefold.attach(path) as two:
        asked = question(one, "Which colour?")
        driver.kill()
        two.answer(asked.id, "red")
        for observer in one, two:
            with pytest.raises(UnknownQuestionError, match="no question '1-1' waits .* open: none"):
                observer.answer(asked.id, "blue")
        driver = drive()
        question(one, "Why?")
        with pytest.raises(UnknownQuestionError, match="no question '1-1' waits .* open: 1-2"):
            two.answer(asked.id, "blue")


def test_a_wrong_answer_is_refused_at_once_and_the_question_stays(path: Path, drive: Drive):
    drive().start("ask")
    with treefold.attach(path) as observer:
        asked = question(observer, "Which colour?")
        with pytest.raises(InvalidValueError, match="'green' does not answer .* 'red', 'blue'"):
            observer.answer(asked.id, "green")
        with pytest.raises(InvalidValueError, match="takes no arguments"):
            observer.answer(asked.id, args={"n": 1})
        with pytest.raises(UnknownQuestionError, match="no question '9-9'"):
            observer.answer("9-9", "red")
        assert observer.questions() == [asked]


def test_after_a_cancel_there_is_nothing_to_answer(path: Path, drive: Drive):
    driver = drive()
    id = driver.start("ask")
    with treefold.attach(path) as observer:
        asked = question(observer, "Which colour?")
        observer.cancel(id, "not needed")
        view = ended(observer, id)
        assert view.exception is not None
        assert (view.state, "not needed" in view.exception.message) == (NodeState.Canceled, True)
        with pytest.raises(UnknownQuestionError):
            observer.answer(asked.id, "red")
        assert observer.questions() == []
        wait(lambda: driver.tell(f"view {id}") == repr(plain(view)))
    assert driver.tell("questions") == "[]"


def test_a_cancel_and_then_an_answer_while_nothing_runs_is_a_cancel(path: Path, drive: Drive):
    driver = drive()
    id = driver.start("ask")
    with treefold.attach(path) as observer:
        asked = question(observer, "Which colour?")
        driver.kill()
        observer.cancel(id)
        observer.answer(asked.id, "red")
        driver = drive()
        assert ended(observer, id).state is NodeState.Canceled
        wait(lambda: is_empty(path))
        assert driver.tell("questions") == "[]"
    assert "Traceback" not in driver.end()


def test_each_time_that_the_same_is_asked_somebody_has_to_answer(path: Path, drive: Drive):
    driver = drive()
    id = driver.start("again")
    with treefold.attach(path) as observer:
        for n in range(1, 6):
            wait(lambda: [q.id for q in observer.questions()] == [f"{id}-{n}"])  # noqa: B023 - it is called at once
            if n == 2:
                driver.kill()
                driver = drive()
            driver.tell(f"view {id}")  # which takes in all that has happened
            observer.answer(f"{id}-{n}", str(n))
        assert ended(observer, id).outputs == ["1", "2", "3", "4", "5"]


def test_a_decision_about_a_call_in_doubt_is_for_one_run_whoever_follows_it(
    path: Path, drive: Drive
):
    driver = drive()
    id = driver.start("pay")
    with treefold.attach(path) as observer:
        wait(lambda: observer.trees() and observer.get_view(id).state is NodeState.Running)
        for life in 1, 2:
            driver.kill()
            driver = drive()
            [asked] = wait(observer.questions)
            assert (asked.id, asked.kind) == (f"{id}-{life}", "in_doubt")
            driver.kill()
            observer.answer(asked.id, "retry")
            driver = drive()
            wait(lambda: observer.get_view(id).state is NodeState.Running and is_empty(path))
            assert observer.questions() == []
        driver.tell("step")
        assert ended(observer, id).outputs == "paid"


# --- looking on


def test_whoever_looks_on_sees_every_state_that_lasts_in_order(path: Path, drive: Drive):
    driver = drive()
    id = driver.start("steps")
    with treefold.attach(path) as observer:
        wait(observer.trees)
        views = iter(observer.watch(id, timeout=PATIENCE))
        seen: list[tuple[NodeState, tuple[int, ...], bool]] = []

        def see(state: NodeState, values: tuple[int, ...]) -> None:
            """Look until that is to be seen; nothing happens after it until the driver is told."""
            while not seen or seen[-1] != (state, values, state is NodeState.Paused):
                view = next(views)
                seen.append((view.state, view.values, bool(view.questions)))

        see(NodeState.Running, ())
        driver.tell("step")
        see(NodeState.Running, (0,))
        driver.tell("step")
        see(NodeState.Running, (0, 1))
        driver.tell("step")
        see(NodeState.Paused, (0, 1, 2))
        observer.answer(observer.questions()[0].id, "done")
        see(NodeState.Running, (0, 1, 2))
        driver.tell("step")
        see(NodeState.Success, (0, 1, 2))
        assert list(views) == []
    passing = [  # what may be seen if it was written in two parts
        (NodeState.Waiting, (), False),
        (NodeState.Running, (0, 1, 2), True),
        (NodeState.Paused, (0, 1, 2), False),
    ]
    assert [one for one in seen if one not in passing] in [
        [
            (NodeState.Running, (), False),
            (NodeState.Running, (0,), False),
            (NodeState.Running, (0, 1), False),
            *before,
            (NodeState.Paused, (0, 1, 2), True),
            (NodeState.Running, (0, 1, 2), False),
            (NodeState.Success, (0, 1, 2), False),
        ]
        for before in ([], [(NodeState.Running, (0, 1, 2), False)])
    ]


def test_views_of_an_observer_are_those_of_the_driver(path: Path, drive: Drive):
    driver = drive()
    id = driver.start("editor")
    with treefold.attach(path) as observer:
        asked = question(observer, "Which colour?")
        nodes = [id, *(child.id for child in observer.get_view(id).children)]
        for node in nodes:
            wait(lambda: driver.tell(f"view {node}") == repr(plain(observer.get_view(node))))  # noqa: B023 - it is called at once
        observer.answer(asked.id, "red")
        observer.answer(question(observer, "Why?").id, "so")
        last = ended(observer, id)
        assert last.outputs == "It is written."
        assert last.children[0].outputs == {"title": "moss", "pages": [1, 2]}
        assert [type(part).__name__ for part in last.transcript][-1] == "ModelText"
        wait(lambda: driver.tell(f"view {id}") == repr(plain(last)))
        for node in nodes:
            assert driver.tell(f"view {node}") == repr(plain(observer.get_view(node)))
        driver.end()
    with treefold.attach(path) as anew:
        assert plain(anew.get_view(id)) == plain(last)


async def test_a_loop_may_look_on_too(path: Path, drive: Drive):
    driver = drive()
    id = driver.start("ask")
    with treefold.attach(path) as observer:
        wait(observer.trees)
        async with asyncio.timeout(PATIENCE):
            first = await observer.watch(id)
            assert first.id == id
            views: list[treefold.NodeView] = []
            async for view in observer.watch(id):
                views.append(view)
                for asked in observer.questions():
                    observer.answer(asked.id, "red" if asked.choices else "so")
            assert views[-1].outputs == "red, so"
            assert await observer.watch(id, views[-1].update_seqnum) == views[-1]


def test_a_watch_gives_up_after_its_time_and_when_the_observer_is_closed(path: Path, drive: Drive):
    driver = drive()
    id = driver.start("ask")
    observer = treefold.attach(path)
    question(observer, "Which colour?")
    driver.kill()
    seen = observer.watch(id).result()
    with pytest.raises(TimeoutError, match="nothing happened to node:1 in 0.1 s"):
        observer.watch(id, seen.update_seqnum, timeout=0.1).result()
    caught: list[BaseException] = []

    def look() -> None:
        try:
            observer.watch(id, seen.update_seqnum).result()
        except ClosedError as error:
            caught.append(error)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    observer.close()
    observer.close()
    looking.join(PATIENCE)
    [error] = caught  # it may have been looking just then
    here, at_once = "nobody looks at {} here any more; attach again", "{} was closed; open it again"
    assert str(error) in {here.format(path), at_once.format(path)}
    with pytest.raises(ClosedError):
        observer.trees()


def test_there_has_to_be_a_file(tmp_path: Path):
    for name in "nothing.db", "no/folder.db":
        with pytest.raises(StoreError, match="there is no such file; give the path that"):
            treefold.attach(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StoreError, match="it is a folder"):
        treefold.attach(str(tmp_path))
    (tmp_path / "letter").write_text("Dear Sir or Madam, " * 100)
    with pytest.raises(StoreError, match="not a database"):
        treefold.attach(tmp_path / "letter")


# --- cancelling, pausing, resuming


def test_what_is_not_there_or_has_ended_is_refused_in_words(path: Path, drive: Drive):
    driver = drive()
    id = driver.start("twice")
    with treefold.attach(path) as observer:
        asked = question(observer, "Which colour?")
        done, waits = observer.get_view(id).children
        assert asked.node_id == waits.id
        for no_id in 99, -1, 2**80, "1":
            for act in observer.cancel, observer.pause, observer.resume, observer.get_view:
                with pytest.raises(UnknownNodeError, match="run.db has no node"):
                    act(no_id)  # pyright: ignore[reportArgumentType]
            with pytest.raises(UnknownNodeError, match="run.db has no node"):
                observer.watch(no_id)  # pyright: ignore[reportArgumentType]
        for act, what in (observer.cancel, "cancelled"), (observer.pause, "paused"):
            words = rf"report \(call 1.1\) has ended \(success\), and cannot be {what} any"
            with pytest.raises(UsageError, match=words):
                act(done.id)
        with pytest.raises(UsageError, match="has ended .*, and cannot be resumed any more"):
            observer.resume(done.id)
        with pytest.raises(UsageError, match=r"twice \(run 1\) is not paused, nor is anything"):
            observer.resume(id)
        observer.cancel(id)
        ended(observer, id)
        with pytest.raises(UsageError, match=r"\(call 1\.\d+\) has ended; resume run 1"):
            observer.resume(waits.id)
        with pytest.raises(InvalidValueError, match="a reason is some text, not 7"):
            observer.cancel(id, 7)  # pyright: ignore[reportArgumentType]


def test_a_tree_is_paused_and_resumed_from_elsewhere(path: Path, drive: Drive):
    driver = drive()
    id = driver.start("lenient")
    with treefold.attach(path) as observer:
        asked = question(observer, "Which colour?")
        observer.pause(id, "lunch")
        paused = wait(lambda: next((q for q in observer.questions() if q.kind == "paused"), None))
        assert (paused.node_id, paused.text[:5]) == (id, "lunch")
        observer.resume(id)
        wait(lambda: observer.questions() == [asked] and is_empty(path))
        driver.kill()
        observer.pause(id)
        observer.pause(id)
        observer.resume(id)  # though nobody has paused it yet
        with treefold.SqliteStore(path) as store:
            assert len(store.inbox()) == 2
        driver = drive()
        observer.answer(asked.id, "red")
        observer.answer(question(observer, "Why?").id, "so")
        assert ended(observer, id).outputs == "red, so"
        assert driver.end() == ""


def test_a_call_that_is_cancelled_in_a_tree_that_waits_lets_its_caller_go_on(
    path: Path, drive: Drive
):
    driver = drive()
    id = driver.start("lenient")
    with treefold.attach(path) as observer:
        asked = question(observer, "Which colour?")
        driver.kill()
        driver = drive()  # which leaves the tree alone
        assert driver.tell("questions") == f"['{asked.id}']"
        observer.cancel(asked.node_id)
        assert ended(observer, id).outputs == "CancellationException"
        assert driver.tell("questions") == "[]"


def test_a_call_that_is_cancelled_and_then_answered_while_nothing_runs_is_not_run(
    path: Path, drive: Drive
):
    driver = drive()
    id = driver.start("lenient")
    with treefold.attach(path) as observer:
        asked = question(observer, "Which colour?")
        driver.kill()
        observer.cancel(asked.node_id)
        observer.answer(asked.id, "red")
        driver = drive()
        view = ended(observer, id)
        assert (view.outputs, view.children[0].state) == (
            "CancellationException",
            NodeState.Canceled,
        )
    assert "Traceback" not in driver.end()


def test_a_tree_that_was_cancelled_is_resumed_from_elsewhere(path: Path, drive: Drive):
    driver = drive()
    id = driver.start("twice")
    with treefold.attach(path) as observer:
        question(observer, "Which colour?")
        observer.cancel(id)
        ended(observer, id)
        driver.kill()
        observer.resume(id)
        observer.resume(id)
        driver = drive()
        [fork] = wait(lambda: [tree for tree in observer.trees() if tree.source == id])
        for text, said in ("Which colour?", "red"), ("Why?", "so"):
            asked = question(observer, text)
            with treefold.SqliteStore(path) as store:
                assert store.find(node=asked.node_id) == fork.id
            observer.answer(asked.id, said)
        assert ended(observer, fork.id).outputs == ["first", "red, so"]
        assert [tree.source for tree in observer.trees()] == [0, id]
        seen = repr(plain(observer.get_view(fork.id)))
        wait(lambda: driver.tell(f"view {fork.id}") == seen)  # it is written down before it is told
        assert observer.get_view(id).state is NodeState.Canceled


# --- one driver


def test_a_second_driver_is_refused_while_the_first_lives_and_not_when_it_was_killed(
    path: Path, drive: Drive
):
    first = drive()
    id = first.start("ask")
    with treefold.attach(path) as observer:
        question(observer, "Which colour?")
        second = Driver(path)
        _, complaints = second.talk.end()
        assert f"it is owned by process {first.pid};" in complaints
        with pytest.raises(StoreOwnedError):
            Runtime(store=path)
        first.kill()
        third = drive()
        assert ast.literal_eval(third.tell("questions")) == ["1-1"]
        assert observer.get_view(id).state is NodeState.Paused
