"""The function by which agents have a patch applied to a file."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ramify.core.code import CodeFunction
from ramify.core.errors import InvalidValueError
from ramify.core.function import RunContext
from ramify.toolbox.editing.document import Document, read_document
from ramify.toolbox.editing.file_error import FileError, shortened
from ramify.toolbox.editing.files import Contents, read_file, read_if_any, write_file
from ramify.toolbox.editing.places import Place, find_place
from ramify.toolbox.patching.git import apply_by_git
from ramify.toolbox.patching.hunk import Hunk
from ramify.toolbox.patching.placement import Misfit
from ramify.toolbox.patching.plan import Plan, make_plan
from ramify.toolbox.patching.sections import read_sections
from ramify.toolbox.patching.selection import part_for

_IS_DIFF: Final = re.compile(r"^@@.*\n", re.MULTILINE)
_MOST_TOLD: Final = 5  # hunks in a message

_DESCRIPTION: Final = """\
Apply a patch in unified diff format to one file.

- file: the file to change. It need not exist if the patch creates it.
- patch: the path of a file with the diff, or the diff itself. It may be in a Markdown block with \
words around it, and its line numbers and counts may be wrong. Whatever file name it says, it is \
applied to this file; of a diff of several files, the part with the name of this file is used.
- output: where the new version goes; without it, the file itself is changed.

Either the whole patch is applied, or nothing is written. Line ends and the encoding of the file \
are kept. Paths may be absolute or relative; relative ones {where}."""


@dataclass(frozen=True, slots=True)
class _Job:
    """A file, what it is to become, and where that goes."""

    source: Place
    target: Place
    source_before: Contents | None
    target_before: Contents | None
    document: Document
    hunks: tuple[Hunk, ...]
    plan: Plan


class ApplyDiffPatch(CodeFunction):
    r"""Applies patches to files, below *root* if one is given.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from ramify import Runtime
        >>> with tempfile.TemporaryDirectory() as folder, Runtime() as runtime:
        ...     path = Path(folder) / "poem.txt"
        ...     _ = path.write_text("roses\nviolets\n")
        ...     patch = "@@ -1,2 +1,2 @@\n roses\n-violets\n+tulips\n"
        ...     args = {"file": "poem.txt", "patch": patch}
        ...     print(runtime.invoke(ApplyDiffPatch(root=folder), args).result())
        ...     path.read_text()
        Patched poem.txt: 1 hunk by git; 1 line added, 1 removed.
        'roses\ntulips\n'
    """

    def __init__(self, *, root: Path | str | None = None) -> None:
        self.root = None if root is None else Path(root).absolute()
        if self.root is not None and not self.root.is_dir():
            raise InvalidValueError(f"the root {str(root)!r} is not a folder; make it first")
        where = "start at the folder in which the program runs"
        if self.root is not None:
            where = f"start at {self.root}, and no path may leave it"
        super().__init__(
            name="apply_diff_patch",
            desc=_DESCRIPTION.format(where=where),
            callable=self._apply,
        )

    async def _apply(
        self, ctx: RunContext, file: str, patch: str, output: str | None = None
    ) -> str:
        """Apply a patch.

        Args:
            file: the path of the file to change.
            patch: the path of a file with a unified diff, or the diff itself.
            output: the path of the new version; the file itself if it is left out.
        """
        job = await ctx.in_thread(self._prepare, file, patch, output)
        after, left = await _by_git(job)
        if left:
            raise FileError(_told(job, left))
        raw = job.document.with_body(after).raw
        # On the loop and not in a thread: no cancel can come between the writing and the end.
        write_file(job.target, raw, job.target_before, like=job.source_before)
        return _summary(job)

    def _prepare(self, file: str, patch: str, output: str | None) -> _Job:
        source = find_place(file, self.root)
        target = source if output is None else find_place(output, self.root)
        before = read_if_any(source)
        document = read_document(before.raw if before else b"", source.shown)
        part = part_for(source.real, read_sections(self._read_patch(patch, document)))
        has_old = any(hunk.old for hunk in part.hunks)
        if before is None and has_old:
            read_file(source)  # which says that there is none, and what there is
        if document.body and part.creates and not has_old:
            raise FileError(
                f"the patch creates {shortened(source.shown)}, which exists and is not empty; give"
                " another file, or a patch of what is in it"
            )
        target_before = before if target.real == source.real else read_if_any(target)
        plan = make_plan(document.body, part.hunks)
        return _Job(source, target, before, target_before, document, part.hunks, plan)

    def _read_patch(self, patch: str, document: Document) -> bytes:
        """Return the patch in the encoding that the text of the file is held in."""
        if _IS_DIFF.search(patch):
            return document.encode(patch, "patch")
        place = find_place(patch, self.root)
        found = read_document(read_file(place).raw, place.shown)
        if found.encoding.held == document.encoding.held:
            return found.body
        return document.encode(found.body.decode(found.encoding.held, "surrogatepass"), "patch")


apply_diff_patch: Final = ApplyDiffPatch()


async def _by_git(job: _Job) -> tuple[bytes, tuple[Misfit, ...]]:
    """Return the text with all the hunks that git applies, and those that are left."""
    plan = job.plan
    if not plan.placed:
        return job.document.body, plan.misfits
    run = await apply_by_git(plan.before, plan.patch)
    if run.after is None:
        return job.document.body, tuple(Misfit(hunk, run.trouble) for hunk in job.hunks)
    return plan.restored(run.after), plan.misfits


def _told(job: _Job, left: Sequence[Misfit]) -> str:
    reasons = [
        f"hunk {misfit.hunk.number} ({shortened(misfit.hunk.header, 80)}): {misfit.reason}"
        for misfit in left[:_MOST_TOLD]
    ]
    more = ["…"] * (len(left) > _MOST_TOLD)
    return (
        f"{len(left)} of {_counted(len(job.hunks), 'hunk')} cannot be applied to"
        f" {shortened(job.source.shown)}, and nothing was changed: {'; '.join(reasons + more)}"
    )


def _summary(job: _Job) -> str:
    placed = [place.hunk for place in job.plan.placed]
    added = sum(len(hunk.added) for hunk in placed)
    removed = sum(len(hunk.removed) for hunk in placed)
    did = f"Patched {job.source.shown}"
    where = "" if job.target is job.source else f" The new version is in {job.target.shown}."
    if job.source_before is None:
        did, where = f"Created {job.target.shown}", ""
    return (
        f"{did}: {_counted(len(placed), 'hunk')} by git;"
        f" {_counted(added, 'line')} added, {removed} removed.{where}"
    )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
