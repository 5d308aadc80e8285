"""What was promised, checked against what happened: the journal, the effects and the requests."""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from cluster.random_cluster import History, Impairment
from cluster.random_people import ACCEPTED, UNKNOWN, Answered, Commanded
from cluster.random_plans import (
    AGENTS,
    PAYING,
    SHARED_CALLS,
    Plan,
    Said,
    calls_in,
    faults_in,
    tag_of,
)
from cluster.random_server import Request
from treefold import ModelText, NodeState, NodeView, QuestionKind, ToolUse
from treefold.events import (
    CallEnded,
    CallRequested,
    CallStarted,
    QuestionAsked,
    QuestionSettled,
    ResponseCompleted,
)

SLACK: Final = 0.3  # seconds in which what one process did is seen by another on this machine
HEARD: Final = 20.0  # seconds after which whoever waits for a tree has to know that it has ended
_PAUSED: Final = 4.0  # seconds in which a pause reaches workers, in the midst of faults
_SHOWN: Final = 60  # lines of a log


@dataclass(kw_only=True)
class Held:
    """What a program has of a tree that it submitted.

    Attributes:
        state: of its node, in the end; None if it does not know that the tree has ended.
        heard: when it knew.
    """

    plan: Plan
    program: str
    node: Any
    submitted: float
    state: NodeState | None = None
    result: Any = None
    heard: float | None = None


@dataclass(frozen=True)
class Effect:
    """A line in the file of effects."""

    what: str
    label: str
    at: float
    pid: int
    key: str = ""

    def __str__(self) -> str:
        return f"{self.at:.3f} {self.what} {self.label} in {self.pid} {self.key[-6:]}"


@dataclass(kw_only=True)
class Violation:
    """A promise that was broken.

    Attributes:
        kind: the promise.
        tag: the number of the tree, None if it is about no single one.
    """

    kind: str
    text: str
    tag: int | None = None


@dataclass(kw_only=True)
class Tree:
    """A tree in the journal.

    Attributes:
        source: the id of the tree that it continues, 0 if it does not.
    """

    id: int
    source: int
    view: NodeView
    events: Sequence[Any]

    @property
    def tag(self) -> int:
        return int(self.view.inputs["tag"])

    @cached_property
    def labels(self) -> Mapping[int, str]:
        """The label of each call."""
        found: dict[int, str] = {}
        for event in self.events:
            if isinstance(event, CallRequested):
                inputs = event.inputs
                found[event.node] = str(inputs.get("label", f"{inputs.get('tag')}:"))
        return found

    @cached_property
    def parents(self) -> Mapping[int, int]:
        return {
            event.node: event.parent or 0
            for event in self.events
            if isinstance(event, CallRequested)
        }

    def is_below(self, node: int, above: int) -> bool:
        """Whether a call is another one, or below it."""
        while node and node != above:
            node = self.parents.get(node, 0)
        return node == above

    @cached_property
    def responses(self) -> Sequence[tuple[int, int, str]]:
        """The recorded responses: the call, the number of the response, its id."""
        return [
            (event.node, event.step, _id_of(event.parts))
            for event in self.events
            if isinstance(event, ResponseCompleted)
        ]


def _id_of(parts: Iterable[Any]) -> str:
    for part in parts:
        if isinstance(part, ToolUse):
            return part.id.partition("-")[0]
        if isinstance(part, ModelText):
            return str(json.loads(part.text)["response"])
    return ""


