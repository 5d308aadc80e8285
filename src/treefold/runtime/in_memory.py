"""``InMemory``: the backend of a runtime without a journal."""

from collections.abc import Mapping, Sequence
from typing import Any

from treefold.core.budget import Budget
from treefold.core.call_keys import of_continuation
from treefold.core.call_request import CallRequest
from treefold.core.errors import InvalidValueError, ModelProviderException
from treefold.core.question import Question
from treefold.runtime.backend import Backend
from treefold.runtime.calls.node import CallNode
from treefold.runtime.engine import Engine


class InMemory(Backend):
    """Keeps trees as long as the runtime: nothing of an earlier process, nothing of others."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._services = engine.services  # a replay puts another board there

    def invoked_again(self, root: CallNode, request: CallRequest) -> CallNode | None:
        return self._call_again(root) if root.function.is_agent else None

    def resume_ended(
        self, node: CallNode, budget: Budget | None, without: Sequence[str]
    ) -> CallNode | None:
        return self._call_again(node) if node.parent is None else None

    def _call_again(self, root: CallNode) -> CallNode | None:
        """Continue the conversation of an agent whose provider failed, in a new call of it."""
        if not isinstance(root.exception, ModelProviderException):
            return None
        return root.loop_handle.run_sync(self._call_once_more, root)

    def _call_once_more(self, root: CallNode) -> CallNode:
        key = of_continuation(root.id)
        if (known := self._engine.keys.find(key)) is not None:
            return known
        request = root.continuation()
        request.continues = root.stable_id
        again = self._engine.start(request, None)
        self._engine.keys.add(again, key)
        return again

    def resume_held_back(self, root: CallNode, without: Sequence[str]) -> None:
        raise InvalidValueError(
            "guards are recorded in a store, and this runtime has none: its own bind all of its"
            " runs"
        )

    def questions(self) -> list[Question]:
        return self._services.board.questions()

    def answer(self, id: str, text: Any, args: Mapping[str, Any] | None) -> None:
        self._services.board.answer(id, text, args)

    def expire(self, question: Question) -> None:
        self._services.board.expire(question.id)
