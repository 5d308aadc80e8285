"""Random trees under random faults, checked against what is promised.

    python -m cluster.random_faults --engine procrastinate --trees 2000 --seed 1

Several workers run trees of random plans while they are killed, stopped, cut off and drained, the
database is restarted and stopped, clocks jump, and people answer, pause, resume and cancel at
random moments, twice and late. Then the faults end, all trees must end in time, and the journal,
the effects and the requests to the model are compared with the promises. What is drawn depends on
the seed; when it happens, on the machine. It ends with 1 if a promise was broken.
"""

import argparse
import math
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import warm_python
from cluster.random_cluster import RandomCluster
from cluster.random_people import People
from cluster.random_plans import Plan, draw
from cluster.random_program import Setting, open_runtime, root
from cluster.random_rules import (
    Held,
    Record,
    Tree,
    Violation,
    effects_in,
    story,
    tallied,
    violations,
)
from cluster.random_server import ModelServer
from shared_servers import SharedServers
from treefold import NodeState, Runtime, StoreError, TreefoldError, attach
from work_engines import engine_name

WORKERS: Final = 4
LEASE: Final = 2.0  # seconds
REQUESTS: Final = 6  # at once
UNDER_WAY: Final = 40  # trees at once
PATIENCE: Final = 120.0  # seconds until all trees have to have ended when there are no more faults
_STANDSTILL: Final = 180.0  # seconds without the end of any tree
_STORIES: Final = 12  # of violations that are told whole


@dataclass(kw_only=True)
class Options:
    """What to do.

    Attributes:
        calm: seconds between two faults, on average.
        under_way: trees at once.
        requests: to models at once.
        seconds: after which no more trees are submitted.
        planted: whether faults are planted, which have to be found: effects are done twice,
            requests are sent twice and with no limit, and second answers are taken.
        folder: where logs and effects are kept.
    """

    engine: str
    trees: int
    seed: int
    calm: float = 0.4
    workers: int = WORKERS
    under_way: int = UNDER_WAY
    requests: int = REQUESTS
    seconds: float = math.inf
    planted: bool = False
    folder: Path | None = None


