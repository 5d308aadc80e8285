"""Moments: times of the clock on the wall, as a program gives them; and the steady clock."""

import math
import time
from datetime import datetime, timedelta
from typing import Any, Final

from treefold.core.errors import InvalidValueError

# That of Linux goes on while the machine is suspended, which its CLOCK_MONOTONIC does not.
_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady() -> float:
    """Return the seconds of a clock that nobody sets."""
    return time.clock_gettime(_STEADY)


def moment_of(given: Any, what: str, now: float) -> float:
    """Return a number of seconds from *now*, a timedelta or a datetime as seconds since the epoch.

    Raises:
        InvalidValueError: it is none of these, or a datetime without a time zone.
    """
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise InvalidValueError(
                f"{what} has no time zone, and another process may be in another one: write"
                f" datetime(..., tzinfo=UTC) or given.astimezone(), got {given!r}"
            )
        return given.timestamp()
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds < math.inf:
        raise InvalidValueError(
            f"{what} is a number of seconds, a timedelta or a datetime, not {given!r}"
        )
    return now + float(seconds)


def in_words(moment: float) -> str:
    """Return a moment for people, in the time zone of this process."""
    try:
        return datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    except (OverflowError, ValueError, OSError):  # beyond the year 9999
        return "the end of time"
