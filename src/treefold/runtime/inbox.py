"""What other processes ask of the driver of a journal: followed once, and kept until it is safe.

The first answer to a question in here wins, from whichever process. So an answer that is given in
the driver's process claims the question here first.
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
from treefold.runtime.commands import read_command, refusal_of
from treefold.runtime.journal_writer import JournalWriter

log = logging.getLogger(__name__)

Follow = Callable[[Mapping[str, Any], int], None]  # a command, and the id of its message


class Inbox:
    """The messages of one journal.

    Args:
        follow: does what a message asks for, or raises TreefoldError.
    """

    def __init__(self, journal: JournalWriter, follow: Follow) -> None:
        self._journal = journal
        self._follow = follow
        self._followed: dict[int, int] = {}  # messages, and what has to be saved before they go
        self._kept: set[int] = set()  # messages that could not be followed yet
        self._claims: set[str] = set()  # messages that announce an answer which is given just now

    def look(self) -> None:
        """Follow what is new.

        One that cannot be followed is dropped, and the log says so; but if it is the store that
        fails, or the runtime is being closed, it stays.
        """
        for message in self._journal.store.inbox():
            if message.id in self._followed or message.body in self._claims:
                continue
            if self._is_followed(message):
                self._followed[message.id] = self._journal.mark()
        self.forget_followed()

    def _is_followed(self, message: Message) -> bool:
        command: Mapping[str, Any] = {}
        try:
            command = read_command(message.body)
            self._follow(command, message.id)
        except (StoreError, ClosedError) as error:
            if message.id not in self._kept:
                self._kept.add(message.id)
                log.warning("what another process asked for has to wait: %s", error)
            return False
        except TreefoldError as error:
            log.warning("what another process asked for was not done: %s", error)
            if isinstance(key := command.get("key"), str):  # by which it is waited for
                self._journal.store.broadcast(refusal_of(key, error))
        self._kept.discard(message.id)
        return True

    def forget_followed(self) -> None:
        """Let go of those messages of which all that was done is written down."""
        if self._followed:
            self._journal.mark()  # it may have failed the last time
        for message, mark in tuple(self._followed.items()):
            if self._journal.is_saved(mark):
                with nonblocking():  # or the next time
                    self._journal.store.done(message)
                # The thread that closes the runtime may do the same at this moment.
                self._followed.pop(message, None)

    @contextmanager
    def claim(self, question: str, *, on_loop: bool) -> Generator[None]:
        """Claim *question* for an answer in this process; the claim stays if the block succeeds.

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
            # Otherwise it is not written yet, and no other process can know of it.
            found = [message.id for message in messages if message.body == claim]
            try:
                yield
            except BaseException:
                with mode():
                    for message in found:
                        store.done(message)
                raise
            self._followed.update(dict.fromkeys(found, self._journal.mark()))
        finally:
            self._claims.discard(claim)

    def answered(self) -> Iterator[Question]:
        """Yield the questions that have an answer here, which are open until it is followed."""
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
    """Return the id of the question that *message* answers, or says to be answered."""
    with suppress(InvalidValueError):
        match read_command(message.body):
            case {"do": "answer" | "claim", "id": str(id)}:
                return id
            case _:
                pass
    return None
