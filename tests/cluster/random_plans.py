"""Random plans for ``random_program``, and what they may return.

A plan is a list of steps, which is JSON. What is drawn depends on the seed and the tree only.
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Step = Mapping[str, Any]

PAYING: Final = ("pay", "risky", "far_pay")  # what must not be done twice
AGENTS: Final = ("helper", "far_helper", "lead")
BRANCHES: Final = ("branch", "far_branch")
SHARED_CALLS: Final = 6  # requests that each named budget allows


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A tree to submit.

    Attributes:
        tag: its number.
        key: "" if it is submitted without one.
        twice: whether a second program submits it as well, with the same key.
    """

    tag: int
    steps: Sequence[Step]
    key: str
    twice: bool

    @property
    def args(self) -> Mapping[str, Any]:
        return {"tag": self.tag, "steps": self.steps}


def tag_of(label: str) -> int:
    """Return the number of the tree of a label."""
    return int(label.partition(":")[0])


def draw(seed: int, tag: int) -> Plan:
    """Return the plan of a tree."""
    source = random.Random(f"{seed} {tag}")
    steps = _Drawing(source, seed, tag).steps("", source.choice((1, 2, 2, 3)), depth=0)
    key = f"job {tag}" if source.random() < 0.6 else ""
    return Plan(tag=tag, steps=steps, key=key, twice=bool(key) and source.random() < 0.2)


class _Drawing:
    def __init__(self, source: random.Random, seed: int, tag: int) -> None:
        self._source = source
        self._seed = seed
        self._tag = tag

    def steps(self, place: str, count: int, *, depth: int) -> list[Step]:
        return [self._step(f"{place}{n}", depth) for n in range(count)]

    def _step(self, place: str, depth: int) -> Step:
        if depth < 2 and self._source.random() < 0.12:
            count = self._source.choice((2, 3))
            return {"all": [self._call(f"{place}/{n}", depth + 1) for n in range(count)]}
        return self._call(place, depth)

    def _call(self, place: str, depth: int) -> Step:
        source = self._source
        kinds = {"look": 3, "pay": 5, "far_pay": 3, "ask": 3, "nap": 2, "helper": 4}
        kinds |= {"far_helper": 3, "lead": 3}
        if not depth:
            kinds |= {"branch": 1, "far_branch": 4}
        call = source.choices(list(kinds), list(kinds.values()))[0]
        step: dict[str, Any] = {"call": call, "args": self._args(call, place, depth)}
        if call in AGENTS and source.random() < 0.3:
            step["budget"] = {"calls": source.choice((1, 2, 3))}
            if source.random() < 0.3:
                name = f"shared {self._seed} {self._tag // 8}"
                step["budget"] = {"calls": SHARED_CALLS, "name": name}
        elif source.random() < 0.08:
            step["timeout"] = source.choice((0.3, 1.0, 3.0))
        return step

    def _args(self, call: str, place: str, depth: int) -> dict[str, Any]:
        label = f"{self._tag}:{place}"
        if call in BRANCHES:
            count = self._source.choice((1, 2, 3))
            return {"label": label, "steps": self.steps(f"{place}.", count, depth=depth + 1)}
        if call in AGENTS:
            return {"label": label, "script": self._script(f"{place}.", nests=call == "lead")}
        if call == "ask":
            return {"label": label}
        longest = 0.6 if call == "nap" else 0.3
        return {"label": label, "seconds": round(self._source.uniform(0.0, longest), 3)}

    def _script(self, place: str, *, nests: bool) -> list[list[Step]]:
        rounds = range(self._source.choice((0, 1, 1, 2)))
        return [
            [
                self._use(f"{place}{r}.{n}", nests=nests)
                for n in range(self._source.choice((1, 1, 2)))
            ]
            for r in rounds
        ]

    def _use(self, place: str, *, nests: bool) -> Step:
        kinds = {"look": 3, "pay": 4, "risky": 4, "far_pay": 2, "ask": 2, "nap": 1}
        if nests:
            kinds |= {"helper": 3, "far_helper": 3}
        call = self._source.choices(list(kinds), list(kinds.values()))[0]
        return {"call": call, "args": self._args(call, place, 2)}


