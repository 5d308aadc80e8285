"""``Cancellation``: why a call is being stopped, and when it is cancelled again."""

from treefold.core.errors import CancellationException
from treefold.core.events import Stop, StopCause
from treefold.runtime.loops.timers import AnyTimer


class Cancellation:
    """The cancellation of one call, from its request to the end of the call.

    Attributes:
        cause: what kind of stop it is.
        reason: for people; None while the call is not being cancelled.
        error: the exception that the call fails with; None if it is cancelled.
    """

    __slots__ = ("_is_confirmed", "_timer", "cause", "error", "reason")

    def __init__(self) -> None:
        self.cause = StopCause.Cancelled
        self.reason: str | None = None
        self.error: BaseException | None = None
        self._is_confirmed = False  # it was abandoned, and then cancelled explicitly
        self._timer: AnyTimer | None = None

    def confirm(self, reason: str) -> bool:
        """Return whether an explicit cancellation only confirms that the call was abandoned.

        Code that stops waiting often cancels the call as well: that is one cancellation, not two.
        """
        if self.cause is not StopCause.Abandoned or self._is_confirmed:
            return False
        # This reason says more than that of the abandonment.
        self._is_confirmed, self.reason = True, reason
        return True

    def outcome(self, function: str, path: str) -> BaseException:
        """Return the exception of the call that was cancelled."""
        return self.error or CancellationException(function, path, self.stop(path).reason)

    def stop(self, path: str) -> Stop:
        """Return how the call was stopped, for its last event."""
        return Stop(self.cause, self.reason or "its task was cancelled", path)

    def repeat_at(self, timer: AnyTimer | None) -> None:
        """Replace the timer that cancels the call again."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer
