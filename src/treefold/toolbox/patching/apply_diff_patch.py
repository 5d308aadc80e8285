"""The function by which agents apply a patch to a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from treefold.core.code import CodeFunction
from treefold.core.errors import CallError, InvalidValueError, ModelProviderException
from treefold.core.function import Ask, RunContext
from treefold.core.model import Model
from treefold.core.parameter import JsonSchema
from treefold.core.provider import Provider
from treefold.toolbox.editing.file_error import FileError
from treefold.toolbox.editing.lines import normalize_line_ends
from treefold.toolbox.patching.git import apply_with_git
from treefold.toolbox.patching.job import PatchJob, prepare_job
from treefold.toolbox.patching.placement import RejectedHunk
from treefold.toolbox.patching.repair_agents import RepairAgents
from treefold.toolbox.patching.report import (
    describe_agent_failure,
    describe_missed_hunks,
    describe_success,
    describe_unrequested_changes,
)
from treefold.toolbox.patching.verification import find_missed_hunks, find_unrequested_changes

_DESCRIPTION: Final = """\
Apply a patch in unified diff format to one file.

- file: the file to change. It need not exist if the patch creates it.
- patch: the path of a file with the diff, or the diff itself. It may be in a Markdown block with \
words around it, and its line numbers and counts may be wrong. Whatever file name it says, it is \
applied to this file; of a diff of several files, the part with the name of this file is used.
- output: where the new version goes; without it, the file itself is changed.

Hunks that do not fit as they stand are fitted in by another agent. Either the whole patch is \
applied, or nothing is written. Line ends and the encoding of the file are kept. Paths may be \
absolute or relative; relative ones {where}."""


class ApplyDiffPatch(CodeFunction):
    r"""Applies patches to files, below *root* if one is given.

    Git applies the hunks that match in exactly one place. The rejected ones are left to an agent
    with *model*, by default that of the runtime: it edits a working copy if the file is much larger
    than the hunks; otherwise, or if they affect more than 30 % of the file, it rewrites the file.
    The result is written if it contains each hunk and nothing else changed. Several instances in
    one program need different names.

    Where ``allowed_tools`` are given, the agents need ``edit_working_copy`` and
    ``raise_exception``.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from treefold import Runtime, ToolUse
        >>> from treefold.testing import ScriptedModel
        >>> from treefold.toolbox import ApplyDiffPatch
        >>> rewritten = ToolUse("1", "return_result", {"result": "red roses\ntulips\n"})
        >>> with (
        ...     tempfile.TemporaryDirectory() as folder,
        ...     Runtime(models=ScriptedModel(rewritten)) as runtime,
        ... ):
        ...     path = Path(folder) / "poem.txt"
        ...     patch = ApplyDiffPatch(root=folder)
        ...     for text in ("roses\nviolets\n", "red roses\nblue violets\n"):
        ...         _ = path.write_text(text)
        ...         diff = "@@ -1,2 +1,2 @@\n roses\n-violets\n+tulips\n"
        ...         print(runtime.invoke(patch, {"file": "poem.txt", "patch": diff}).result())
        ...     path.read_text()
        Patched poem.txt: 1 hunk by git; 1 line added, 1 removed.
        Patched poem.txt: 1 hunk by an agent; 1 line added, 1 removed.
        'red roses\ntulips\n'
    """

    def __init__(
        self,
        *,
        root: Path | str | None = None,
        model: Model | Provider | str | None = None,
        name: str = "apply_diff_patch",
        ask: Ask = False,
    ) -> None:
        self.root = None if root is None else Path(root).absolute()
        if self.root is not None and not self.root.is_dir():
            raise InvalidValueError(f"root must be an existing folder, got {str(root)!r}")
        where = "start at the folder in which the program runs"
        if self.root is not None:
            where = f"start at {self.root}, and no path may leave it"
        self._repair_agents = RepairAgents(name, model)
        super().__init__(
            name=name,
            desc=_DESCRIPTION.format(where=where),
            callable=self._apply,
            uses=[self._repair_agents.by_editing, self._repair_agents.by_rewriting],
            ask=ask,
            repeatable=False,  # the hunks would not match the patched file
        )

    def interface(self) -> JsonSchema:
        told = super().interface()
        if self.root is not None:
            told["description"] = self.description.replace(str(self.root), "root")
        return told

    async def _apply(
        self, ctx: RunContext, file: str, patch: str, output: str | None = None
    ) -> str:
        """Apply a patch.

        Args:
            file: the path of the file to change.
            patch: the path of a file with a unified diff, or the diff itself.
            output: the path of the new version; the file itself if it is left out.
        """
        job = await ctx.in_thread(prepare_job, self.root, file, patch, output)
        after, error = await _apply_with_git(job)
        if job.plan.rejected:
            after = await self._repair(ctx, job, after)
        report = await ctx.in_thread(describe_success, job, after, error)
        # On the event loop and not in a thread, so that no cancellation comes after the write.
        job.write(after)
        return report

    async def _repair(self, ctx: RunContext, job: PatchJob, body: bytes) -> bytes:
        """Return the text with the rejected hunks applied by an agent."""
        rejected, document = job.plan.rejected, job.document.with_body(body)
        try:
            after = await self._repair_agents.repair(ctx, job.source.name, document, rejected)
        except (CallError, ModelProviderException) as error:
            raise FileError(describe_agent_failure(job, rejected, error)) from error
        await ctx.in_thread(_verify, job, rejected, body, after)
        return after


apply_diff_patch: Final = ApplyDiffPatch()


async def _apply_with_git(job: PatchJob) -> tuple[bytes, str]:
    """Return the text with the placed hunks, and why git could not apply them, if so."""
    plan = job.plan
    if not plan.placed:
        return job.document.body, ""
    result = await apply_with_git(plan.before, plan.patch)
    if result.after is None:
        # As safe as git: the lines of each hunk were compared when it was placed.
        return plan.apply(), result.error
    return plan.finish(result.after), ""


def _verify(job: PatchJob, rejected: Sequence[RejectedHunk], before: bytes, after: bytes) -> None:
    """Check that *after* contains each rejected hunk, and no other change.

    Raises:
        FileError: it does not.
    """
    hunks = [each.hunk for each in rejected]
    if b"\n" not in before:
        before, after = normalize_line_ends(before), normalize_line_ends(after)
    if found := find_missed_hunks(before, after, hunks):
        raise FileError(describe_missed_hunks(job, rejected, found))
    if unrequested := find_unrequested_changes(before, after, hunks):
        raise FileError(describe_unrequested_changes(job, rejected, unrequested))
