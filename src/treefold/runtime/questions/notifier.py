"""Tells people of questions: calls ``Runtime(notify=...)`` once for each, when it is durable.

What was told is recorded, so that the next process does not tell it again. If a process dies in
between, it does. A failure is logged, and disturbs no run.
"""

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Protocol

from treefold.core.address import address
from treefold.core.errors import InvalidValueError, TreefoldError
from treefold.core.events import QuestionNotified
from treefold.core.fact import replace
from treefold.core.notification import Notification
from treefold.core.question import Question
from treefold.runtime.calls.node import CallNode
from treefold.runtime.loops.threads import in_thread
from treefold.runtime.questions.webhook import checked_url, post_json
from treefold.runtime.trees.question_board import QuestionBoard
from treefold.runtime.trees.run_log import answer_command

log = logging.getLogger(__name__)

Notify = Callable[[Notification], Awaitable[object] | object] | str

_AT_ONCE: Final = 4
_TRIES: Final = 3
_WAIT: Final = 1.0  # seconds before the second attempt, twice that before the third
_TIME_LIMIT: Final = 30.0  # seconds for one attempt
_GRACE: Final = 5.0  # seconds to tell the last ones when the runtime is closed


class Finder(Protocol):
    """The part of the engine that is needed here."""

    def find(self, node: int) -> CallNode:
        """Return the node with this id, read from the journal if need be."""
        ...


def notifier_for(notify: Notify) -> "Callable[[QuestionBoard, Finder], Notifier]":
    """Return what makes the notifier of a runtime.

    Raises:
        InvalidValueError: *notify* is neither a function nor a web address.
    """
    if isinstance(notify, str):
        return partial(Notifier, partial(_post, checked_url(notify)))
    if callable(notify):
        return partial(Notifier, notify)
    raise InvalidValueError(f"notify= is a function or an https:// address, not {notify!r}")


class Notifier:
    """Calls a function for each question of one runtime; it may return what is to be awaited."""

    def __init__(
        self, call: Callable[[Notification], object], board: QuestionBoard, engine: Finder
    ) -> None:
        self._call = call
        self._board = board
        self._engine = engine
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by the id of the question
        self._free = asyncio.Semaphore(_AT_ONCE)
        board.tell, board.telling = self.tell, self._tasks
        # The program knows of its questions, so it is not warned of them.
        board.is_read = True

    def tell(self, question: Question) -> None:
        """Begin to tell people of *question*; on the loop."""
        try:
            node = self._engine.find(question.node_id)
        except TreefoldError as error:  # its tree was deleted, or cannot be read
            log.warning("nobody is told of question %s: %s", question.id, error)
            return
        earlier = self._tasks.get(question.id)
        work = self._tell(node, question, earlier)
        # It is no part of the call that asks.
        context = contextvars.Context()
        loop, name = node.loop_handle.loop, f"notification of {question.id}"
        task = loop.create_task(work, name=name, context=context)
        self._tasks[question.id] = task
        task.add_done_callback(partial(self._over, question.id))

    def _over(self, id: str, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(id) is task:
            del self._tasks[id]

    async def _tell(
        self, node: CallNode, question: Question, earlier: "asyncio.Task[None] | None"
    ) -> None:
        if earlier is not None:  # of the same question, before it was escalated
            await asyncio.wait([earlier])
        try:
            if node.tree.journal is not None:
                await node.tree.journal.saved(node)
            notification = _notification(node, question)
            async with self._free:
                is_told = await self._try(notification)
            # It may have been answered or escalated.
            current = self._board.find(question.id)
            if is_told and current is not None and current.to == question.to:
                self._board.update(replace(current, notified=True), QuestionNotified)
        except TreefoldError as error:
            # The journal cannot be read or written, or is closed: the next process tells them.
            log.debug("it is not recorded that people know of question %s: %s", question.id, error)

    async def _try(self, notification: Notification) -> bool:
        failure: Exception | None = None
        for attempt in range(_TRIES):
            await asyncio.sleep(attempt * _WAIT)
            if self._board.find(notification.question.id) is None:
                return False
            try:
                async with asyncio.timeout(_TIME_LIMIT):
                    outcome: Any = await in_thread(self._call, notification)
                    if inspect.isawaitable(outcome):
                        await outcome
            except Exception as error:  # noqa: BLE001 - foreign code; logged below
                failure = error
            else:
                return True
        log.warning(
            "nobody could be told that %s asks (%s): %r",
            address(notification.path),
            notification.command,
            failure,
        )
        return False

    async def drain(self) -> None:
        """Wait until people were told of all questions so far, but not for long."""
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=_GRACE)
        for task in tuple(self._tasks.values()):
            task.cancel()


def _notification(node: CallNode, question: Question) -> Notification:
    tree = node.tree
    path = None if tree.journal is None else tree.journal.path
    return Notification(
        question=question.redacted(tree.as_written),
        run=tree.number,
        path=node.path,
        function=node.function.name,
        command=answer_command(question, node.path, path),
    )


def _post(url: str, notification: Notification) -> None:
    post_json(url, notification.to_json())