@dataclass(kw_only=True)
class Record:
    """All that is known of a run of the harness.

    Attributes:
        offset: what is added to a monotonic time for the time on the wall.
        requests_at_once: how many were allowed.
    """

    plans: Mapping[int, Plan]
    held: Sequence[Held]
    trees: Sequence[Tree]
    effects: Sequence[Effect]
    requests: Sequence[Request]
    answers: Sequence[Answered]
    commands: Sequence[Commanded]
    impairments: Sequence[Impairment]
    history: History
    offset: float
    lease: float
    requests_at_once: int
    logs: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @cached_property
    def by_tag(self) -> Mapping[int, Sequence[Tree]]:
        found: dict[int, list[Tree]] = defaultdict(list)
        for tree in self.trees:
            found[tree.tag].append(tree)
        return found

    @cached_property
    def paid(self) -> Mapping[str, Sequence[Effect]]:
        """What must not be done twice, each time that it was begun, by label."""
        found: dict[str, list[Effect]] = defaultdict(list)
        for effect in self.effects:
            if effect.what == "pay":
                found[effect.label].append(effect)
        return found

    @cached_property
    def asked(self) -> Mapping[tuple[str, int], Sequence[Request]]:
        """The requests for each response of each agent."""
        found: dict[tuple[str, int], list[Request]] = defaultdict(list)
        for request in self.requests:
            found[request.label, request.step].append(request)
        return found

    @cached_property
    def said(self) -> Mapping[str, Sequence[Answered]]:
        """The answers that were taken, or may have been, by label."""
        found: dict[str, list[Answered]] = defaultdict(list)
        for one in self.answers:
            if one.outcome.startswith((ACCEPTED, UNKNOWN)):
                found[one.label].append(one)
        return found

    @cached_property
    def told(self) -> Mapping[int, Sequence[Commanded]]:
        """The commands that were posted, or may have been, by the number of the tree."""
        found: dict[int, list[Commanded]] = defaultdict(list)
        for one in self.commands:
            if one.outcome.startswith((ACCEPTED, UNKNOWN)):
                found[tag_of(one.label)].append(one)
        return found

    def said_of(self, plan: Plan) -> Said:
        """Return what people said of a tree."""
        labels = [f"{plan.tag}:", *(str(call["args"]["label"]) for call in calls_in(plan.steps))]
        texts = {label: [one.text for one in self.said.get(label, ())] for label in labels}
        cancelled = {one.label for one in self.told.get(plan.tag, ()) if one.what == "cancel"}
        cancelled |= {label for label, said in texts.items() if "cancel" in said}
        return Said(
            answers={
                label: [one.text for one in self.said.get(label, ())
                        if one.question.kind is QuestionKind.Human]
                for label in labels
            },
            uses={
                label: [text.removeprefix("use: ") for text in said if text.startswith("use: ")]
                for label, said in texts.items()
            },
            fails=frozenset(label for label, said in texts.items() if "fail" in said),
            denied=frozenset(label for label, said in texts.items() if "deny: no" in said),
            allowed=frozenset(label for label, said in texts.items() if "allow" in said),
            cancelled=frozenset(cancelled),
        )  # fmt: skip

    def forked(self, tag: int) -> bool:
        """Whether a tree was continued in another."""
        return len(self.by_tag.get(tag, ())) > 1


def violations(record: Record) -> list[Violation]:
    """Return which promises were broken."""
    found = [Violation(kind="surprise", text=text) for text in record.history.complaints]
    for rule in (
        _trees, _heard, _results, _repeated, _denied, _responses, _prefixes, _pairs, _once,
        _limits, _settled, _asked_again, _held_back, _budgets, _times,
    ):  # fmt: skip
        found += rule(record)
    return found


def _trees(record: Record) -> Iterator[Violation]:
    """Each tree is there once, and ends; a second one has to be a continuation that was wanted."""
    for tag in sorted(record.plans.keys() - record.by_tag.keys()):
        if any(held.plan.tag == tag for held in record.held):
            yield Violation(kind="lost", tag=tag, text="it was submitted, and is not there")
    for tag, trees in record.by_tag.items():
        own = [tree for tree in trees if not tree.source]
        if len(own) != 1:
            yield Violation(kind="twice", tag=tag, text=f"trees {[tree.id for tree in own]}")
        wanted = [one for one in record.told.get(tag, ()) if one.what == "resume" and one.was_over]
        forks = len(trees) - len(own)
        if forks > len(wanted):
            text = f"{forks} forks, but {len(wanted)} were resumed when they had ended"
            yield Violation(kind="forked", tag=tag, text=text)
        for tree in trees:
            if not tree.view.state.final:
                text = f"tree {tree.id} is {tree.view.state}: {tree.view.status}"
                yield Violation(kind="open", tag=tag, text=text)


