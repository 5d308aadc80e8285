"""The events of a journal, for views that want to know what happened and when."""

import pytest

import treefold
from treefold import CodeFunction, MemoryStore, RunContext, Runtime
from treefold.core.errors import ClosedError
from treefold.core.events import CallEnded, CallRequested, TreeForked

LONG = "at length " * 1000


async def say(ctx: RunContext, text: str) -> str:
    return text


saying = CodeFunction(callable=say)


def test_a_reader_gives_all_events_first_and_then_those_that_are_new():
    store = MemoryStore()
    with Runtime([saying], store=store) as runtime, treefold.attach(store) as observer:
        places = [observer.last()]
        runtime.invoke(saying, {"text": "one"}).result()
        places.append(observer.last())
        [row] = observer.trees()
        reader = observer.events(row.id)
        kinds = [type(event).__name__ for event in reader.read()]

        assert kinds == ["CallRequested", "CallStarted", "CallEnded"]
        assert reader.read() == []
        assert places == [0, 3]
        assert observer.journal == store.id
        assert runtime.store is store
    with Runtime() as runtime:
        assert runtime.store is None


@pytest.mark.parametrize(("wanted", "found"), [(True, LONG), (False, "")])
def test_long_texts_may_be_left_out(*, wanted: bool, found: str):
    store = MemoryStore()
    with Runtime([saying], store=store) as runtime:
        node = runtime.invoke(saying, {"text": LONG})
        node.result()
        runtime.fork(node).result()
    with treefold.attach(store) as observer:
        first, fork = observer.trees()
        for tree in first, fork:
            events = observer.events(tree.id, long_texts=wanted).read()
            [asked] = [event for event in events if isinstance(event, CallRequested)]
            [ended] = [event for event in events if isinstance(event, CallEnded)]

            assert (asked.inputs, ended.outputs) == ({"text": found}, found)
        assert [type(event) for event in events[:2]] == [CallRequested, TreeForked]


def test_an_observer_that_was_closed_gives_no_events():
    with treefold.attach(MemoryStore()) as observer:
        pass
    with pytest.raises(ClosedError, match="attach again"):
        observer.events(1)
