"""What a fork would do again, held against what one really does."""

from browser import newsroom
from support import wait
from treefold import MemoryStore, Runtime, TokenUsage, attach
from treefold.views.fork_plan import DoneAgain, ForkPlan, fork_plan, shared_calls

SPENT = TokenUsage(input=412, cache_read=120, reasoning=64, output=96)


def planned(store: MemoryStore, node: int, at: int = 0, *, gives_result: bool = False) -> ForkPlan:
    with attach(store) as observer:
        events = observer.events(observer.tree_of(node), long_texts=False).read()
    return fork_plan(events, node, at, gives_result=gives_result)


def test_a_fork_does_again_what_was_planned_and_shares_the_rest():
    store = MemoryStore()
    with Runtime([newsroom.digest], models=newsroom.model(), store=store) as runtime:
        run = runtime.invoke(newsroom.digest, newsroom.ARGS)
        wait(runtime.questions)
        runtime.answer(runtime.questions()[0].id, "publish")
        run.result(60)
        view = runtime.get_view(run.id)
        check = next(child for child in view.children if child.fn == "fact_check")
        cost = SPENT.total * newsroom.PRICE
        expected = ForkPlan(
            6,
            (
                DoneAgain("fact_check", "claude-opus-4-1", 1, 2, SPENT + SPENT, 2 * cost),
                DoneAgain("look_up", None, 2),
                DoneAgain("write_digest", "claude-opus-4-1", 1, 1, SPENT, cost),
                DoneAgain("publish", None, 1),
            ),
        )
        assert planned(store, check.id) == expected
        fork = runtime.fork(check.id)
        wait(runtime.questions)
        runtime.answer(runtime.questions()[0].id, "publish")
        fork.result(60)
        forked = runtime.get_view(fork.id)
        shared = shared_calls(forked, view)
        assert {store.find(node=node) for node in shared.values()} == {run.id}
        assert len(shared) == expected.shared
        made = [
            one
            for child in forked.children
            if child.id not in shared
            for one in (child, *child.children)
        ]
        assert sorted(one.fn for one in made) == sorted(
            one.function for one in expected.again for _ in range(one.calls)
        )
        assert shared_calls(view, view).keys() == {
            one.id for child in view.children for one in (child, *child.children)
        }


def test_a_fork_after_a_response_asks_only_for_those_that_follow():
    store = MemoryStore()
    with Runtime([newsroom.fact_check], models=newsroom.model(), store=store) as runtime:
        run = runtime.invoke(newsroom.fact_check, {"text": "mills"})
        run.result(60)
    cost = SPENT.total * newsroom.PRICE
    assert planned(store, run.id, 1).again == (
        DoneAgain("look_up", None, 2),
        DoneAgain("fact_check", "claude-opus-4-1", 0, 1, SPENT, cost),
    )
    assert planned(store, run.id, 2).again == ()


def test_a_given_result_asks_nothing_of_the_call_again():
    store = MemoryStore()
    with Runtime([newsroom.fact_check], models=newsroom.model(), store=store) as runtime:
        run = runtime.invoke(newsroom.fact_check, {"text": "mills"})
        run.result(60)
    assert planned(store, run.id, gives_result=True).again == ()
