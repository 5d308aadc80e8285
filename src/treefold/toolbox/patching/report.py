"""The messages about a patch: how it was applied, or which hunks were not and why."""

from collections.abc import Sequence
from typing import Final

from treefold.core.events import Failure
from treefold.core.truncation import truncate
from treefold.toolbox.editing.document import Document
from treefold.toolbox.editing.file_error import short_repr
from treefold.toolbox.patching.job import PatchJob
from treefold.toolbox.patching.placement import RejectedHunk
from treefold.toolbox.patching.rewriting import count_changes
from treefold.toolbox.patching.verification import MissedHunk

_MAX_LISTED: Final = 5  # hunks in a message
_MAX_ERROR_CHARS: Final = 1000  # of an agent's error


def describe_success(job: PatchJob, after: bytes, git_error: str) -> str:
    """Return what was applied by git, or without it because of *git_error*, and by an agent."""
    placed = [each.hunk for each in job.plan.placed]
    repaired = len(job.plan.rejected)
    by_program = f"without git ({git_error})" if git_error else "by git"
    counts = [f"{_plural(len(placed), 'hunk')} {by_program}"] * bool(placed)
    if repaired:
        counts.append(f"{repaired if placed else _plural(repaired, 'hunk')} by an agent")
        added, removed = count_changes(job.document.body, after)
    else:
        added = sum(len(hunk.added) for hunk in placed)
        removed = sum(len(hunk.removed) for hunk in placed)
    did = f"Patched {job.source.given}"
    where = "" if job.target is job.source else f" The new version is in {job.target.given}."
    if job.source_before is None:
        did, where = f"Created {job.target.given}", ""
    return f"{did}: {', '.join(counts)}; {_plural(added, 'line')} added, {removed} removed.{where}"


def describe_agent_failure(
    job: PatchJob, rejected: Sequence[RejectedHunk], error: Exception
) -> str:
    """Return why hunks were rejected, and that the agent that should apply them failed."""
    failure = truncate(str(Failure.of(error)), _MAX_ERROR_CHARS)
    return f"{_rejected(job, rejected)}. An agent could not apply them either: {failure}"


def describe_missed_hunks(
    job: PatchJob, rejected: Sequence[RejectedHunk], missed: Sequence[MissedHunk]
) -> str:
    """Return which of the rejected hunks are not in the text that an agent made."""
    by_number = {each.hunk.number: each for each in rejected}
    reasons = [_missed(job.document, by_number[each.hunk.number], each) for each in missed]
    return f"{_not_applied(job, len(missed))}: {_listed(reasons)}"


def describe_unrequested_changes(
    job: PatchJob, rejected: Sequence[RejectedHunk], changed: Sequence[bytes]
) -> str:
    """Return that an agent changed lines that no hunk changes."""
    lines = [short_repr(job.document.decode(line), 80) for line in changed]
    return (
        f"{_rejected(job, rejected)}. An agent that should apply them changed lines that no hunk"
        f" changes: {_listed(lines)}"
    )


def _rejected(job: PatchJob, rejected: Sequence[RejectedHunk]) -> str:
    reasons = [f"{_name(each)}: {each.reason}" for each in rejected]
    return f"{_not_applied(job, len(rejected))}: {_listed(reasons)}"


def _not_applied(job: PatchJob, number: int) -> str:
    return (
        f"{number} of {_plural(len(job.hunks), 'hunk')} cannot be applied to"
        f" {short_repr(job.source.given)}, and nothing was changed"
    )


def _missed(document: Document, rejected: RejectedHunk, missed: MissedHunk) -> str:
    line = short_repr(document.decode(missed.line).strip(), 80)
    did = f"did not add {line}" if missed.is_missing else f"did not remove {line}"
    return f"{_name(rejected)}: {rejected.reason}, and an agent that should apply it {did}"


def _name(rejected: RejectedHunk) -> str:
    return f"hunk {rejected.hunk.number} ({short_repr(rejected.hunk.header, 80)})"


def _listed(items: Sequence[str]) -> str:
    return "; ".join([*items[:_MAX_LISTED], *["…"] * (len(items) > _MAX_LISTED)])


def _plural(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
