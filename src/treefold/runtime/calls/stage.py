"""``Stage``: how far this process is with a call."""

from enum import IntEnum
from typing import Final


class Stage(IntEnum):
    """How far this process is with a call, in the order of its life.

    ``NodeState`` says how far the call itself is: that is recorded, and the same in every process.
    The stage is not recorded.
    """

    # Nothing here runs it: it is new, postponed by a pause, was left open by an earlier process, or
    # is run by another one.
    Requested = 0
    # It has a task, which has not reached its first line, or waits for another process.
    Scheduled = 1
    # Its gate or its function runs.
    Running = 2
    # Its function is done, and its outcome cannot change any more. It waits for its children, and
    # closes what it has opened.
    Joining = 3
    # Its outcome is decided. With a journal it is recorded, and shown once it is saved.
    Ending = 4
    # It had ended in an earlier process, and its values are sent again to the code that asks now.
    Resending = 5
    # Its outcome is shown, and its waiters are woken.
    Ended = 6

    next: "tuple[Stage, ...]"  # the stages that may follow


_NEXT: Final[dict[Stage, tuple[Stage, ...]]] = {
    # It may be cancelled, or end in another process.
    Stage.Requested: (Stage.Scheduled, Stage.Ending),
    Stage.Scheduled: (Stage.Running, Stage.Ending),
    Stage.Running: (Stage.Ending, Stage.Joining),
    Stage.Joining: (Stage.Ending,),
    # The outcome is decided anew if it cannot be recorded, or another process decides it.
    Stage.Ending: (Stage.Ended, Stage.Ending),
    Stage.Resending: (Stage.Ended,),
    # A call is reopened if it has to run again, here or in another process.
    Stage.Ended: (Stage.Requested, Stage.Resending),
}
for _stage, _next in _NEXT.items():
    _stage.next = _next

# For code that runs in every call: in Python 3.11 an attribute of an enum takes ten times as long.
REQUESTED, SCHEDULED, RUNNING, JOINING, ENDING, RESENDING, ENDED = Stage
