"""The views of a tree, made while it is changed."""

import threading

from treefold.core.events import CallRequested, CallStarted, ValueSent
from treefold.runtime.trees.tree import Tree


def requested(id: int, parent: int | None = None) -> CallRequested:
    return CallRequested(id, parent, 1, 1, "work", {}, key=f"#{id}")


def test_each_view_is_of_one_moment_though_another_thread_makes_it():
    tree = Tree(1, 1, kept=True)
    for event in (requested(1), CallStarted(1, 1.0), requested(2, 1), CallStarted(2, 2.0)):
        tree.publish(event)
    stop, faults = threading.Event(), list[str]()

    def watch() -> None:
        last = 0
        while not stop.is_set():
            view = tree.view(1)
            values = view.children[0].values
            # Each event of the child adds one value, so the number of the view says how many.
            if len(values) != view.update_seqnum - 4 or view.update_seqnum < last:
                faults.append(f"{len(values)} values at {view.update_seqnum} after {last}")
            last = view.update_seqnum

    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(3000):
        tree.publish(ValueSent(2, number))
    stop.set()
    watcher.join()
    assert faults == []
    assert tree.view(1).children[0].values == tuple(range(3000))
