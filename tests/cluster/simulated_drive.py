"""The model of a drive, and of what a worker believes to own."""

from concurrent.futures import Future
from dataclasses import dataclass, field

from cluster.simulated_worker import SimulatedWorker
from treefold.core.cluster import Ownership
from treefold.engines import Taken


@dataclass(eq=False)
class Drive:
    """What a drive should be like."""

    node: int
    tree: int
    caller: "Drive | None" = None
    owner: SimulatedWorker | None = None
    epoch: int = 0
    entries: int = 1
    number: int = 1  # of the last entry of its topmost node
    wanted: bool = True
    over: bool = False
    messages: list[str] = field(default_factory=list[str])  # posted, and not handled
    calls: "list[Drive]" = field(default_factory=lambda: list[Drive]())

    @property
    def may_end(self) -> bool:
        return not self.over and all(call.over for call in self.calls)


@dataclass(eq=False)
class Hold:
    """What a worker believes to own."""

    worker: SimulatedWorker
    drive: Drive
    owned: Ownership
    entries: int
    number: int
    awaited: list[Drive]
    taken: Future[Taken] = field(default_factory=lambda: Future[Taken]())  # ends the delivery

    def __repr__(self) -> str:
        return f"{self.drive.node} of {self.worker}, epoch {self.owned.epoch}"

    @property
    def is_right(self) -> bool:
        return (self.drive.owner, self.drive.epoch) == (self.worker, self.owned.epoch)
