"""``RecordedBoard``: the questions of a replay, answered from the recording only."""

from collections.abc import Callable, Sequence
from functools import partial

from treefold.core.question import Answer, Question, QuestionKind
from treefold.runtime.loops.loop_handle import LoopHandle
from treefold.runtime.trees.question_board import QuestionBoard
from treefold.runtime.trees.tree import Tree


class RecordedBoard(QuestionBoard):
    """A question board that answers each question as recorded.

    Args:
        answer: is called with each question and a callback that takes the answer.
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
        # The question may have been withdrawn meanwhile.
        if id in self._open:
            self._settle(id, answer)
