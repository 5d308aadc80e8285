"""Random programs of code and agents, held against the rules that every tree keeps."""

import os

from hypothesis import HealthCheck, given, settings

from random_trees.clock import run_leaping
from random_trees.director import Director
from random_trees.plans import Program, programs
from random_trees.rules import unanswered_calls
from treefold import ModelText, ToolResult, ToolUse, UserText

EXAMPLES = int(os.environ.get("RANDOM_TREES", "60"))  # if it is set, they are new ones each time


@settings(
    max_examples=EXAMPLES,
    derandomize="RANDOM_TREES" not in os.environ,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(programs())
def test_whatever_a_program_does_its_trees_keep_the_rules(program: Program):
    director = Director(program)
    run_leaping(director.run())
    assert director.faults == []


def test_the_rules_see_a_call_without_its_one_result():
    one, two = ToolUse("1", "look"), ToolUse("2", "look")
    seen, other = ToolResult("1", "a"), ToolResult("2", "b")
    assert unanswered_calls([UserText("Look."), one, two, seen, other, ModelText("Well.")]) == []
    assert unanswered_calls([one, two, seen]) == ["['2'] have no result"]
    assert unanswered_calls([one, two, other, seen])
    assert unanswered_calls([one, seen, seen])
