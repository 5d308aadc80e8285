"""Objects shared between the calls of a tree: one bag per node, closed with its tree."""

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from treefold.core.errors import BlockingCallError, ClosedError, UsageError

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Slot:
    """One object, or the future of one that a thread is making."""

    maker: int = field(default_factory=threading.get_ident)
    made: "Future[Any]" = field(default_factory=Future[Any])


class SessionBag:
    """Call tree: objects that belong to one node, under a namespace and a key.

    It has no conversation: neither a Session with a model, nor a saved chat.

    Functions reach it through ``ctx.get_or_put``, whose scope selects the node. An object with an
    ``aclose()`` or ``close()`` method is closed when its tree is deleted or its runtime closes, not
    when the call ends: a finished tree can still be inspected.

    Example:
        >>> bag = SessionBag()
        >>> bag.get_or_put("shell", "cwd", lambda: "/tmp")
        '/tmp'
        >>> bag.get_or_put("shell", "cwd", lambda: "/home")
        '/tmp'
    """

    def __init__(self) -> None:
        self._slots: dict[tuple[str, str], _Slot] = {}
        self._lock = threading.Lock()  # never held while foreign code runs
        self._closed = False

    def get_or_put(self, namespace: str, key: str, factory: Callable[[], T]) -> T:
        """Return the object under *namespace* and *key*; *factory* makes it on first use.

        Raises:
            ClosedError: the tree that the bag belongs to was deleted, or its runtime closed.
            BlockingCallError: another thread is making it, and this thread runs an event loop.
        """
        with self._lock:
            if self._closed:
                raise ClosedError(f"{namespace}/{key} belongs to a tree that is gone")
            mine = _Slot()
            slot = self._slots.setdefault((namespace, key), mine)
        if slot is not mine:
            return _wait_for(slot, f"{namespace}/{key}")
        try:
            value = factory()
            if inspect.iscoroutine(value):
                value.close()
                _refuse_async_factory(f"{namespace}/{key}")
        except BaseException as error:
            with self._lock:
                self._slots.pop((namespace, key), None)
            mine.made.set_exception(error)
            raise
        with self._lock:
            late = self._closed
            mine.made.set_result(value)
        if late:
            _close_late(value, f"{namespace}/{key}")
        return value

    async def aclose(self) -> None:
        """Close every object that can be closed, newest first, and accept no more."""
        with self._lock:
            self._closed = True
            slots, self._slots = self._slots, {}
        interrupted: BaseException | None = None
        for (namespace, key), slot in reversed(slots.items()):
            if not slot.made.done() or slot.made.exception() is not None:
                continue
            item = slot.made.result()
            if (close := closing_method(item)) is None:
                continue
            try:
                outcome = close()
                if inspect.isawaitable(outcome):
                    await outcome
            # Foreign code may raise anything, and the other objects still have to be closed.
            except Exception:
                log.exception("closing %s/%s of a session bag failed", namespace, key)
            except BaseException as error:  # noqa: BLE001 - raised when the others are closed, too
                interrupted = error
        if interrupted is not None:
            raise interrupted


def closing_method(item: Any) -> Callable[[], Any] | None:
    """Return the method that closes *item*, perhaps an async one; None if there is none."""
    close = getattr(item, "aclose", None) or getattr(item, "close", None)
    return close if callable(close) else None


async def close_all(bags: Sequence[SessionBag]) -> None:
    """Close *bags*, the newest first; all of them are closed even if this is cancelled."""
    interrupted: BaseException | None = None
    for bag in reversed(bags):
        try:
            await bag.aclose()
        except BaseException as error:  # noqa: BLE001 - raised when the others are closed, too
            interrupted = error
    if interrupted is not None:
        raise interrupted


def _close_late(value: Any, what: str) -> NoReturn:
    """Close an object whose bag was closed while it was being made."""
    if callable(close := getattr(value, "close", None)):
        close()
    raise ClosedError(f"{what} was made too late: the tree that it belongs to is gone")


def _refuse_async_factory(what: str) -> NoReturn:
    raise UsageError(
        f"the factory of {what} is async; make the object first and give 'lambda: it', or make it"
        " connect when it is first used"
    )


def _wait_for(slot: _Slot, what: str) -> Any:
    if not slot.made.done():
        if slot.maker == threading.get_ident():
            raise UsageError(f"the factory of {what} asks for {what} itself")
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass  # no loop runs in this thread, so it may block
        else:
            raise BlockingCallError(
                f"{what} is being made in another thread, and waiting for it here would stop the"
                " event loop: make it before you call functions that share it"
            )
    return slot.made.result()
