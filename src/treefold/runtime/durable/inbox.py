"""The commands that observers post to the driver: executed once, deleted when that is durable.

The first answer to a question in the inbox wins, from whichever process. So an answer that is given
in the driver's own process claims the question here first.
"""

import json
import logging
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from treefold.core.errors import (
    ClosedError,
    InvalidValueError,
    StoreError,
    TreefoldError,
    UnknownQuestionError,
)
from treefold.core.question import Question
from treefold.core.store import Message, nonblocking
from treefold.runtime.durable.commands import read_command, refusal_of
from treefold.runtime.durable.journal_writer import JournalWriter

log = logging.getLogger(__name__)

Execute = Callable[[Mapping[str, Any], int], None]  # a command, and the id of its message


class Inbox:
    """The messages of one journal."""

    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal
        self._executed: dict[int, int] = {}  # messages, and the mark to be saved before deletion
        self._postponed: set[int] = set()  # messages that could not be executed yet
        self._claims: set[str] = set()  # bodies of claims whose answer is just being given

    def process(self, execute: Execute) -> None:
        """Execute the new commands; *execute* carries one out, or raises TreefoldError.

        A command that cannot be executed is dropped with a warning in the log; but it stays in the
        inbox if the store fails or the runtime is being closed.
        """
        for message in self._journal.store.inbox():
            if message.id in self._executed or message.body in self._claims:
                continue
            if self._try_execute(message, execute):
                self._executed[message.id] = self._journal.mark()
        self.delete_executed()

    def _try_execute(self, message: Message, execute: Execute) -> bool:
        command: Mapping[str, Any] = {}
        try:
            command = read_command(message.body)
            execute(command, message.id)
        except (StoreError, ClosedError) as error:
            if message.id not in self._postponed:
                self._postponed.add(message.id)
                log.warning("what another process asked for has to wait: %s", error)
            return False
        except TreefoldError as error:
            log.warning("what another process asked for was not done: %s", error)
            # The process that posted it waits for a reply with this key.
            if isinstance(key := command.get("key"), str):
                self._journal.store.broadcast(refusal_of(key, error))
        self._postponed.discard(message.id)
        return True

    def delete_executed(self) -> None:
        """Delete the messages whose effects are all durable."""
        if self._executed:
            # Request a write again: the last one may have failed.
            self._journal.mark()
        for message, mark in tuple(self._executed.items()):
            if self._journal.is_saved(mark):
                # If the store is busy, the next call deletes it.
                with nonblocking():
                    self._journal.store.done(message)
                # The thread that closes the runtime may do the same at this moment.
                self._executed.pop(message, None)

    @contextmanager
    def claim(self, question: str, *, on_loop: bool) -> Generator[None]:
        """Claim *question* for an answer in this process; undone if the block raises.

        Raises:
            UnknownQuestionError: another process has answered it already.
            StoreBusyError: another program has the store locked, and this is *on_loop*.
        """
        store, mode = self._journal.store, nonblocking if on_loop else nullcontext
        claim = json.dumps({"do": "claim", "id": question, "by": os.urandom(8).hex()})
        self._claims.add(claim)
        try:
            with mode():
                posted = store.post(claim, question=question)
            messages = store.inbox()
            if not posted and question in map(_answered_by, messages):
                raise UnknownQuestionError(f"question {question!r} has been answered already")
            # Otherwise the question is not written yet, and no other process can know of it.
            found = [message.id for message in messages if message.body == claim]
            try:
                yield
            except BaseException:
                with mode():
                    for message in found:
                        store.done(message)
                raise
            self._executed.update(dict.fromkeys(found, self._journal.mark()))
        finally:
            self._claims.discard(claim)

    def answered(self) -> Iterator[Question]:
        """Yield the open questions whose answer is in the inbox and not executed yet."""
        for message in self._journal.store.inbox():
            id = _answered_by(message)
            if id is not None and (found := self._asked(id)) is not None:
                yield found

    def _asked(self, id: str) -> Question | None:
        store, node = self._journal.store, id.partition("-")[0]
        tree = store.find(node=int(node)) if node.isdecimal() else None
        found: Question | None = None
        for entry in () if tree is None else store.entries(tree):
            if entry.question is not None and entry.question.id == id:
                found = entry.question
            elif found is not None and entry.node == found.node_id:
                ended = entry.state is not None and entry.state.final
                found = None if ended or entry.settled == id else found
        return found


def _answered_by(message: Message) -> str | None:
    """Return the id of the question that *message* answers or claims."""
    with suppress(InvalidValueError):
        match read_command(message.body):
            case {"do": "answer" | "claim", "id": str(id)}:
                return id
            case _:
                pass
    return None
