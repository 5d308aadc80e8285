"""Holds a resource open in one task, for use from any other task, loop or thread.

Many libraries require that a resource is closed by the task that opened it. The ResourceTask is
that task: it enters the context manager, waits, and leaves it. Each use of the resource runs on its
loop as a task of its own, and a caller may stop waiting for it without harm to the others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Generic, TypeVar

from treefold.core.errors import ClosedError
from treefold.runtime.loops.cancellation import wait_until

T = TypeVar("T")
R = TypeVar("R")


class ResourceTask(Generic[T]):
    """Owns the resource of a context manager, from ``open`` to ``aclose``.

    Attributes:
        failure: the exception of the context manager, or None.
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
        """Whether the context manager was left, or has failed."""
        return self._ended.done()

    async def open(self) -> T:
        """Enter the context manager, in a task on this loop, and return the resource.

        If this is cancelled, the resource is closed again.
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
        """Run *work* with the resource on the owner's loop, and return its result.

        Cancelling this cancels *work*, without waiting for it.

        Raises:
            ClosedError: the resource is not open, or is closed before *work* is done.
        """
        answer: Future[R] = Future()
        self._post(self._begin, work, answer)
        return await asyncio.wrap_future(answer)

    async def aclose(self) -> None:
        """Cancel the calls under way, leave the context manager, and wait until that is done.

        A cancellation during that wait is raised when everything is closed.
        """
        try:
            self._post(self._close)
        except ClosedError:
            # It was never opened, or its task ended with its loop.
            return
        await wait_until(self._ended.done, lambda: asyncio.wrap_future(_follower(self._ended)))

    def _post(self, function: Callable[..., object], *args: Any) -> None:
        if self._loop is None or self._ended.done():
            raise ClosedError(f"{self._name} is not open")
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
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
        except BaseException as error:  # noqa: BLE001 - raised by open(), and kept in failure
            self.failure = error
            _fail(self._opened, error)
        finally:
            self._give_up_calls()
            while self._calls:
                await asyncio.wait(self._calls)

    def _has_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled():
            # Retrieve the exception: asyncio would log that it was never retrieved.
            task.exception()
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
        assert self._loop is not None  # this runs on it
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
    except BaseException as error:  # noqa: BLE001 - raised where the call is awaited
        _fail(answer, error)
    else:
        _settle(answer, value)


def _settle(future: "Future[R]", value: R) -> None:
    if not future.done():
        with suppress(InvalidStateError):  # cancelled by another thread at this moment
            future.set_result(value)


def _fail(future: "Future[Any]", error: BaseException) -> None:
    if not future.done():
        with suppress(InvalidStateError):
            future.set_exception(error)


def _follower(future: "Future[None]") -> "Future[None]":
    """Return a future that is done when *future* is, and can be cancelled without it."""
    follower: Future[None] = Future()
    future.add_done_callback(lambda _: _settle(follower, None))
    return follower