def _heard(record: Record) -> Iterator[Violation]:
    """Whoever submitted a tree knows how it ended, soon after it has."""
    for held in record.held:
        trees = [tree for tree in record.by_tag.get(held.plan.tag, ()) if not tree.source]
        if not trees or not trees[0].view.state.final:
            continue
        [tree] = trees
        at = _ended(tree) - record.offset
        who = f"{held.program}, which submitted it at {held.submitted:.3f}"
        if held.heard is None or held.state is None:
            text = f"it ended at {at:.3f}; {who}, never heard of it"
            yield Violation(kind="unheard", tag=held.plan.tag, text=text)
        elif held.heard - max(at, held.submitted) > HEARD:
            text = f"it ended at {at:.3f}; {who}, heard of it at {held.heard:.3f}"
            yield Violation(kind="heard late", tag=held.plan.tag, text=text)
        elif held.state is not tree.view.state or (
            held.state is NodeState.Success and held.result != tree.view.outputs
        ):
            text = f"{who}, was told {held.state} {held.result!r}; it is {tree.view.outputs!r}"
            yield Violation(kind="misheard", tag=held.plan.tag, text=text)


def _ended(tree: Tree) -> float:
    return max(
        event.at for event in tree.events if isinstance(event, CallEnded) and event.node == tree.id
    )


def _results(record: Record) -> Iterator[Violation]:
    """A tree ends as its plan and the people say."""
    for tree in record.trees:
        plan = record.plans[tree.tag]
        said = record.said_of(plan)
        state = tree.view.state
        if state is NodeState.Success:
            for fault in faults_in(plan.steps, tree.view.outputs, said):
                yield Violation(kind="wrong result", tag=plan.tag, text=f"{tree.id}: {fault}")
        elif state is NodeState.Canceled:
            if f"{plan.tag}:" not in said.cancelled:
                text = f"tree {tree.id} was cancelled, and nobody said so: {tree.view.exception}"
                yield Violation(kind="cancelled", tag=plan.tag, text=text)
        elif state.final:
            text = f"tree {tree.id} failed: {tree.view.exception}"
            yield Violation(kind="failed", tag=plan.tag, text=text)


def _repeated(record: Record) -> Iterator[Violation]:
    """What must not be repeated is done once, and once more for each time that a person said so."""
    for label, effects in record.paid.items():
        said = [
            one for one in record.said.get(label, ()) if one.question.kind is QuestionKind.InDoubt
        ]
        retries = {one.question.id for one in said if one.text == "retry"}
        if len(effects) > 1 + len(retries):
            text = f"{label}: {len(effects)} times, and {len(retries)} were asked for"
            yield Violation(kind="repeated", tag=tag_of(label), text=text)
        for one in said:
            if one.outcome != ACCEPTED or one.text == "retry" or record.forked(tag_of(label)):
                continue
            if later := [effect for effect in effects if effect.at > one.ended + SLACK]:
                text = f"{label} was begun at {later[0].at:.3f}, after: {one}"
                yield Violation(kind="repeated", tag=tag_of(label), text=text)


def _denied(record: Record) -> Iterator[Violation]:
    """Nothing is done that needs an approval and has none."""
    for plan in record.plans.values():
        said = record.said_of(plan)
        for call in calls_in(plan.steps):
            label = call["args"]["label"]
            if call["call"] == "risky" and record.paid.get(label) and label not in said.allowed:
                text = f"{label} was done, and nobody allowed it"
                yield Violation(kind="not allowed", tag=plan.tag, text=text)


def _responses(record: Record) -> Iterator[Violation]:
    """A response is recorded once, and then never asked for again."""
    for tag, trees in record.by_tag.items():
        for tree in trees:
            numbers = Counter((node, step) for node, step, _ in tree.responses)
            for (node, step), count in numbers.items():
                if count > 1:
                    text = f"{count} responses {step} of {tree.labels[node]} (call {node})"
                    yield Violation(kind="two responses", tag=tag, text=text)
        if record.forked(tag):
            continue
        for node, step, recorded in trees[0].responses:
            requests = record.asked.get((trees[0].labels[node], step), ())
            known = {one.id: one for one in requests}
            if recorded not in known or (ended := known[recorded].ended) is None:
                text = f"response {step} of call {node}: {recorded!r} was never given"
                yield Violation(kind="invented", tag=tag, text=text)
                continue
            if later := [one for one in requests if one.begun > ended]:
                text = f"{recorded} is recorded, which was answered at {ended:.3f}; then {later[0]}"
                yield Violation(kind="asked again", tag=tag, text=text)


