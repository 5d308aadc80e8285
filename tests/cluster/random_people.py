"""People who answer, cancel, pause and resume at random moments, also twice and late."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self
from uuid import uuid4

from cluster.random_cluster import History
from treefold import NodeView, Observer, Question, QuestionKind, StoreError, attach
from treefold.errors import InvalidValueError, UnknownNodeError, UnknownQuestionError, UsageError

_LOOK: Final = 0.15  # seconds between two looks at the questions
_AGAIN: Final = 4.0  # seconds until a question that is still open is answered again
_LONGEST: Final = 60.0  # seconds in which an answer is repeated, if it is not known whether it came

ACCEPTED: Final = "accepted"
UNKNOWN: Final = "unknown"


@dataclass(kw_only=True)
class Answered:
    """An answer that a person gave.

    Attributes:
        label: of the call that asked.
        outcome: ACCEPTED, UNKNOWN, or why it was refused.
    """

    question: Question
    label: str
    text: str
    token: str
    begun: float
    outcome: str = UNKNOWN
    ended: float = 0.0
    tries: int = 0

    def __str__(self) -> str:
        return (
            f"{self.begun:.3f} answer to {self.question.id} ({self.question.kind}, {self.label}):"
            f" {self.text!r} {self.outcome} at {self.ended:.3f} after {self.tries} tries,"
            f" token {self.token}"
        )


@dataclass(kw_only=True)
class Commanded:
    """A command that a person gave.

    Attributes:
        label: of the call that was named.
        was_over: whether it had ended when its sender looked last before it, or after it.
        outcome: ACCEPTED if it was posted, UNKNOWN, or why it was refused.
    """

    what: str
    tree: int
    node: int
    label: str
    begun: float
    was_over: bool = False
    outcome: str = UNKNOWN
    ended: float = 0.0

    def __str__(self) -> str:
        over = ", which had ended" if self.was_over else ""
        return (
            f"{self.begun:.3f} {self.what} {self.node} ({self.label}){over}:"
            f" {self.outcome} at {self.ended:.3f}"
        )


def label_of(view: NodeView) -> str:
    """Return the label of a call."""
    inputs = view.inputs
    return str(inputs["label"]) if "label" in inputs else f"{inputs['tag']}:"


@dataclass
class _Asked:
    label: str
    due: float
    attempts: int = 0


class People:
    """Two people, each of whom sees the store in a way of their own; use it in a ``with`` block.

    Args:
        credulous: whether a fault is planted: the second person believes that any answer is taken.
        open_trees: returns the ids of trees that are thought to be open.
        ended_trees: returns those of trees that have ended.
    """

    def __init__(
        self,
        seed: int,
        urls: Sequence[str],
        history: History,
        open_trees: Callable[[], Sequence[int]],
        ended_trees: Callable[[], Sequence[int]],
        *,
        credulous: bool = False,
    ) -> None:
        self._answering = random.Random(f"{seed} answers")
        self._commanding = random.Random(f"{seed} commands")
        self._history = history
        self._open_trees = open_trees
        self._ended_trees = ended_trees
        self._credulous = credulous
        self._observers = [self._attached(url) for url in urls]
        self._stop = threading.Event()
        self._calm = threading.Event()
        self._asked: dict[str, _Asked] = {}
        self._ordinals: Counter[str] = Counter()
        self._pool = ThreadPoolExecutor(12, "person")
        self._threads = [
            threading.Thread(target=self._guarded, args=(do,), daemon=True)
            for do in (self._answer, self._command)
        ]
        self.answers: list[Answered] = []
        self.commands: list[Commanded] = []

    @staticmethod
    def _attached(url: str) -> Observer:
        end = time.monotonic() + _LONGEST
        while True:
            try:
                return attach(url)
            except StoreError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def calm_down(self) -> None:
        """Give no more commands; go on answering."""
        self._calm.set()

    def __exit__(self, *_: object) -> None:
        self._calm.set()
        self._stop.set()
        for thread in self._threads:
            thread.join(_LONGEST)
        self._pool.shutdown(cancel_futures=True)
        for observer in self._observers:
            observer.close()

    def _guarded(self, do: Callable[[], None]) -> None:
        try:
            do()
        except BaseException as error:
            self._history.complain(f"people failed: {error!r}")
            raise

    def _later(self, do: Callable[..., None], *args: Any) -> None:
        def guarded() -> None:
            self._guarded(lambda: do(*args))

        with suppress(RuntimeError):  # it is shut down
            self._pool.submit(guarded)

    # Answers

    def _answer(self) -> None:
        while not self._stop.wait(_LOOK):
            try:
                questions = self._observers[0].questions()
            except StoreError:
                continue
            now = time.monotonic()
            for question in questions:
                asked = self._asked.get(question.id)
                if asked is None:
                    if (label := self._label(question)) is None:
                        continue
                    asked = _Asked(label, now + self._answering.uniform(0.0, 1.0))
                    self._asked[question.id] = asked
                if now < asked.due:
                    continue
                asked.due = now + _AGAIN
                asked.attempts += 1
                self._decide(question, asked.label)

    def _label(self, question: Question) -> str | None:
        try:
            return label_of(self._observers[0].get_view(question.node_id))
        except StoreError:
            return None

    def _decide(self, question: Question, label: str) -> None:
        """Have one person answer, or both at once, or one once more later."""
        self._ordinals[label] += 1
        draw = self._answering.random()
        self._later(self._say, 0, question, label, self._text(question, label), 0.0)
        if draw < 0.25:
            self._later(self._say, 1, question, label, self._text(question, label), 0.0)
        elif draw < 0.4:
            late = self._answering.uniform(0.1, 3.0)
            self._later(self._say, 1, question, label, self._text(question, label), late)

    def _text(self, question: Question, label: str) -> str:
        draw = self._answering.random()
        unique = f"{label} {self._answering.randrange(10**6)}"
        match question.kind:
            case QuestionKind.Human:
                return f"said {unique}"
            case QuestionKind.Approval:
                return "allow" if draw < 0.7 else "deny: no"
            case QuestionKind.InDoubt:
                return "retry" if draw < 0.5 else f"use: used {unique}" if draw < 0.8 else "fail"
            case QuestionKind.Budget:
                return "cancel"
            case _:
                return "cancel" if draw < 0.08 else "resume" if draw < 0.5 else "resume it"

    def _say(self, person: int, question: Question, label: str, text: str, late: float) -> None:
        if self._stop.wait(late):
            return
        if text == "resume it":
            self._tell(person, "resume", question.node_id, label)
            return
        said = Answered(
            question=question, label=label, text=text, token=uuid4().hex, begun=time.monotonic()
        )
        self.answers.append(said)
        observer, end = self._observers[person], time.monotonic() + _LONGEST
        while True:
            said.tries += 1
            try:
                observer.answer(question.id, text, token=said.token)
                said.outcome = ACCEPTED
            except UnknownQuestionError as error:
                is_believed = self._credulous and person == 1
                said.outcome = ACCEPTED if is_believed else f"refused: {str(error)[:80]}"
            except InvalidValueError as error:
                said.outcome = f"invalid: {error}"
            except StoreError as error:
                said.outcome = f"{UNKNOWN}: {str(error)[:80]}"
                if time.monotonic() < end and not self._stop.wait(0.1):
                    continue
            break
        said.ended = time.monotonic()

    # Commands

    def _command(self) -> None:
        source = self._commanding
        while not self._calm.wait(source.expovariate(2.5)):
            self._later(self._give, random.Random(source.random()))

    def _give(self, source: random.Random) -> None:
        what = source.choices(
            ("pause", "cancel", "resume", "burst", "twice", "late"), (40, 10, 12, 8, 8, 6)
        )[0]
        trees = (self._ended_trees if what == "late" else self._open_trees)()
        if not trees:
            return
        tree, person = source.choice(trees), source.randrange(2)
        try:
            view = self._observers[person].get_view(tree)
        except (StoreError, UnknownNodeError):
            return
        below = [one for one in _all_of(view) if not one.state.final and one.id != tree]
        named = source.choice(below) if below and source.random() < 0.3 else view
        label = label_of(named)
        orders = {
            "burst": source.choice((
                ("pause", "resume", "cancel"),
                ("pause", "resume"),
                ("pause", "resume", "pause"),
            )),
            "twice": source.choice((("pause", "pause"), ("cancel", "cancel"))),
            "late": (source.choice(("pause", "cancel", "resume")),),
        }.get(what, (what,))
        for order in orders:
            self._tell(person, order, named.id, label, tree=tree)

    def _tell(
        self, person: int, what: str, node: int, label: str, *, tree: int | None = None
    ) -> None:
        observer = self._observers[person]
        told = Commanded(
            what=what, tree=tree or node, node=node, label=label, begun=time.monotonic()
        )
        self.commands.append(told)
        try:
            told.tree = observer.tree_of(node)
            # A tree that had ended may be continued by this, in a fork.
            told.was_over = observer.get_view(told.tree).state.final
            getattr(observer, what)(node)
            told.outcome = ACCEPTED
            told.was_over = told.was_over or observer.get_view(told.tree).state.final
        except (UsageError, UnknownNodeError) as error:
            told.outcome = f"refused: {error}"
        except StoreError as error:
            if told.outcome == UNKNOWN:
                told.outcome = f"{UNKNOWN}: {str(error)[:80]}"
            told.was_over = True
        told.ended = time.monotonic()


def _all_of(view: NodeView) -> list[NodeView]:
    return [view, *(found for child in view.children for found in _all_of(child))]
