"""What ``treefold.engines`` exports, for type checkers; ``__init__.py`` loads it on first use."""

from treefold.core.work_engine import (
    Depth as Depth,
    Stop as Stop,
    Take as Take,
    Taken as Taken,
    Ticket as Ticket,
    WorkEngine as WorkEngine,
)
from treefold.engines.in_process import InProcess as InProcess
from treefold.engines.procrastinate import Procrastinate as Procrastinate
from treefold.engines.temporal import Temporal as Temporal
