"""The hook points and stop reasons, by name."""

import inspect
from enum import Enum
from typing import Any

import pytest

from treefold import (
    Agent,
    AgentHook,
    ContextPool,
    ContextPoolHook,
    ContextQueue,
    ContextQueueHook,
    StopReason,
    Tool,
    ToolHook,
    Turn,
    TurnHook,
    TurnTimeoutError,
    UnregisteredAgentError,
    UnregisteredHookError,
    UnregisteredToolError,
)

POINTS: list[tuple[type, type[Enum], list[str]]] = [
    (Tool, ToolHook, ["BEFORE_INVOKE", "ON_YIELD", "AFTER_INVOKE", "ON_ERROR"]),
    (Turn, TurnHook, ["BEFORE_RUN", "AFTER_RUN", "ON_TIMEOUT", "ON_ERROR", "ON_COMPLETE"]),
    (
        Agent,
        AgentHook,
        [
            "BEFORE_TURN",
            "AFTER_TURN",
            "ON_TURN_VALUE",
            "BEFORE_PUT",
            "AFTER_PUT",
            "ON_PAUSE",
            "ON_RESUME",
        ],
    ),
    (
        ContextQueue,
        ContextQueueHook,
        ["BEFORE_APPEND", "AFTER_APPEND", "BEFORE_CLEAR", "AFTER_CLEAR", "ON_EVICT"],
    ),
    (
        ContextPool,
        ContextPoolHook,
        [
            "BEFORE_ADD",
            "AFTER_ADD",
            "BEFORE_REMOVE",
            "AFTER_REMOVE",
            "BEFORE_CLEAR",
            "AFTER_CLEAR",
            "ON_EVICT",
        ],
    ),
]


def test_a_turn_timeout_is_a_timeout_error() -> None:
    assert issubclass(TurnTimeoutError, TimeoutError)


@pytest.mark.parametrize(
    "error", [UnregisteredToolError, UnregisteredAgentError, UnregisteredHookError]
)
def test_whatever_is_not_registered_is_a_key_error(error: type[Exception]) -> None:
    assert issubclass(error, KeyError)


def test_a_turn_stops_for_one_of_four_reasons() -> None:
    assert {reason.name for reason in StopReason} == {"COMPLETED", "TIMEOUT", "ERROR", "CANCELLED"}


@pytest.mark.parametrize(("owner", "points", "names"), POINTS)
def test_the_hook_points_are_the_listed_ones(
    owner: type, points: type[Enum], names: list[str]
) -> None:
    assert {point.name for point in points} == set(names), owner


@pytest.mark.parametrize(("owner", "points", "names"), POINTS)
def test_every_hook_point_is_a_decorator_of_its_lower_case_name(
    owner: type, points: type[Enum], names: list[str]
) -> None:
    assert [name for name in names if not hasattr(owner, name.lower())] == [], points


def test_all_hook_decorators_are_made_by_one_descriptor() -> None:
    kinds: set[Any] = {
        type(inspect.getattr_static(owner, name.lower()))
        for owner, _, names in POINTS
        for name in names
    }
    assert len(kinds) == 1
