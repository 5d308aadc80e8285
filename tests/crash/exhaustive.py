"""Kill the program at every commit, at random moments, and again and again: ``make crash``, or

    python -m crash.exhaustive [PART...]

The part ``guards`` kills whoever starts a guarded run or goes on with it, at every commit; the part
``journals`` are the tests of journals that kill at some, which then kill at all; the part ``bits``
changes every bit of a journal. Prints what it does; ends with 1 if a rule was broken. RANDOM_KILLS
and SEED may be set.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product, repeat
from pathlib import Path
from typing import Final

from crash.nursery import Nurseries, Nursery
from crash.rules import faults_of
from crash.trial import Trial, try_kills
from guards.guarded import GUARDS
from guards.program import STARTS
from guards.table import Table, Tally, all_of_one_start

WORKERS: Final = max(2, os.cpu_count() or 2)
LIVES: Final = 400  # as many deaths as a tree may take at most
TESTS: Final = Path(__file__).parent.parent
JOURNALS: Final = (
    "journal/test_killed_continuations.py",
    "journal/test_killed_compaction.py",
    "journal/test_killed_messages.py",
    "journal/test_durable_time.py",
)
LONGEST: Final = 3600.0  # seconds for these


def undisturbed(nursery: Nursery, folder: Path) -> Trial:
    """Run the program without a kill."""
    return try_kills(nursery, folder, [])


def timed(nursery: Nursery, folder: Path) -> tuple[Trial, int]:
    """Run the program without a kill; return how many microseconds that took, too."""
    began = time.monotonic()
    trial = undisturbed(nursery, folder)
    return trial, int((time.monotonic() - began) * 1e6)


def requests_of(trial: Trial) -> "Counter[str]":
    """Return the requests of a run that nobody disturbed."""
    return Counter(line["mark"] for line in trial.effects if line["what"] == "request")


def each_commit(commits: int) -> Iterator[list[str]]:
    """Give a kill before and one after each commit."""
    for number in range(1, commits + 1):
        yield [f"before:{number}"]
        yield [f"after:{number}"]


def during_recovery(commits: int) -> Iterator[list[str]]:
    """Give two kills each, and three: each hits what the one before made necessary."""
    for number in range(2, commits, 5):
        for second in range(1, 5):
            yield [f"after:{number}", f"{'before' if number % 2 else 'after'}:{second}"]
    for number in range(2, commits, 16):
        yield [f"after:{number}", "before:2", "after:3"]


def again_and_again() -> Iterator[Iterable[str]]:
    """Give kills that each life meets early."""
    for number in range(3, 8):
        yield repeat(f"after:{number}", LIVES)
        yield repeat(f"before:{number + 1}", LIVES)


def at_random(seed: int, count: int, span: int) -> Iterator[list[str]]:
    """Give kills at any moment of the first *span* microseconds, some of them several."""
    choice = random.Random(seed)
    for _ in range(count):
        yield [f"time:{choice.randrange(span)}" for _ in range(choice.choice([1, 1, 2, 4]))]


def run(kinds: Sequence[tuple[str, Iterator[Iterable[str]]]], requests: "Counter[str]") -> int:
    """Make all trials, and return in how many something was wrong."""
    broken = 0
    with (
        tempfile.TemporaryDirectory() as name,
        Nurseries(folder := Path(name), WORKERS) as nurseries,
        ThreadPoolExecutor(WORKERS) as pool,
    ):

        def judge(job: tuple[int, Iterable[str]]) -> tuple[Trial | None, list[str]]:
            try:
                with nurseries.one() as nursery:
                    trial = try_kills(nursery, folder / f"trial-{job[0]}", job[1])
                return trial, faults_of(trial, requests)
            except AssertionError as error:
                return None, [str(error)]

        number = 0
        for kind, kills in kinds:
            jobs = list(enumerate(kills, number))
            number += len(jobs)
            began, deaths = time.monotonic(), 0
            for (_, wanted), (trial, faults) in zip(jobs, pool.map(judge, jobs), strict=True):
                deaths += len(trial.deaths) if trial else 0
                if trial and len(trial.deaths) >= LIVES:
                    faults.append(f"not done after {LIVES} lives")
                if faults:
                    broken += 1
                    say(f"{trial.kills if trial else list(wanted)[:3]}:")
                    for fault in faults:
                        say(f"    {fault[:2000]}")
            took = time.monotonic() - began
            say(f"{kind}: {len(jobs)} trials, {deaths} deaths, {took:.0f} s")
    return broken


def say(text: str) -> None:
    """Show where it is."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def keep_guards() -> int:
    """Go through the table of guarded runs; return in how many trials something was wrong."""
    with (
        tempfile.TemporaryDirectory() as name,
        Nurseries(folder := Path(name), WORKERS, "guards.program") as nurseries,
        ThreadPoolExecutor(WORKERS) as pool,
    ):

        def go_through(row: tuple[str, str]) -> int:
            (own := folder / "-".join(row)).mkdir()
            with nurseries.one() as nursery:
                return Tally(", ".join(row), say).count(all_of_one_start(Table(own), nursery, *row))

        return sum(pool.map(go_through, product(STARTS, GUARDS)))


def run_wholly(*words: str) -> int:
    """Run tests that make test has try some of their cases, with all; return 1 if one fails."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=short", "-v", *words],
        cwd=TESTS,
        env=os.environ | {"TREEFOLD_CRASH": "exhaustive"},
        check=False,
        timeout=LONGEST,
    )
    return int(done.returncode != 0)


def main(wanted: Sequence[str]) -> int:
    """Do what is wanted, or everything."""
    parts = {
        "kills": kill_program,
        "guards": keep_guards,
        "journals": lambda: run_wholly("-k", "killed", *JOURNALS),
        "bits": lambda: run_wholly("--timeout=0", "stores/test_checksums.py"),
    }
    if unknown := set(wanted) - set(parts):
        say(f"{', '.join(sorted(unknown))}: not one of {', '.join(parts)}")
        return 2
    broken = sum(parts[part]() for part in wanted or parts)
    say(f"{broken} trials broke a rule" if broken else "no rule was broken")
    return 1 if broken else 0


def kill_program() -> int:
    """Kill the program in every way; return in how many trials something was wrong."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Nurseries(folder, 1) as nurseries, nurseries.one() as nursery:
            undisturbed(nursery, folder / "warm")
            trial, span = timed(nursery, folder / "first")
    requests = requests_of(trial)
    if faults := faults_of(trial, requests):
        say("without a kill:\n" + "\n".join(faults))
        return 1
    commits = trial.finished["commits"]
    say(f"{commits} commits, {sum(requests.values())} requests")
    count = int(os.environ.get("RANDOM_KILLS", "200"))
    seed = int(os.environ.get("SEED", random.SystemRandom().randrange(10**9)))
    say(f"SEED={seed}")
    return run(
        [
            ("each commit", each_commit(commits)),
            ("during recovery", during_recovery(commits)),
            ("again and again", again_and_again()),
            ("at random", at_random(seed, count, span)),
        ],
        requests,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