def say(text: str) -> None:
    """Show where it is."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


@dataclass
class Trees:
    """The trees that two programs have submitted, and what they know of them."""

    held: list[Held] = field(default_factory=list[Held])
    open: list[Held] = field(default_factory=list[Held])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, held: Held) -> None:
        with self._lock:
            self.held.append(held)
            self.open.append(held)

    def look(self) -> None:
        """Note which have ended."""
        with self._lock:
            before = list(self.open)
            for held in before:
                if held.node.state.final:
                    held.heard = time.monotonic()
                    held.state = held.node.state
                    self.open.remove(held)

    def watch(self, stop: threading.Event) -> None:
        """Look until *stop* is set."""
        while not stop.wait(0.05):
            self.look()

    def open_ids(self) -> Sequence[int]:
        with self._lock:
            return [held.node.id for held in self.open]

    def ended_ids(self) -> Sequence[int]:
        with self._lock:
            ids = {held.node.id for held in self.open}
            return [held.node.id for held in self.held[-200:] if held.node.id not in ids]


@contextmanager
def _started() -> Generator[None]:
    """Have programs start quickly, and servers that all share."""
    servers, programs = SharedServers(), warm_python.Parent()
    try:
        for _ in range(5):
            # What it imports takes a busy machine longer than the start of a worker may.
            with suppress(TimeoutError):
                warm_python.run("-c", "pass")
                break
        yield
    finally:
        programs.close()
        servers.close()


def run(options: Options) -> tuple[Record, list[Violation]]:
    """Run trees under faults; return what happened and which promises were broken."""
    with ExitStack() as stack:
        # Workers have another working directory.
        given = options.folder or stack.enter_context(tempfile.TemporaryDirectory())
        folder = Path(given).resolve()
        server = stack.enter_context(ModelServer(options.seed))
        effects = folder / "effects"
        effects.unlink(missing_ok=True)  # of an earlier run
        engine = engine_name(options.engine)

        def told(name: str, url: str) -> Setting:
            return Setting(
                name=name,
                url=url,
                engine=engine,
                port=server.port,
                effects=str(effects),
                requests=10 * options.requests if options.planted else options.requests,
                lease=LEASE,
                planted=options.planted,
            )

        plans = {tag: draw(options.seed, tag) for tag in range(options.trees)}
        cluster = RandomCluster(told, folder, options.workers, options.seed)
        offset = time.time() - time.monotonic()
        trees, stop = Trees(), threading.Event()
        watching = threading.Thread(target=trees.watch, args=(stop,), daemon=True)
        with cluster:
            watching.start()
            programs = {
                name: stack.enter_context(_submitting(told(name, cluster.way().url)))
                for name in ("first", "second")
            }
            ways = [cluster.way().url for _ in range(2)]
            with People(
                options.seed,
                ways,
                cluster.history,
                trees.open_ids,
                trees.ended_ids,
                credulous=options.planted,
            ) as people:
                faults = _Faults(cluster, options)
                try:
                    _submit(options, plans, programs, trees, cluster)
                finally:
                    faults.stop()
                people.calm_down()
                cluster.heal()
                say(f"no more faults; {len(trees.open)} trees are open")
                _finish(trees, cluster, PATIENCE)
                # Before their programs are closed.
                stop.set()
                watching.join()
            record = Record(
                plans=plans,
                held=trees.held,
                trees=_journal(cluster.straight),
                effects=effects_in(effects),
                requests=server.requests,
                answers=people.answers,
                commands=people.commands,
                impairments=cluster.impairments,
                history=cluster.history,
                offset=offset,
                lease=LEASE,
                requests_at_once=options.requests,
                logs={place.name: place.log() for place in cluster.places},
            )
            stack.close()
        return record, violations(record)


@contextmanager
def _submitting(told: Setting) -> Generator[Runtime]:
    runtime = open_runtime(told)
    try:
        # It looks for what is there, and follows what it submits.
        runtime.recover()
        yield runtime
    finally:
        # Not as a context manager, which would wait for what is open.
        runtime.close()


class _Faults:
    """Faults, one after another, until they are stopped."""

    def __init__(self, cluster: RandomCluster, options: Options) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(cluster, options), daemon=True)
        self._thread.start()

    def _run(self, cluster: RandomCluster, options: Options) -> None:
        source = random.Random(f"{options.seed} faults")
        while not self._stop.wait(source.expovariate(1 / options.calm)):
            while not cluster.is_fit():
                if self._stop.wait(0.05):
                    return
            cluster.fault(source, LEASE)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def _submit(
    options: Options,
    plans: dict[int, Plan],
    programs: dict[str, Runtime],
    trees: Trees,
    cluster: RandomCluster,
) -> None:
    """Submit all trees, some at a time."""
    changed, said, ended = time.monotonic(), time.monotonic(), 0
    for tag, plan in plans.items():
        if time.monotonic() - cluster.history.began > options.seconds:
            say(f"the time is over: {tag} of {len(plans)} trees were submitted")
            return
        while len(trees.open) >= options.under_way:
            if ended != (ended := len(trees.held) - len(trees.open)):
                changed = time.monotonic()
            if time.monotonic() - changed > _STANDSTILL:
                cluster.history.complain(f"no tree has ended for {_STANDSTILL:g} s")
                return
            time.sleep(0.02)
        for name in ("first", "second") if plan.twice else ("first",):
            _invoke(plan, name, programs[name], trees, cluster)
        if time.monotonic() - said > 30:
            said = time.monotonic()
            say(f"{tag} submitted, {len(trees.open)} open, {len(cluster.history.lines)} faults")


def _invoke(plan: Plan, name: str, program: Runtime, trees: Trees, cluster: RandomCluster) -> None:
    """Submit a tree; repeat it with its key if the store does not answer."""
    end, was_refused = time.monotonic() + PATIENCE, False
    while True:
        try:
            node: Any = program.invoke(root, plan.args, key=plan.key or None)
        except StoreError as error:
            if not was_refused:
                cluster.history.note(f"{name}: tree {plan.tag} was not submitted: {error}")
            was_refused = True
            if plan.key and time.monotonic() < end:
                time.sleep(0.1)
                continue
            if plan.key:
                cluster.history.complain(f"tree {plan.tag} could not be submitted: {error}")
            return
        trees.add(Held(plan=plan, program=name, node=node, submitted=time.monotonic()))
        return


def _finish(trees: Trees, cluster: RandomCluster, patience: float) -> None:
    """Wait for the end of all trees, as their programs hear of it, and take the results."""
    end = time.monotonic() + patience
    while trees.open and time.monotonic() < end:
        time.sleep(0.02)
    with attach(cluster.straight) as observer:
        while time.monotonic() < end and any(row.open for row in observer.trees()):
            time.sleep(0.1)
    for held in trees.held:
        if held.state is NodeState.Success:
            try:
                held.result = held.node.result(60.0)
            except (TimeoutError, TreefoldError) as error:
                held.result = error


def _journal(url: str) -> list[Tree]:
    with attach(url) as observer:
        return [
            Tree(
                id=row.id,
                source=row.source or 0,
                view=observer.get_view(row.id),
                events=observer.events(row.id).read(),
            )
            for row in observer.trees()
        ]


def report(options: Options, record: Record, found: Sequence[Violation], took: float) -> None:
    """Print what was broken, so that it can be understood."""
    kinds: dict[str, int] = {}
    for violation in found:
        kinds[violation.kind] = kinds.get(violation.kind, 0) + 1
        if kinds[violation.kind] > _STORIES:
            continue
        say(f"VIOLATION {violation.kind}, seed {options.seed}, tree {violation.tag}")
        say(f"  {violation.text[:9000]}")
        if violation.tag is not None and kinds[violation.kind] <= 3:
            for line in story(record, violation.tag):
                sys.stdout.write(f"    {line}\n")
    forks = sum(tree.source != 0 for tree in record.trees)
    answers = sum(one.outcome == "accepted" for one in record.answers)
    say(
        f"seed {options.seed}, {options.engine}: {len(record.plans)} trees, {forks} forks,"
        f" {len(record.effects)} effects, {len(record.requests)} requests, {answers} answers taken"
        f" of {len(record.answers)}, {len(record.commands)} commands,"
        f" {len(record.history.lines)} lines of faults, in {took:.0f} s"
    )
    say(f"violations: {tallied(found)}")


def main(arguments: Sequence[str]) -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description="Random trees under random faults.")
    parser.add_argument("--engine", default="procrastinate")
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--calm", type=float, default=0.4, help="seconds between faults")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no trees after that")
    parser.add_argument("--folder", type=Path, help="where logs and effects are kept")
    parser.add_argument(
        "--planted", action="store_true", help="plant faults, which have to be found"
    )
    options = Options(**vars(parser.parse_args(arguments)))
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # So that what was started is ended as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    with _started():
        record, found = run(options)
    report(options, record, found, time.monotonic() - began)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