def calls_in(steps: Sequence[Step]) -> Iterator[Step]:
    """Return all calls of a plan, also those that models ask for."""
    for step in steps:
        if "all" in step:
            yield from calls_in(step["all"])
            continue
        yield step
        yield from calls_in(step["args"].get("steps", ()))
        for uses in step["args"].get("script", ()):
            yield from calls_in(uses)


@dataclass(frozen=True)
class Said:
    """What people were taken to say about the steps of a tree, by label."""

    answers: Mapping[str, Sequence[str]] = field(default_factory=dict)  # to questions of functions
    uses: Mapping[str, Sequence[str]] = field(default_factory=dict)  # results of calls in doubt
    fails: frozenset[str] = frozenset()  # labels of calls in doubt that were to fail
    denied: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()
    # Labels of calls that people cancelled, or might have.
    cancelled: frozenset[str] = frozenset()


def faults_in(steps: Sequence[Step], result: Any, said: Said) -> list[str]:
    """Return what is wrong with the result of some steps."""
    if not isinstance(result, list) or len(result) != len(steps):
        return [f"{len(steps)} steps returned {result!r}"]
    return [
        fault
        for step, value in zip(steps, result, strict=True)
        for fault in _faults(step, value, said)
    ]


def _faults(step: Step, value: Any, said: Said) -> list[str]:
    if "all" in step:
        return faults_in(step["all"], value, said)
    call, args = step["call"], step["args"]
    label = args["label"]
    if value == f"late {label}" and "timeout" in step:
        return []
    if value == f"spent {label}" and "budget" in step:
        return []
    if value == f"cancelled {label}" and label in said.cancelled:
        return []
    if value == f"doubt {label}" and label in said.fails:
        return []
    if call in BRANCHES:
        return faults_in(args["steps"], value, said)
    if call in AGENTS:
        return _faults_of_agent(label, args["script"], value, said)
    return _faults_of_tool(call, label, value, said)


def _faults_of_tool(call: str, label: str, value: Any, said: Said) -> list[str]:
    right = {
        "look": [f"looked {label}"],
        "nap": [f"slept {label}"],
        "ask": said.answers.get(label, ()),
    }.get(call, [f"paid {label}", *said.uses.get(label, ())])
    return [] if value in right else [f"{call} {label} returned {value!r}, not one of {right}"]


def _faults_of_agent(label: str, script: Sequence[Any], value: Any, said: Said) -> list[str]:
    try:
        told = json.loads(value)
    except (TypeError, ValueError):
        return [f"the agent {label} returned {value!r}"]
    if told["label"] != label:
        return [f"the agent {label} returned what {told['label']} was to return"]
    uses = [use for one in script for use in one]
    if len(told["results"]) != len(uses):
        return [f"the agent {label} was told {len(told['results'])} of {len(uses)} results"]
    return [
        fault
        for use, text in zip(uses, told["results"], strict=True)
        for fault in _faults_of_use(use, text, said)
    ]


def _faults_of_use(use: Step, text: str, said: Said) -> list[str]:
    call, label = use["call"], use["args"]["label"]
    if call == "risky" and "was not allowed" in text:
        return [] if label in said.denied else [f"{label} was not allowed, which nobody said"]
    if "was cancelled" in text:
        return [] if label in said.cancelled else [f"{label}, which nobody cancelled: {text}"]
    if call == "risky" and label not in said.allowed:
        return [f"{label} was done, which nobody allowed: {text}"]
    if label in said.fails and not text.startswith(("paid", "used")):
        return []
    if call in AGENTS:
        return _faults_of_agent(label, use["args"]["script"], text, said)
    return _faults_of_tool(call, label, text, said)
