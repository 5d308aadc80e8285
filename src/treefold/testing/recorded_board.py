"""The questions of a replay: nobody but the recording answers them."""

from collections.abc import Callable, Sequence
from functools import partial

from treefold.core.question import Answer, Question, QuestionKind
from treefold.runtime.loop_handle import LoopHandle
from treefold.runtime.question_board import QuestionBoard
from treefold.runtime.tree import Tree


class RecordedBoard(QuestionBoard):
    """Where questions get the answers that were recorded.

    Args:
        answer: is told each question, and how to answer it.
    """

    def __init__(self, answer: Callable[[Question, Callable[[Answer], None]], None]) -> None:
        super().__init__()
        self._answer = answer

    def ask(
        self,
        node_id: int,
        tree: Tree,
        loop_handle: LoopHandle,
        kind: QuestionKind,
        text: str,
        choices: Sequence[str],
        settle: Callable[[Answer], None],
        key: str,
    ) -> Question:
        question = super().ask(node_id, tree, loop_handle, kind, text, choices, settle, key)
        self._answer(question, partial(self._give, question.id))
        return question

    def _give(self, id: str, answer: Answer) -> None:
        if id in self._open:  # it may have been withdrawn
            self._settle(id, answer)
