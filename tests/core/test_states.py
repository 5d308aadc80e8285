"""The state table, row by row."""

import itertools

import pytest

from treefold import NodeState
from treefold.core.errors import IllegalTransitionError
from treefold.core.states import NEXT, check_transition

LEGAL = {
    ("waiting", "running"),
    ("waiting", "error"),
    ("waiting", "canceled"),
    ("running", "paused"),
    ("running", "success"),
    ("running", "error"),
    ("running", "canceled"),
    ("paused", "running"),
    ("paused", "error"),
    ("paused", "canceled"),
}


@pytest.mark.parametrize(("now", "then"), list(itertools.product(NodeState, repeat=2)))
def test_only_the_transitions_of_the_table_are_legal(now: NodeState, then: NodeState):
    if (now.value, then.value) in LEGAL:
        check_transition(now, then)
    else:
        with pytest.raises(IllegalTransitionError, match=f"from {now} to {then}"):
            check_transition(now, then)


def test_a_state_is_final_when_nothing_may_follow_it():
    assert {state for state in NodeState if state.final} == {
        NodeState.Success,
        NodeState.Error,
        NodeState.Canceled,
    }
    assert set(NEXT) == set(NodeState)
