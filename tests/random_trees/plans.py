"""What a random program is: which function does what, what each model says, and who meddles."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from treefold import Budget

DEPTH = 3  # how deep calls are inside each other, at most
MOST_TOKENS = 25  # of one request

# What code does


@dataclass(frozen=True)
class Call:
    """Call a function; wait for it at once, or when all else is done."""

    plan: "Plan"
    at_once: bool = True
    timeout: float | None = None
    tied: bool = False
    budget: Budget | None = None


@dataclass(frozen=True)
class Sleep:
    seconds: float
    without_lease: bool = False


@dataclass(frozen=True)
class Ask:
    """Ask a person."""

    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fail:
    pass


@dataclass(frozen=True)
class Hang:
    pass


@dataclass(frozen=True)
class CancelChild:
    """Cancel the call that was made last."""


Step = Call | Sleep | Ask | Fail | Hang | CancelChild


@dataclass(frozen=True)
class Code:
    """A code function: its steps, whether it minds a failed call, and how it cleans up."""

    steps: tuple[Step, ...] = ()
    tolerant: bool = False
    cleanup: Step | None = None


# What models say


@dataclass(frozen=True)
class ToolCall:
    """A model calls a function, or one of those that always are there, or one that is not."""

    callee: "Plan | str"  # a str: ask, give_up, unknown
    rule: str = "allowed"  # or asked, forbidden, edited
    bad_arguments: bool = False


@dataclass(frozen=True)
class Round:
    """One response: calls, or nothing at all; and what goes wrong before it comes."""

    calls: tuple[ToolCall, ...] = ()
    failures: int = 0  # how many requests fail before
    hangs: bool = False
    seconds: float = 0.0


@dataclass(frozen=True)
class Agent:
    """An agent, and what its model says; after the last round it gives its answer."""

    rounds: tuple[Round, ...] = ()
    answer: Round = field(default_factory=Round)
    parallel: bool = False
    returns: bool = False
    budget: Budget | None = None
    max_steps: int = 20
    tokens: int = 10  # each request takes so many


@dataclass(frozen=True)
class Crowd:
    """An Ensemble."""

    agent: Agent
    first: int = 1
    second: int = 0
    allow_fail: bool = True


@dataclass(frozen=True)
class Pensive:
    """A ThinkMore."""

    agent: Agent


Plan = Code | Agent | Crowd | Pensive


# Who meddles


@dataclass(frozen=True)
class Act:
    """Somebody does something to one of the nodes or questions that there are just then."""

    what: str  # cancel, pause, resume or answer
    target: int
    choice: int = 0
    turns: int = 0  # of the loop, before it
    seconds: float = 0.0  # before it


@dataclass(frozen=True)
class Program:
    """All that is drawn for one example."""

    roots: tuple[Plan, ...]
    limit: int = 1
    provider_limit: int | None = None
    budget: Budget | None = None
    priced: bool = True  # whether the models have a known price
    pause_on_provider_failure: bool = False
    pause_on_tool_error: bool = False
    acts: tuple[Act, ...] = ()
    leaves_early: bool = False  # by an exception, while everything runs
    answers: int = 0  # decides what is answered in the end


# How they are drawn

_seconds = st.sampled_from([0.0, 0.0, 0.001, 1.0])
_rarely = st.sampled_from([False, False, False, True])
_mostly = st.sampled_from([True, True, True, False])
_timeouts = st.sampled_from([None, None, None, 0.0005, 0.5, 5.0])


def budgets() -> st.SearchStrategy[Budget]:
    """Draw budgets that some programs exceed."""
    last = st.booleans()
    return st.one_of(
        st.builds(lambda n, last: Budget(calls=n, last_call=last), st.integers(0, 6), last),
        st.builds(lambda n, last: Budget(tokens=n, last_call=last), st.integers(0, 80), last),
        st.builds(lambda n, last: Budget(usd=n, last_call=last), st.integers(0, 80), last),
        st.builds(lambda n: Budget(seconds=n), st.sampled_from([0.0, 0.5, 5.0])),
    )


_maybe_budget = st.one_of(st.none(), st.none(), st.none(), budgets())


def _steps(depth: int) -> st.SearchStrategy[Step]:
    own: list[st.SearchStrategy[Any]] = [
        st.builds(Sleep, _seconds, _rarely),
        st.builds(Ask, st.sampled_from([(), ("yes", "no")])),
        st.builds(Fail),
        st.builds(CancelChild),
    ]
    if depth == 0:
        return st.one_of(*own, st.builds(Hang))
    calls = st.builds(
        Call, plans(depth - 1), st.booleans(), _timeouts, st.booleans(), _maybe_budget
    )
    return st.one_of(calls, calls, calls, *own)


def codes(depth: int) -> st.SearchStrategy[Code]:
    """Draw code functions."""
    cleanup: st.SearchStrategy[Step | None] = st.one_of(
        st.none(), st.none(), st.just(Sleep(1.0)), st.just(Call(Code((Sleep(0.001),))))
    )
    steps = st.lists(_steps(depth), max_size=5).map(tuple)
    return st.builds(Code, steps, st.booleans(), cleanup)


def _rounds(depth: int) -> st.SearchStrategy[Round]:
    special: st.SearchStrategy[Any] = st.sampled_from(["ask", "give_up", "unknown"])
    callee = special if depth == 0 else st.one_of(special, plans(depth - 1), plans(depth - 1))
    rule = st.sampled_from(["allowed"] * 4 + ["asked", "asked", "forbidden", "edited"])
    calls = st.lists(st.builds(ToolCall, callee, rule, _rarely), max_size=3).map(tuple)
    return st.builds(
        Round, calls, st.sampled_from([0, 0, 0, 0, 1, 2]), st.just(value=False), _seconds
    )


def agents(depth: int) -> st.SearchStrategy[Agent]:
    """Draw agents."""
    return st.builds(
        Agent,
        st.lists(_rounds(depth), max_size=3).map(tuple),
        st.builds(Round, st.just(()), st.sampled_from([0, 0, 0, 1, 2]), _rarely, _seconds),
        parallel=st.booleans(),
        returns=_rarely,
        budget=_maybe_budget,
        max_steps=st.sampled_from([20, 20, 20, 2]),
        tokens=st.sampled_from([0, 10, 10, MOST_TOKENS]),
    )


def plans(depth: int) -> st.SearchStrategy[Plan]:
    """Draw functions that call others, *depth* deep at most."""
    return st.deferred(
        lambda: st.one_of(
            codes(depth),
            agents(depth),
            agents(depth),
            st.builds(
                Crowd,
                agents(max(0, depth - 1)),
                st.integers(1, 2),
                st.integers(0, 1),
                st.booleans(),
            ),
            st.builds(Pensive, agents(max(0, depth - 1))),
        )
    )


_acts = st.builds(
    Act,
    st.sampled_from(["cancel", "pause", "pause", "resume", "answer", "answer", "answer"]),
    st.integers(0, 30),
    st.integers(0, 5),
    st.sampled_from([0, 1, 3, 10, 30]),
    st.sampled_from([0.0, 0.0, 0.0, 0.001, 1.0]),
)


def programs() -> st.SearchStrategy[Program]:
    """Draw programs."""
    return st.builds(
        Program,
        st.lists(plans(DEPTH), min_size=1, max_size=3).map(tuple),
        limit=st.integers(1, 3),
        provider_limit=st.sampled_from([None, None, 1]),
        budget=_maybe_budget,
        priced=_mostly,
        pause_on_provider_failure=st.booleans(),
        pause_on_tool_error=st.booleans(),
        acts=st.lists(_acts, max_size=8).map(tuple),
        leaves_early=_rarely,
        answers=st.integers(0, 5),
    )
