"""What callers are told of a patch: how it was applied, or what is left of it and why."""

from collections.abc import Sequence
from typing import Final

from treefold.core.events import Failure
from treefold.toolbox.editing.document import Document
from treefold.toolbox.editing.file_error import short_repr
from treefold.toolbox.patching.evidence import Shortfall
from treefold.toolbox.patching.job import Job
from treefold.toolbox.patching.placement import Misfit
from treefold.toolbox.patching.rewriting import count_changes

_MOST_TOLD: Final = 5  # hunks in a message
_LONGEST: Final = 1000  # characters of what an agent's error says


def summary(job: Job, after: bytes, trouble: str) -> str:
    """Say what was done: by git, or here because of *trouble*; and the rest by an agent."""
    placed = [place.hunk for place in job.plan.placed]
    left = len(job.plan.misfits)
    by_program = f"without git ({trouble})" if trouble else "by git"
    counts = [f"{_counted(len(placed), 'hunk')} {by_program}"] * bool(placed)
    if left:
        counts.append(f"{left if placed else _counted(left, 'hunk')} by an agent")
        added, removed = count_changes(job.document.body, after)
    else:
        added = sum(len(hunk.added) for hunk in placed)
        removed = sum(len(hunk.removed) for hunk in placed)
    did = f"Patched {job.source.given}"
    where = "" if job.target is job.source else f" The new version is in {job.target.given}."
    if job.source_before is None:
        did, where = f"Created {job.target.given}", ""
    return f"{did}: {', '.join(counts)}; {_counted(added, 'line')} added, {removed} removed.{where}"


def given_up(job: Job, left: Sequence[Misfit], error: Exception) -> str:
    """Say that *left* have no place and that the agent which was to settle them failed."""
    failure = str(Failure.of(error))
    said = failure if len(failure) <= _LONGEST else f"{failure[:_LONGEST]}…"
    reasons = [f"{_name(misfit)}: {misfit.reason}" for misfit in left]
    return f"{_refusal(job, len(left))}: {_listed(reasons)}. An agent did not settle this: {said}"


def undone(job: Job, left: Sequence[Misfit], found: Sequence[Shortfall]) -> str:
    """Say which hunks did not make it into what an agent made of the text."""
    reasons = {misfit.hunk.number: misfit for misfit in left}
    told = [_told(job.document, reasons[shortfall.hunk.number], shortfall) for shortfall in found]
    return f"{_refusal(job, len(found))}: {_listed(told)}"


def strayed(job: Job, left: Sequence[Misfit], strays: Sequence[bytes]) -> str:
    """Say that an agent changed more than it should have."""
    reasons = [f"{_name(misfit)}: {misfit.reason}" for misfit in left]
    lines = [short_repr(job.document.decode(line), 80) for line in strays]
    return (
        f"{_refusal(job, len(left))}: {_listed(reasons)}. An agent that was to settle this changed"
        f" what no hunk asks for: {_listed(lines)}"
    )


def _refusal(job: Job, number: int) -> str:
    return (
        f"{number} of {_counted(len(job.hunks), 'hunk')} cannot be applied to"
        f" {short_repr(job.source.given)}, and nothing was changed"
    )


def _told(document: Document, misfit: Misfit, shortfall: Shortfall) -> str:
    line = short_repr(document.decode(shortfall.line).strip(), 80)
    did = f"did not add {line}" if shortfall.is_missing else f"did not remove {line}"
    return f"{_name(misfit)}: {misfit.reason}, and an agent that was to settle it {did}"


def _name(misfit: Misfit) -> str:
    return f"hunk {misfit.hunk.number} ({short_repr(misfit.hunk.header, 80)})"


def _listed(items: Sequence[str]) -> str:
    return "; ".join([*items[:_MOST_TOLD], *["…"] * (len(items) > _MOST_TOLD)])


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
