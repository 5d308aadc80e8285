"""Hold something open in one task, and use it from any other, on any loop and in any thread.

Many libraries want what they opened to be closed by the very task that opened it. That task is
ours: it enters the context manager, waits, and leaves it. Whoever wants to use it has his call made
on its loop, by a task of the call's own, and may give up waiting without any harm to the rest.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Generic, TypeVar

from treefold.core.errors import ClosedError

T = TypeVar("T")
R = TypeVar("R")


class ResourceTask(Generic[T]):
    """Owns what a context manager gives, from ``open`` to ``aclose``.

    Attributes:
        failure: what the context manager raised, if it did.
    """

    def __init__(self, resource: AbstractAsyncContextManager[T], name: str) -> None:
        self._resource = resource
        self._name = name
        self._opened: Future[T] = Future()
        self._ended: Future[None] = Future()
        self._calls: dict[asyncio.Task[Any], Future[Any]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._takes_calls = False
        self.failure: BaseException | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it was left, or ended by itself."""
        return self._ended.done()

    async def open(self) -> T:
        """Enter the context manager, in a task on this loop, and return what it gives.

        Whoever gives up waiting for that leaves nothing behind.
        """
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._hold(), name=self._name)
        self._task.add_done_callback(self._has_ended)
        try:
            return await asyncio.wrap_future(self._opened)
        except BaseException:
            self._task.cancel()
            await self.aclose()
            raise

    async def call(self, work: Callable[[T], Coroutine[Any, Any, R]]) -> R:
        """Return what *work* returns, which is done on the owner's loop.

        Being cancelled cancels the work, and does not wait for it.

        Raises:
            ClosedError: it is not open, or is closed before the work is done.
        """
        answer: Future[R] = Future()
        self._post(self._begin, work, answer)
        return await asyncio.wrap_future(answer)

    async def aclose(self) -> None:
        """Give up the calls under way, leave the context manager, and wait until that is done.

        Being cancelled meanwhile does not leave anything open; it is raised at the end.
        """
        try:
            self._post(self._close)
        except ClosedError:  # nobody has opened it, or the end of its loop was that of its tasks
            return
        interrupted = False
        while not self._ended.done():
            try:
                await asyncio.wrap_future(_follower(self._ended))
            except asyncio.CancelledError:
                interrupted = True
        if interrupted:
            raise asyncio.CancelledError

    def _post(self, function: Callable[..., object], *args: Any) -> None:
        if self._loop is None or self._ended.done():
            raise ClosedError(f"{self._name} is not open")
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # its loop was closed without it
            raise ClosedError(f"the event loop of {self._name} has been closed") from None

    # On the loop

    async def _hold(self) -> None:
        try:
            async with self._resource as held:
                self._takes_calls = True
                _settle(self._opened, held)
                await self._leave.wait()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - whoever opened it, or uses it, is told
            self.failure = error
            _fail(self._opened, error)
        finally:
            self._give_up_calls()
            while self._calls:
                await asyncio.wait(self._calls)

    def _has_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled():
            task.exception()  # nobody else looks at it
        closed = ClosedError(f"{self._name} was closed")
        _fail(self._opened, closed)
        for answer in self._calls.values():
            _fail(answer, closed)
        _settle(self._ended, None)

    def _begin(self, work: Callable[[T], Awaitable[R]], answer: "Future[R]") -> None:
        if answer.cancelled():
            return
        if not self._takes_calls:
            _fail(answer, ClosedError(f"{self._name} is not open"))
            return
        assert self._loop is not None  # this is it
        task = self._loop.create_task(_done(work, self._opened.result(), answer), name=self._name)
        self._calls[task] = answer
        task.add_done_callback(self._call_ended)
        answer.add_done_callback(lambda _: self._cancel_if_given_up(task, answer))

    def _cancel_if_given_up(self, task: "asyncio.Task[None]", answer: "Future[Any]") -> None:
        if answer.cancelled():
            with suppress(ClosedError):
                self._post(task.cancel)

    def _call_ended(self, task: "asyncio.Task[None]") -> None:
        answer = self._calls.pop(task)
        _fail(answer, ClosedError(f"{self._name} was closed"))

    def _close(self) -> None:
        self._give_up_calls()
        self._leave.set()

    def _give_up_calls(self) -> None:
        self._takes_calls = False
        for task, answer in tuple(self._calls.items()):
            _fail(answer, ClosedError(f"{self._name} was closed"))
            task.cancel()


async def _done(work: Callable[[T], Awaitable[R]], held: T, answer: "Future[R]") -> None:
    try:
        value = await work(held)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits
        _fail(answer, error)
    else:
        _settle(answer, value)


def _settle(future: "Future[R]", value: R) -> None:
    if not future.done():
        with suppress(InvalidStateError):  # somebody gives up waiting at this very moment
            future.set_result(value)


def _fail(future: "Future[Any]", error: BaseException) -> None:
    if not future.done():
        with suppress(InvalidStateError):
            future.set_exception(error)


def _follower(future: "Future[None]") -> "Future[None]":
    """Return a future that ends with *future*, and may be given up without it."""
    follower: Future[None] = Future()
    future.add_done_callback(lambda _: _settle(follower, None))
    return follower