def _prefixes(record: Record) -> Iterator[Violation]:
    """A request repeats the responses that are recorded, and no others."""
    for tag, trees in record.by_tag.items():
        if record.forked(tag):
            continue
        recorded: dict[str, dict[int, str]] = defaultdict(dict)
        for node, step, response in trees[0].responses:
            recorded[trees[0].labels[node]][step] = response
        for (label, _), requests in record.asked.items():
            if tag_of(label) != tag:
                continue
            for request in requests:
                right = tuple(recorded[label].get(n + 1, "") for n in range(request.step - 1))
                if request.seen != right:
                    yield Violation(
                        kind="unrecorded", tag=tag, text=f"{request}; recorded: {right}"
                    )


def _pairs(record: Record) -> Iterator[Violation]:
    """In each request every call is followed by its results, as all providers demand."""
    for request in record.requests:
        if request.torn:
            text = f"{request}: {request.torn}"
            yield Violation(kind="torn", tag=tag_of(request.label), text=text)


def _once(record: Record) -> Iterator[Violation]:
    """A call is made once, however often the code that makes it runs."""
    for tree in record.trees:
        if record.forked(tree.tag):
            continue
        for label, count in Counter(tree.labels.values()).items():
            if count > 1:
                calls = [node for node, name in tree.labels.items() if name == label]
                text = f"{label} was called as {calls}"
                yield Violation(kind="called twice", tag=tree.tag, text=text)


def _limits(record: Record) -> Iterator[Violation]:
    """No more requests are under way than allowed, but for those of workers that were silent."""
    worst: tuple[int, float, list[Request]] = 0, 0.0, []
    requests = sorted(record.requests, key=lambda one: one.begun)
    under_way: list[Request] = []
    times = 0
    for request in requests:
        under_way = [one for one in under_way if _end_of(one) > request.begun]
        under_way.append(request)
        counted = [one for one in under_way if not _silent(record, one.worker, request.begun)]
        if len(counted) > record.requests_at_once:
            times += 1
            if len(counted) > worst[0]:
                worst = len(counted), request.begun, list(counted)
    if times:
        count, at, those = worst
        text = f"{times} times; {count} at {at:.3f}: {'; '.join(map(str, those))}"
        yield Violation(kind="limit", text=text)


def _end_of(request: Request) -> float:
    if request.ended is None:
        return float("inf")
    # That a client has gone is seen a little later than the end of its worker is.
    return request.ended if request.answered else request.ended - SLACK


def _silent(record: Record, worker: str, at: float) -> bool:
    """Whether a worker may have been silent for its lease at this time, or shortly before."""
    return any(
        one.worker == worker
        and one.begun + 0.5 * record.lease < at
        and (one.ended is None or at < one.ended + record.lease)
        for one in record.impairments
    )


def _settled(record: Record) -> Iterator[Violation]:
    """Of the answers to a question one is accepted, and it is the one that counts."""
    accepted: dict[str, list[Answered]] = defaultdict(list)
    for one in record.answers:
        if one.outcome == ACCEPTED:
            accepted[one.question.id].append(one)
        elif one.outcome.startswith("invalid"):
            yield Violation(kind="refused", tag=tag_of(one.label), text=str(one))
    settled: dict[str, list[Any]] = defaultdict(list)
    for tree in record.trees:
        for event in tree.events:
            if isinstance(event, QuestionSettled):
                settled[event.id].append((tree, event))
    for question, answers in accepted.items():
        tag = tag_of(answers[0].label)
        if len(answers) > 1:
            text = "; ".join(map(str, answers))
            yield Violation(kind="two accepted", tag=tag, text=text)
        events = [event for _, event in settled.get(question, ())]
        taken = [event.answer.token for event in events if event.answer is not None]
        if answers[0].token not in taken and not _stopped(settled, record, answers[0]):
            text = f"{answers[0]}; settled: {[event.answer for event in events]}"
            yield Violation(kind="answer lost", tag=tag, text=text)


def _stopped(settled: Mapping[str, Sequence[Any]], record: Record, said: Answered) -> bool:
    """Whether a call was stopped when it was answered, so that no answer counts any more."""
    for tree in record.by_tag.get(tag_of(said.label), ()):
        for event in tree.events:
            if (
                isinstance(event, CallEnded)
                and event.stop is not None
                and tree.is_below(said.question.node_id, event.node)
            ):
                return True
    # A pause is over when any of those who see it has the call go on, or when the call has ended,
    # which needed nothing any more that waits for the end of a pause.
    return said.question.kind is QuestionKind.Paused and (
        said.question.id in settled
        or any(
            isinstance(event, CallEnded) and event.node == said.question.node_id
            for tree in record.by_tag.get(tag_of(said.label), ())
            for event in tree.events
        )
    )


