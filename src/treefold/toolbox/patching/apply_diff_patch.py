"""The function by which agents have a patch applied to a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from treefold.core.code import CodeFunction
from treefold.core.errors import CallError, InvalidValueError, ModelProviderException
from treefold.core.function import RunContext
from treefold.core.model import Model
from treefold.core.provider import Provider
from treefold.toolbox.editing.file_error import FileError
from treefold.toolbox.editing.lines import normalize_line_ends
from treefold.toolbox.patching.evidence import find_shortfalls, find_strays
from treefold.toolbox.patching.git import apply_by_git
from treefold.toolbox.patching.job import Job, prepare
from treefold.toolbox.patching.placement import Misfit
from treefold.toolbox.patching.report import given_up, strayed, summary, undone
from treefold.toolbox.patching.settlers import Settlers

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

    Git applies the hunks that have one place and no other. For those that are left, *model* is
    asked, by default that of the runtime: an agent edits a working copy if the file is much larger
    than they are, else, or if they affect more than 30 % of it, another writes it anew. What comes
    of it is written if each hunk made it, and nothing else changed. Several in one program need
    names of their own.

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
    ) -> None:
        self.root = None if root is None else Path(root).absolute()
        if self.root is not None and not self.root.is_dir():
            raise InvalidValueError(f"the root {str(root)!r} is not a folder; make it first")
        where = "start at the folder in which the program runs"
        if self.root is not None:
            where = f"start at {self.root}, and no path may leave it"
        self._settlers = Settlers(name, model)
        super().__init__(
            name=name,
            desc=_DESCRIPTION.format(where=where),
            callable=self._apply,
            uses=[self._settlers.by_editing, self._settlers.by_rewriting],
            repeatable=False,  # what it has patched would not be found a second time
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
        job = await ctx.in_thread(prepare, self.root, file, patch, output)
        after, trouble = await _by_program(job)
        if job.plan.misfits:
            after = await self._by_agent(ctx, job, after)
        said = await ctx.in_thread(summary, job, after, trouble)
        # On the loop and not in a thread: no cancel can come between the writing and the end.
        job.write(after)
        return said

    async def _by_agent(self, ctx: RunContext, job: Job, body: bytes) -> bytes:
        """Return the text with the hunks that have no place in it."""
        left, document = job.plan.misfits, job.document.with_body(body)
        try:
            after = await self._settlers.settle(ctx, job.source.name, document, left)
        except (CallError, ModelProviderException) as error:
            raise FileError(given_up(job, left, error)) from error
        await ctx.in_thread(_check, job, left, body, after)
        return after


apply_diff_patch: Final = ApplyDiffPatch()


async def _by_program(job: Job) -> tuple[bytes, str]:
    """Return the text with the hunks that have a place, and why git did not apply them, if so."""
    plan = job.plan
    if not plan.placed:
        return job.document.body, ""
    run = await apply_by_git(plan.before, plan.patch)
    if run.after is None:  # as good: each line that it would change has been compared
        return plan.made_here(), run.trouble
    return plan.restored(run.after), ""


def _check(job: Job, left: Sequence[Misfit], before: bytes, after: bytes) -> None:
    """Refuse what an agent made unless each hunk made it, and nothing else changed."""
    hunks = [misfit.hunk for misfit in left]
    if b"\n" not in before:
        before, after = normalize_line_ends(before), normalize_line_ends(after)
    if found := find_shortfalls(before, after, hunks):
        raise FileError(undone(job, left, found))
    if strays := find_strays(before, after, hunks):
        raise FileError(strayed(job, left, strays))
