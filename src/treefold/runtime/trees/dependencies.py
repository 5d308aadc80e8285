"""The dependencies of one tree: made before its first call runs, closed after its last."""

import inspect
import logging
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from typing import Any, cast

from treefold.core.deps import DepsSource, RunInfo
from treefold.core.errors import ClosedError, DependencyError, UsageError
from treefold.core.events import Failure
from treefold.runtime.trees.bags import closing_method

log = logging.getLogger(__name__)


class Dependencies:
    """What ``ctx.deps`` is in one tree, as long as this process runs it.

    The task of the topmost call that runs here opens and closes it.

    Attributes:
        source: where they come from.
        top: the id of that call.
        is_given: whether they were given for this call, and not for the whole runtime.
    """

    __slots__ = (
        "_closing",
        "_is_closed",
        "_is_open",
        "_run",
        "_value",
        "is_given",
        "source",
        "top",
    )

    def __init__(self, source: DepsSource, run: RunInfo, *, top: int, is_given: bool) -> None:
        self.source = source
        self.top = top
        self.is_given = is_given
        self._run = run
        self._value: Any = None
        self._closing = AsyncExitStack()
        self._is_open = self._is_closed = False

    @property
    def value(self) -> Any:
        """What ``ctx.deps`` returns.

        Raises:
            UsageError: they are made later, when the run begins.
            ClosedError: the run has ended in this process.
        """
        if not self._is_open:
            raise UsageError(f"{self._of} has not begun, and its dependencies are not made yet")
        if self._is_closed:
            raise ClosedError(f"{self._of} has ended, and its dependencies are closed")
        return self._value

    @property
    def is_open(self) -> bool:
        """Whether there is something to close."""
        return self._is_open and not self._is_closed

    @property
    def _of(self) -> str:
        return f"{self._run.function} (run {self._run.number})"

    async def open(self) -> None:
        """Make them, if they are not made yet.

        Raises:
            DependencyError: the factory failed.
        """
        if self._is_open:
            return
        self._is_open = True
        if self.source.make is None:
            self._value = self.source.given
            return
        try:
            made: Any = self.source.make(self._run)
            if inspect.isawaitable(made):
                made = await made
            self._value = await self._entered(made)
        # Foreign code may raise anything.
        except Exception as error:
            raise DependencyError(
                f"the dependencies of {self._of} could not be made: {self.source.name} raised"
                f" {Failure.of(error)}"
            ) from error

    async def _entered(self, made: Any) -> Any:
        """Return what *made* gives, and note how it is closed."""
        # Before the question whether it is a context manager: that of a sqlite3.Connection, for
        # example, does not close it.
        if (close := closing_method(made)) is not None:

            async def close_it() -> None:
                outcome = close()
                if inspect.isawaitable(outcome):
                    await outcome

            self._closing.push_async_callback(close_it)
            return made
        if isinstance(made, AbstractAsyncContextManager):
            manager = cast("AbstractAsyncContextManager[Any]", made)
            return await self._closing.enter_async_context(manager)
        if isinstance(made, AbstractContextManager):
            return self._closing.enter_context(cast("AbstractContextManager[Any]", made))
        return made

    async def close(self, error: BaseException | None) -> None:
        """Close what the factory made, once; *error*, for its ``__exit__``, ended the run."""
        if self._is_closed:
            return
        self._is_closed, self._value = True, None
        kind = None if error is None else type(error)
        traceback = None if error is None else error.__traceback__
        try:
            await self._closing.__aexit__(kind, error, traceback)
        # Foreign code may raise anything, and the outcome of the run is known.
        except Exception as failure:
            if failure is not error:
                log.exception("the dependencies of %s could not be closed", self._of)