def _asked_again(record: Record) -> Iterator[Violation]:
    """A question that has an answer is not put again."""
    for tree in record.trees:
        if record.forked(tree.tag):
            continue
        answered: dict[tuple[int, str], QuestionSettled] = {}
        texts: dict[str, tuple[int, str]] = {}
        for event in tree.events:
            if isinstance(event, QuestionAsked) and event.question.kind in {
                QuestionKind.Human, QuestionKind.Approval,
            }:  # fmt: skip
                key = event.node, event.question.text
                texts[event.question.id] = key
                if key in answered:
                    text = f"{key} was answered by {answered[key].answer}, and is put again"
                    yield Violation(kind="put again", tag=tree.tag, text=text)
            if isinstance(event, QuestionSettled) and event.answer and event.id in texts:
                answered[texts[event.id]] = event


def _held_back(record: Record) -> Iterator[Violation]:
    """Nothing begins below a paused call, unless it had started, and waited to be written."""
    for tree in record.trees:
        nodes = {label: node for node, label in tree.labels.items()}
        started: dict[int, float] = {}
        for event in tree.events:
            if isinstance(event, CallStarted):
                started.setdefault(event.node, event.at - record.offset)
        begun = [
            (label, effect.at)
            for label, effects in record.paid.items()
            if tag_of(label) == tree.tag
            for effect in effects
        ]
        sent = [(one.label, one.begun) for one in record.requests if tag_of(one.label) == tree.tag]
        for event in tree.events:
            if not (
                isinstance(event, QuestionAsked) and event.question.kind is QuestionKind.Paused
            ):
                continue
            first, last = event.at - record.offset, _end_of_pause(record, tree, event)
            for label, at in [
                # What is paused is what a call does next: one that is paused itself begins.
                *(
                    one
                    for one in begun
                    if nodes.get(one[0]) != event.node
                    and started.get(nodes.get(one[0], 0), 0.0) > first
                ),
                *sent,
            ]:
                node = nodes.get(label, 0)
                if first + _PAUSED < at < last and tree.is_below(node, event.node):
                    text = (
                        f"{label} began at {at:.3f};"
                        f" {event.node} was paused from {first:.3f} to {last:.3f}"
                    )
                    yield Violation(kind="not paused", tag=tree.tag, text=text)


def _end_of_pause(record: Record, tree: Tree, asked: QuestionAsked) -> float:
    """Return when a person may have ended a pause first."""
    first = asked.at - record.offset
    ends = [
        event.at - record.offset
        for event in tree.events
        if isinstance(event, QuestionSettled) and event.id == asked.question.id
    ]
    ends += [one.begun for one in record.told.get(tree.tag, ())]
    ends += [
        one.begun
        for label, said in record.said.items()
        if tag_of(label) == tree.tag
        for one in said
        if one.question.kind is QuestionKind.Paused
    ]
    return min((at for at in ends if at > first), default=float("inf"))


def _budgets(record: Record) -> Iterator[Violation]:
    """No more requests are sent than a budget allows."""
    begun = Counter(one.label for one in record.requests)
    named: Counter[str] = Counter()
    for plan in record.plans.values():
        for call in calls_in(plan.steps):
            if (budget := call.get("budget")) is None:
                continue
            labels = [one["args"]["label"] for one in calls_in([call]) if one["call"] in AGENTS]
            sent = sum(begun[label] for label in labels)
            if "name" in budget:
                named[budget["name"]] += sent
            elif sent > budget["calls"] and not record.forked(plan.tag):
                text = f"{call['args']['label']}: {sent} requests of {budget['calls']}"
                yield Violation(kind="budget", tag=plan.tag, text=text)
    for name, sent in named.items():
        if sent > SHARED_CALLS:
            yield Violation(kind="named budget", text=f"{name}: {sent} of {SHARED_CALLS} requests")


