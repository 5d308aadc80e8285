"""What must hold of every trial, each rule by itself; what it says is what was broken."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from crash.effects import Line, call_of
from crash.tree import UNREPEATABLE, right_result
from crash.trial import Death, Trial

Faults = Iterator[str]
Rule = Callable[[Trial, "Counter[str]"], Faults]


def faults_of(trial: Trial, requests: "Counter[str]") -> list[str]:
    """Return all that is wrong; *requests* are those of a run that nobody disturbed."""
    return [f"{rule.__name__}: {fault}" for rule in RULES for fault in rule(trial, requests)]


def the_result_is_right(trial: Trial, requests: "Counter[str]") -> Faults:
    failed = any(
        line["kind"] == "in_doubt" and line["text"].startswith("fail") for line in answers(trial)
    )
    for found in trial.finished, trial.later:
        if (result := found["result"]) != right_result(stamped=not failed):
            yield f"{result}"


def no_recorded_response_is_asked_for_again(trial: Trial, requests: "Counter[str]") -> Faults:
    for death in trial.deaths:
        recorded = Counter(mark for node in nodes(death) for mark in node["marks"])
        after = Counter(line["mark"] for line in of("request", trial.effects[death.lines :]))
        if death is trial.deaths[-1]:
            if after != requests - recorded:
                yield f"asked {after}, to be asked were {requests - recorded}"
        else:
            more = trial.deaths[trial.deaths.index(death) + 1]
            life = trial.effects[death.lines : more.lines]
            if too_many := Counter(x["mark"] for x in of("request", life)) - (requests - recorded):
                yield f"asked again: {too_many}"
    made = Counter(line["mark"] for line in of("request", trial.effects))
    if missing := requests - made:
        yield f"never asked: {missing}"


def every_response_in_the_journal_can_be_seen(trial: Trial, requests: "Counter[str]") -> Faults:
    for death in trial.deaths:
        seen = sum(len(node["marks"]) for node in nodes(death))
        kept = sum(node["kinds"].count("ResponseCompleted") for node in nodes(death))
        if seen != kept:
            yield f"{kept} in the journal, {seen} to be seen"


def no_recorded_result_is_made_again(trial: Trial, requests: "Counter[str]") -> Faults:
    for death in trial.deaths:
        ended = {call_of(node) for node in nodes(death) if node["ended"]}
        for line in of("begin", trial.effects[death.lines :]):
            if call_of(line) in ended:
                yield f"{call_of(line)} began again"


def what_cannot_be_repeated_is_run_again_only_when_somebody_says_so(
    trial: Trial, requests: "Counter[str]"
) -> Faults:
    allowed: Counter[tuple[str, str]] = Counter()
    begun: set[tuple[str, str]] = set()
    for line in trial.effects:
        if line["what"] == "answer" and line["text"] == "retry":
            allowed[call_of(line)] = 1
        if line["what"] != "begin" or line["fn"] not in UNREPEATABLE:
            continue
        if call_of(line) in begun and not allowed.pop(call_of(line), 0):
            yield f"{call_of(line)} began again"
        begun.add(call_of(line))


def keys_tell_calls_apart(trial: Trial, requests: "Counter[str]") -> Faults:
    pairs = {(line["key"], call_of(line)) for line in of("begin", trial.effects)}
    if not len({k for k, _ in pairs}) == len({c for _, c in pairs}) == len(pairs):
        yield f"{sorted(pairs)}"
    if not all(isinstance(key, str) and key for key, _ in pairs):
        yield f"they are no texts: {sorted(pairs)}"


def what_began_is_in_the_journal(trial: Trial, requests: "Counter[str]") -> Faults:
    for death in trial.deaths:
        started = {call_of(node) for node in nodes(death) if node["started"]}
        for line in of("begin", trial.effects[: death.lines]):
            if call_of(line) not in started:
                yield f"{call_of(line)} had begun"
        for node in nodes(death):
            if not node["asked for"]:
                yield f"nobody asked for {node['path']} {node['fn']}"


def what_was_returned_is_in_the_journal(trial: Trial, requests: "Counter[str]") -> Faults:
    for death in trial.deaths:
        ended = {call_of(node) for node in nodes(death) if node["ended"]}
        for line in of("saw", trial.effects[: death.lines]):
            if call_of(line) not in ended:
                yield f"{call_of(line)} had been seen"


def what_is_in_doubt_and_nothing_else_is_asked_about(
    trial: Trial, requests: "Counter[str]"
) -> Faults:
    for death, end in pairwise([*[death.lines for death in trial.deaths], len(trial.effects)]):
        found = next(d for d in trial.deaths if d.lines == death)
        doubtful = {
            call_of(node)
            for node in nodes(found)
            if node["started"] and not node["ended"] and node["fn"] in UNREPEATABLE
        }
        life = trial.effects[death:end]
        late = [line["id"] for line in of("too late", life)]
        asked = [
            call_of(line)
            for line in of("answer", life)
            if line["kind"] == "in_doubt" and line["id"] not in late
        ]
        all_asked = {call_of(line) for line in of("answer", life)}
        if len(asked) != len(set(asked)):
            yield f"asked twice: {asked}"
        if wrong := set(asked) - doubtful:
            yield f"not in doubt: {wrong}"
        said = {call_of(line): line["text"] for line in of("answer", trial.effects[:death])}
        decided = {call_of(n) for n in nodes(found) if is_decided(n, said.get(call_of(n), ""))}
        if end == len(trial.effects) and (missing := doubtful - decided - all_asked):
            yield f"in doubt, and nobody was asked: {missing}"


def ids_and_paths_stay(trial: Trial, requests: "Counter[str]") -> Faults:
    last = {node["id"]: named(node) for node in trial.finished["nodes"]}
    for death in trial.deaths:
        for node in nodes(death):
            if last.get(node["id"]) != named(node):
                yield f"{named(node)} became {last.get(node['id'])}"
    calls = Counter(node["path"] for node in trial.finished["nodes"])
    if max(calls.values()) > 1:
        yield f"a path twice: {calls}"


def questions_stay(trial: Trial, requests: "Counter[str]") -> Faults:
    for death in trial.deaths:
        waiting = {id for node in nodes(death) for id in node["questions"]}
        later = {line["id"] for line in of("answer", trial.effects[death.lines :])}
        if lost := waiting - later:
            yield f"nobody was asked again: {lost}"


def nobody_is_asked_again_what_was_answered(trial: Trial, requests: "Counter[str]") -> Faults:
    ends = [*[death.lines for death in trial.deaths], len(trial.effects)]
    for begin, end in pairwise([0, *ends]):
        often = Counter(line["id"] for line in of("answer", trial.effects[begin:end]))
        late = Counter(line["id"] for line in of("too late", trial.effects[begin:end]))
        if twice := [id for id, count in (often - late).items() if count > 1]:
            yield f"in one life: {twice}"


def no_call_is_left_over(trial: Trial, requests: "Counter[str]") -> Faults:
    for node in trial.finished["nodes"]:
        if node["notices"]:
            yield f"{node['path']} {node['fn']}: {node['notices']}"
    made = Counter(node["fn"] for node in trial.finished["nodes"])
    if made != CALLS:
        yield f"calls: {made}"


def a_later_process_sees_the_same(trial: Trial, requests: "Counter[str]") -> Faults:
    if trial.later["view"] != trial.finished["view"]:
        yield f"{trial.later['view']}\n  instead of\n{trial.finished['view']}"


CALLS: Final[Mapping[str, int]] = Counter(
    root=1, first=3, second=3, scout=1, squad=1, assistant=1, quitter=1, peek=5, charge=3, mail=2,
    human_in_loop=1, raise_exception=1, drafter=1, drafter_again=1, drafter_think_more=1,
    voter=2, voter_reconciled=1, voter_ensemble=1, fussy=1, stamp=1, measure=1,
)  # fmt: skip

RULES: Final[tuple[Rule, ...]] = (
    the_result_is_right,
    no_recorded_response_is_asked_for_again,
    every_response_in_the_journal_can_be_seen,
    no_recorded_result_is_made_again,
    what_cannot_be_repeated_is_run_again_only_when_somebody_says_so,
    keys_tell_calls_apart,
    what_began_is_in_the_journal,
    what_was_returned_is_in_the_journal,
    what_is_in_doubt_and_nothing_else_is_asked_about,
    ids_and_paths_stay,
    questions_stay,
    nobody_is_asked_again_what_was_answered,
    no_call_is_left_over,
    a_later_process_sees_the_same,
)


def of(what: str, lines: list[Line]) -> Iterator[Line]:
    """Give those of *lines* that say this."""
    return (line for line in lines if line["what"] == what)


def answers(trial: Trial) -> Iterator[Line]:
    """Give all answers."""
    return of("answer", trial.effects)


def nodes(death: Death) -> list[dict[str, Any]]:
    """Return the nodes that the journal held."""
    return death.found["nodes"]


def is_decided(node: Mapping[str, Any], said: str) -> bool:
    """Whether the journal knows what is to become of a call, of which somebody has *said* that."""
    if node["questions"] or "QuestionSettled" not in node["kinds"]:
        return False
    since = node["kinds"][::-1][: node["kinds"][::-1].index("QuestionSettled")]
    return not said.startswith("retry") or "CallAllowed" not in since


def named(node: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what does not change of a node."""
    return node["path"], node["fn"], node["args"]
