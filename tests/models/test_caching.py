"""How long a prompt is kept, by the functions of an agent and its last five completed runs."""

import pytest

from treefold import CodeFunction
from treefold.core.function import RunContext
from treefold.core.model import Caching
from treefold.models.caching import PastRun, caching_policy

HOUR = 3600.0


def nothing(ctx: RunContext) -> None: ...


def function(
    name: str, *uses: CodeFunction, agent: bool = False, human: bool = False
) -> CodeFunction:
    made = CodeFunction(name=name, callable=nothing, uses=uses)
    made.is_agent = agent
    made.asks_people = human
    return made


LEAF = function("leaf")
AGENT = function("agent", agent=True)
HUMAN = function("human_in_loop", human=True)


def test_an_agent_without_functions_never_caches():
    assert caching_policy([], [PastRun([0, 1, 2])] * 5) is Caching.NONE


def test_an_agent_with_leaf_functions_only_caches_for_minutes_whatever_the_past():
    assert caching_policy([LEAF, function("other")]) is Caching.MINUTES
    assert caching_policy([LEAF], [PastRun([0, 9 * HOUR])] * 5) is Caching.MINUTES


@pytest.mark.parametrize(
    "mixed",
    [
        [AGENT],
        [LEAF, HUMAN],
        [function("code that uses an agent", AGENT)],
        [function("deep", function("deeper", function("deepest", HUMAN)))],
    ],
    ids=str,
)
class TestOtherAgents:
    def test_the_first_run_does_not_cache(self, mixed: list[CodeFunction]):
        assert caching_policy(mixed) is Caching.NONE

    def test_runs_with_several_calls_close_together_cache_for_an_hour(
        self, mixed: list[CodeFunction]
    ):
        assert caching_policy(mixed, [PastRun([0, 10, 20])]) is Caching.HOUR

    def test_one_call_on_average_is_not_enough(self, mixed: list[CodeFunction]):
        assert caching_policy(mixed, [PastRun([0, 10]), PastRun([])]) is Caching.NONE
        assert caching_policy(mixed, [PastRun([0, 10]), PastRun([0])]) is Caching.HOUR

    def test_calls_an_hour_apart_on_average_are_too_far_apart(self, mixed: list[CodeFunction]):
        assert caching_policy(mixed, [PastRun([0, HOUR])]) is Caching.NONE
        assert caching_policy(mixed, [PastRun([0, HOUR - 1])]) is Caching.HOUR
        assert caching_policy(mixed, [PastRun([0, 3 * HOUR]), PastRun([0, 10])]) is Caching.NONE

    def test_only_the_last_five_runs_count(self, mixed: list[CodeFunction]):
        busy, idle = PastRun([0, 1, 2, 3]), PastRun([])
        assert caching_policy(mixed, [busy] * 20 + [idle] * 5) is Caching.NONE
        assert caching_policy(mixed, [idle] * 20 + [busy] * 5) is Caching.HOUR


def test_functions_that_use_each_other_are_walked_once():
    first, second = function("first"), function("second")
    first._uses, second._uses = (second,), (first,)  # pyright: ignore[reportPrivateUsage]
    assert caching_policy([first]) is Caching.MINUTES
