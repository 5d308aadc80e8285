"""The commands that observers post to the driver: executed, and deleted when that is durable.

If the process dies in between, the next one executes a command again: that must change nothing.

The first answer to a question in the inbox wins, from whichever process. So an answer that is given
in the driver's own process claims the question here first.
"""

import logging
import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, nullcontext, suppress
from typing import Final

from treefold.core.commands import (
    AnswerQuestion,
    ClaimQuestion,
    Command,
    ExpireQuestion,
    Refusal,
    ResumeCall,
    read_command,
    write_command,
)
from treefold.core.errors import (
    ClosedError,
    InvalidValueError,
    StoreDamagedError,
    StoreError,
    TreefoldError,
    UnknownQuestionError,
)
from treefold.core.fact import encode
from treefold.core.store import Message, nonblocking
from treefold.runtime.durable.journal_writer import JournalWriter

log = logging.getLogger(__name__)

# Executes a command; may return what tells whether that is complete.
IsComplete = Callable[[], bool]
Execute = Callable[[Command], IsComplete | None]

_ANSWERS: Final = (AnswerQuestion, ExpireQuestion, ClaimQuestion)


class Inbox:
    """The messages of one journal."""

    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal
        self._executed: dict[int, int] = {}  # messages, and the mark to be saved before deletion
        self._incomplete: dict[int, IsComplete] = {}  # of executed messages
        self._postponed: set[int] = set()  # messages that could not be executed yet
        self._claims: set[str] = set()  # bodies of claims whose answer is just being given

    def process(self, execute: Execute) -> None:
        """Execute the new commands, and delete those whose effects are durable."""
        self.execute(self._journal.store.inbox(), execute)
        self.delete_executed()

    def execute(
        self, messages: Iterable[Message], execute: Execute, *, until_resume: bool = False
    ) -> None:
        """Execute the commands in *messages* that are new; *execute* may raise TreefoldError.

        A command that cannot be executed is dropped with a warning in the log; but it stays in the
        inbox if the store fails or the runtime is being closed.

        Answers are executed first: they are to questions that were open when they were posted. With
        *until_resume*, the commands after a resume are left for the next call: if a resume posts
        answers, those come first.
        """
        new = [
            (message, _command_in(message))
            for message in messages
            if message.id not in self._executed and message.body not in self._claims
        ]
        for message, command in sorted(new, key=lambda one: not isinstance(one[1], _ANSWERS)):
            is_done = self._try_execute(message, execute)
            if isinstance(command, ClaimQuestion):
                # The process that claimed the question ended before it had answered. As long as the
                # claim is there, no other process can answer.
                self._journal.store.done(message.id)
            if until_resume and is_done and isinstance(command, ResumeCall):
                break

    def note_executed(self, message: int, is_complete: IsComplete | None = None) -> None:
        """Note that a message was executed: it is deleted when its effects are durable.

        That is not before *is_complete*, if that is given.
        """
        if is_complete is not None:
            self._incomplete[message] = is_complete
        self._executed[message] = self._journal.mark()

    def is_executed(self, message: int) -> bool:
        """Whether a message was executed, and is not deleted yet."""
        return message in self._executed

    def _try_execute(self, message: Message, execute: Execute) -> bool:
        """Execute the command in *message*, or refuse it; False if it has to wait."""
        command: Command | None = None
        is_complete: IsComplete | None = None
        try:
            command = read_command(message.body)
            is_complete = execute(command)
        except TreefoldError as error:
            # A journal that is damaged stays so, and any other fault of the store may pass.
            may_pass = isinstance(error, StoreError | ClosedError)
            if may_pass and not isinstance(error, StoreDamagedError):
                if message.id not in self._postponed:
                    self._postponed.add(message.id)
                    log.warning("what another process asked for has to wait: %s", error)
                return False
            if self._journal.is_closed:
                return False
            log.warning("what another process asked for was not done: %s", error)
            # The process that posted it waits for a reply with this key.
            if (key := getattr(command, "key", None)) is not None:
                self._journal.store.broadcast(encode(Refusal(key, str(error))))
        self._postponed.discard(message.id)
        # Once the journal is closed, its effects are not recorded: the next driver executes it.
        if not self._journal.is_closed:
            self.note_executed(message.id, is_complete)
        return True

    def delete_executed(self) -> None:
        """Delete the messages whose effects are all durable."""
        for message in self.saved():
            # If the store is busy, the next call deletes it.
            with nonblocking():
                self._journal.store.done(message)
            self.forget(message)

    @property
    def has_executed(self) -> bool:
        """Whether executed messages are to be deleted as soon as their effects are durable."""
        return len(self._executed) > len(self._incomplete)

    def saved(self) -> list[int]:
        """Return the executed messages whose effects are all durable."""
        if self._executed:
            # Request a write again: the last one may have failed.
            self._journal.mark()
        self.note_complete()
        return [
            message
            for message, mark in tuple(self._executed.items())
            if message not in self._incomplete and self._journal.is_saved(mark)
        ]

    def note_complete(self) -> None:
        """Note of which executed messages nothing is left to do.

        Once the journal is closed, this cannot be told: calls are ended without a record then.
        """
        for message, is_complete in tuple(self._incomplete.items()):
            if is_complete():
                self._incomplete.pop(message, None)

    def forget(self, message: int) -> None:
        """Forget a message that was deleted."""
        # The thread that closes the runtime may do the same at this moment.
        self._executed.pop(message, None)
        self._incomplete.pop(message, None)

    @contextmanager
    def claim(self, question: str, *, on_loop: bool) -> Generator[None]:
        """Claim *question* for an answer in this process; undone if the block raises.

        Raises:
            UnknownQuestionError: another process has answered it already.
            StoreBusyError: another program has the store locked, and this is *on_loop*.
        """
        store, mode = self._journal.store, nonblocking if on_loop else nullcontext
        claim = write_command(ClaimQuestion(question, os.urandom(8).hex()))
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


def _command_in(message: Message) -> Command | None:
    """Return the command in *message*; None if there is none."""
    with suppress(InvalidValueError):
        return read_command(message.body)
    return None


def _answered_by(message: Message) -> str | None:
    """Return the id of the question that *message* answers or claims."""
    command = _command_in(message)
    return command.id if isinstance(command, AnswerQuestion | ClaimQuestion) else None
