"""Everything that can happen to a cluster, case by case: ``make cluster``, or

    python -m cluster.exhaustive [PART...]

Faults: random trees under random faults, and people who say random things at random moments, on
procrastinate and on Temporal. Kills: a worker is killed before and after every commit of a run, and
another finishes it, with and without remote calls, on every engine. Guards: the same for runs that
are guarded, for each way to place and run them; on engines other than the first at some commits.
The rest are the tests of this folder, with all cases instead of some of each kind. It prints what
it does, and ends with 1 if a rule was broken. COMMITS bounds the kills, ENGINES="temporal hostile"
names the engines, and TREEFOLD_CLUSTER_TREES is how many trees the limits are tried with.
FAULTY_TREES is how many trees have random faults, and SEED draws them.
"""

import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import warm_python
from cluster import random_faults
from cluster.test_takeover import killed_and_finished
from cluster.trial import TESTS
from crash.nursery import Nurseries
from guards.placed import SUBMIT, WAYS
from guards.placements import all_of_one_way
from guards.table import Tally
from postgres_server import new_name, shared_url, with_query
from shared_servers import SharedServers
from treefold.core.function import DEFAULT_QUEUE
from work_engines import KINDS, engine_name

COMMITS: Final = int(os.environ.get("COMMITS", "200"))  # of a run, at most
ENGINES: Final = os.environ.get("ENGINES", f"none {' '.join(KINDS)}").split()
FAULTY_TREES: Final = os.environ.get("FAULTY_TREES", "2000")
SEED: Final = os.environ.get("SEED", "1")
_STORE: Final = "../stores/postgres"
SUITES: Final[Mapping[str, Sequence[str]]] = {
    "stops": ["test_takeover.py", "test_deliveries.py"],
    "outages": ["test_outages.py"],
    "poison": ["test_poison.py"],
    "parking": ["test_parking.py", f"{_STORE}/test_parking.py", f"{_STORE}/test_many_trees.py"],
    "limits": ["test_limits.py"],
    "remote": ["test_remote_calls.py"],
    "commands": ["test_commands.py"],
    "tail": ["test_tail.py", f"{_STORE}/test_tail.py"],
    "deploys": ["test_deploys.py", "test_deployed_workers.py", "test_dependencies.py"],
    "keys": ["test_continued_keys.py", "test_placed_trees.py"],
    "time": ["test_durable_time.py"],
    "drain": ["../cli/test_worker.py", "test_roles.py", f"{_STORE}/test_roles.py"],
    "runtime": ["test_shared_runtime.py", "test_imported.py", "test_trees_started_at_once.py"],
    "random": [
        "test_random_faults.py",
        "test_random_deliveries.py",
        f"{_STORE}/test_random_drives.py",
    ],
}
_LONGEST: Final = 3600.0  # seconds for one suite
_NURSERIES: Final = 2
_STRIDE: Final = 7  # of the kills on further engines, so that they come before and after commits


def say(text: str) -> None:
    """Show where it is."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def kill_at_every_commit() -> int:
    """Go through all commits of a run until the worker is not killed any more; count faults."""
    servers, programs, broken = SharedServers(), warm_python.Parent(), 0
    try:
        cases = itertools.product(ENGINES, (False, True), ("before", "after"))
        for engine, remote, moment in cases:
            kind = f"{engine}, {'remote calls, ' if remote else ''}killed {moment}"
            name = "" if engine == "none" else engine_name(engine)
            for number in range(1, COMMITS + 1):
                try:
                    if not _kill(name, f"{moment}:{number}", remote=remote):
                        say(f"{kind}: all {number - 1} commits")
                        break
                    say(f"{kind} commit {number}: right")
                except AssertionError as error:
                    broken += 1
                    say(f"{kind} commit {number}: WRONG\n    {str(error)[:4000]}")
            else:
                say(f"{kind}: the first {COMMITS} commits")
    finally:
        programs.close()
        servers.close()
    return broken


def keep_guards() -> int:
    """Kill who submits guarded runs, and each kind of worker; count trials that went wrong."""
    servers = SharedServers()
    try:
        with (
            tempfile.TemporaryDirectory() as name,
            Nurseries(Path(name), _NURSERIES, "guards.placed") as nurseries,
            ThreadPoolExecutor(_NURSERIES) as pool,
        ):

            def go_through(row: tuple[str, str, str]) -> int:
                kind, queue, way = row
                own = Path(tempfile.mkdtemp(dir=name))
                engine = "in-process" if kind == "none" else engine_name(kind)
                stride = 1 if kind == ENGINES[0] else _STRIDE
                title = f"{kind}, {'calls apart, ' if queue else ''}{way}"
                with nurseries.one() as nursery:
                    return Tally(title, say).count(
                        all_of_one_way(nursery, own, engine, queue, way, stride)
                    )

            rows = itertools.product(ENGINES, ("", DEFAULT_QUEUE), (SUBMIT, *WAYS))
            return sum(pool.map(go_through, rows))
    finally:
        servers.close()


def keep_promises() -> int:
    """Run random trees under random faults; count engines on which a promise was broken."""
    # Its workers are processes of their own, which cannot share an engine in this one.
    known = [engine for engine in ENGINES if engine in {"procrastinate", "temporal"}]
    options = ("--trees", FAULTY_TREES, "--seed", SEED)
    return sum(random_faults.main(["--engine", engine, *options]) for engine in known)


def _kill(engine: str, die: str, *, remote: bool) -> bool:
    url = with_query(shared_url(), schema=new_name())
    with tempfile.TemporaryDirectory() as folder:
        return killed_and_finished(url, Path(folder), engine, die, remote=remote)


def run_suite(files: Sequence[str]) -> int:
    """Run some tests of this folder with all cases; return 1 if one fails."""
    here = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=short", "-v"]
    try:
        done = subprocess.run(
            [*command, *(str(here / file) for file in files)],
            cwd=TESTS.parent,
            env=os.environ | {"TREEFOLD_CLUSTER": "exhaustive"},
            check=False,
            timeout=_LONGEST,
        )
    except subprocess.TimeoutExpired:
        say(f"not done in {_LONGEST:g} s")
        return 1
    return int(done.returncode != 0)


def main(wanted: Sequence[str]) -> int:
    """Do what is wanted, or everything."""
    kills = {
        "faults": keep_promises,
        "kills": kill_at_every_commit,
        "guards": keep_guards,
    }
    known = (*kills, *SUITES)
    if unknown := set(wanted) - set(known):
        say(f"{', '.join(sorted(unknown))}: not one of {', '.join(known)}")
        return 2
    broken: list[str] = []
    for part in wanted or known:
        began = time.monotonic()
        say(f"==> {part}")
        if kills[part]() if part in kills else run_suite(SUITES[part]):
            broken.append(part)
        say(f"==> {part}: {time.monotonic() - began:.0f} s")
    say(f"a rule was broken: {', '.join(broken)}" if broken else "no rule was broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
