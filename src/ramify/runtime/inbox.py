"""What other processes ask of the driver of a journal: followed once, and kept until it is safe."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from ramify.core.errors import ClosedError, InvalidValueError, RamifyError, StoreError
from ramify.core.question import Question
from ramify.core.store import Message
from ramify.runtime.journal import Journal
from ramify.runtime.wish import read_wish, refusal_of

log = logging.getLogger(__name__)

Follow = Callable[[Mapping[str, Any], int], None]  # a wish, and the id of its message


class Inbox:
    """The messages of one journal.

    Args:
        follow: does what a message asks for, or raises RamifyError.
    """

    def __init__(self, journal: Journal, follow: Follow) -> None:
        self._journal = journal
        self._follow = follow
        self._followed: dict[int, int] = {}  # messages, and what has to be saved before they go
        self._kept: set[int] = set()  # messages that could not be followed yet

    def look(self) -> None:
        """Follow what is new.

        One that cannot be followed is dropped, and the log says so; but if it is the store that
        fails, or the runtime is being closed, it stays.
        """
        for message in self._journal.store.inbox():
            if message.id not in self._followed and self._is_followed(message):
                self._followed[message.id] = self._journal.mark()
        self.forget_followed()

    def _is_followed(self, message: Message) -> bool:
        wish: Mapping[str, Any] = {}
        try:
            wish = read_wish(message.body)
            self._follow(wish, message.id)
        except (StoreError, ClosedError) as error:
            if message.id not in self._kept:
                self._kept.add(message.id)
                log.warning("what another process asked for has to wait: %s", error)
            return False
        except RamifyError as error:
            log.warning("what another process asked for was not done: %s", error)
            if isinstance(key := wish.get("key"), str):  # by which it is waited for
                self._journal.store.tell(refusal_of(key, error))
        self._kept.discard(message.id)
        return True

    def forget_followed(self) -> None:
        """Let go of those messages of which all that was done is written down."""
        if self._followed:
            self._journal.mark()  # it may have failed the last time
        for message, mark in tuple(self._followed.items()):
            if self._journal.is_saved(mark):
                self._journal.store.done(message)
                del self._followed[message]

    def answered(self) -> Iterator[Question]:
        """Yield the questions that have an answer here, which are open until it is followed."""
        for message in self._journal.store.inbox():
            with suppress(InvalidValueError):
                match read_wish(message.body):
                    case {"do": "answer", "id": str(id)} if found := self._asked(id):
                        yield found
                    case _:
                        pass

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