def _times(record: Record) -> Iterator[Violation]:
    """Nothing is late before its time, and nothing wakes before its own."""
    for tree in record.trees:
        if record.forked(tree.tag):
            continue
        calls = {call["args"]["label"]: call for call in calls_in(record.plans[tree.tag].steps)}
        started: dict[int, float] = {}
        for event in tree.events:
            if isinstance(event, CallStarted):
                started.setdefault(event.node, event.at)
            if not isinstance(event, CallEnded) or event.node not in started:
                continue
            call, took = calls.get(tree.labels[event.node]), event.at - started[event.node]
            if call is None:
                continue
            least = call["args"]["seconds"] if call["call"] == "nap" else 0.0
            if event.state is NodeState.Success and took < least - 0.05:
                text = f"{call['args']['label']} slept for {took:.3f} s of {least}"
                yield Violation(kind="awake early", tag=tree.tag, text=text)
            is_late = event.exception is not None and event.exception.type == "CallTimeoutError"
            if is_late and "timeout" in call and took < call["timeout"] - 0.05:
                text = f"{call['args']['label']} was late after {took:.3f} s of {call['timeout']}"
                yield Violation(kind="late early", tag=tree.tag, text=text)


def effects_in(file: Path) -> list[Effect]:
    """Return the effects that were noted."""
    if not file.exists():
        return []
    return [Effect(**json.loads(line)) for line in file.read_text().splitlines()]


def story(record: Record, tag: int) -> Iterator[str]:
    """Tell all that is known of a tree, in the order of time."""
    plan = record.plans[tag]
    yield f"plan: {json.dumps(plan.steps)}; key {plan.key!r}"
    lines: list[tuple[float, str]] = []
    for tree in record.by_tag.get(tag, ()):
        yield f"tree {tree.id}, source {tree.source}: {tree.view.state} {tree.view.outputs!r}"
        yield from _view_lines(tree.view, "  ")
        at = 0.0
        for event in tree.events:
            at = getattr(event, "at", None) or at
            where = tree.labels.get(event.node, "?")
            lines.append((at - record.offset, f"event {tree.id}: {where}: {_short(event)}"))
    lines += [(one.at, f"effect {one}") for one in record.effects if tag_of(one.label) == tag]
    lines += [(one.begun, str(one)) for one in record.requests if tag_of(one.label) == tag]
    lines += [(one.begun, str(one)) for one in record.answers if tag_of(one.label) == tag]
    lines += [(one.begun, str(one)) for one in record.commands if tag_of(one.label) == tag]
    for held in record.held:
        if held.plan.tag == tag:
            lines.append((held.submitted, f"{held.program} has submitted it: {held.node}"))
            if held.heard is not None:
                lines.append((held.heard, f"{held.program} hears of it: {held.state}"))
    times = sorted(at for at, _ in lines)
    if times:
        first, last = times[0] - 1.0, times[-1] + 1.0
        lines += [(at, f"-- {text}") for at, text in record.history.lines if first < at < last]
        wall = time.strftime("%H:%M:%S", time.localtime(first + record.offset))
        yield f"from {first:.3f}, which is {wall}:"
    for at, text in sorted(lines, key=lambda one: one[0]):
        yield f"  {at:.3f} {text}"
    ids = {f"{tree.id}" for tree in record.by_tag.get(tag, ())}
    names = {f"run {tree.view.path}" for tree in record.by_tag.get(tag, ())} | ids
    for worker, log in record.logs.items():
        said = [line for line in log if any(_names(line, name) for name in names)]
        for line in said[:_SHOWN]:
            yield f"  {worker}: {line[:300]}"


def _names(line: str, name: str) -> bool:
    return f" {name} " in f" {line} ".replace(":", " ").replace(",", " ").replace("(", " ")


def _view_lines(view: NodeView, indent: str) -> Iterator[str]:
    told = view.inputs.get("label", "")
    yield f"{indent}{view.id} {view.fn} {told} {view.state} {view.status} {view.exception or ''}"
    for child in view.children:
        yield from _view_lines(child, f"{indent}  ")


def _short(event: Any) -> str:
    return f"{event.number} {event!r}"[:260]


def tallied(found: Sequence[Violation]) -> str:
    """Return how many violations of each kind there are."""
    kinds = Counter(one.kind for one in found)
    return ", ".join(f"{kind}: {count}" for kind, count in kinds.most_common()) or "none"


def in_plan(plan: Plan, names: Sequence[str] = PAYING) -> int:
    """Return how many calls of some functions a plan has."""
    return sum(call["call"] in names for call in calls_in(plan.steps))
