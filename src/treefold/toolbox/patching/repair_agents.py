"""The agents that apply the rejected hunks of a patch: one edits the file, one rewrites it."""

from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Final

from treefold.agents.function import AgentFunction
from treefold.core.function import RunContext
from treefold.core.model import Model
from treefold.core.parameter import FunctionArg
from treefold.core.provider import Provider
from treefold.toolbox.editing.document import Document
from treefold.toolbox.editing.lines import LINE_END, count_lines, normalize_line_ends
from treefold.toolbox.patching.hunk import Hunk
from treefold.toolbox.patching.placement import RejectedHunk
from treefold.toolbox.patching.rewriting import restore_line_ends, restore_whitespace
from treefold.toolbox.patching.working_copy import (
    FOLDER,
    edit_working_copy,
    read_copy,
    working_copy,
)
from treefold.toolbox.raising import raise_exception

EDIT_SIZE_RATIO: Final = 3  # lines of the file to lines of the hunks
REWRITE_PERCENT: Final = 30  # affected lines of the file
MAX_REWRITTEN_BYTES: Final = 50_000  # more than a model can write in one answer

_SYSTEM: Final = """\
You finish the work of a program that applies a patch to a file. Some hunks of the patch could \
not be applied by the program; you are told why. All others are in the file already. For each hunk \
that is left, find the place that it is meant for, by its lines and by what its header says, and \
make its change there.

- Lines with '+' come into the file word for word; only white space may be fitted to its \
surroundings.
- Lines with '-' go. If they look a little different in the file, what they stand for goes.
- Lines with a space only tell the place; they may look different in the file. Line numbers may be \
wrong.
- If what a hunk wants is there already, leave it as it is.
- Change nothing else, not even what looks wrong to you. A program checks this, and that each hunk \
was made.
- Do not guess. If you cannot tell where a hunk goes, or hunks contradict each other or the file, \
call raise_exception and say which and why. Nothing is written then.

"""
_EDIT: Final = """\
Edit the file with the editor: view what you need of it, then make one change after the other. \
When all are made, say so in one sentence."""
_REWRITE: Final = """\
Give all of the new text of the file as the result: every line of it, none abbreviated or left \
out, with nothing around it."""

_FILE = FunctionArg("file", str, "The path of the file.")
_HUNKS = FunctionArg("hunks", str, "The hunks that are left, and why each was not applied.")


class RepairMethod(Enum):
    """What the agent does."""

    EDIT = "edit"  # make one change after the other in a working copy
    REWRITE = "rewrite"  # return the whole new file


def choose_repair_method(body: bytes, hunks: Sequence[Hunk]) -> RepairMethod:
    r"""Return how an agent should apply *hunks*, the rejected ones, to the text *body*.

    - A text of more than 50,000 bytes is edited: no model returns that in one answer.
    - If more than 30 % of its lines are affected, it is rewritten. The lines affected by a hunk are
      those that it removes or those that it adds, whichever are more.
    - If it is much larger than the hunks, it is edited: if it has at least 3 times as many lines as
      they have, with their context and without their headers.
    - Otherwise it is rewritten: the model writes little more than it has to read.

    Example:
        >>> from treefold.toolbox.patching.hunk import Hunk, PatchLine
        >>> lines = (PatchLine(" ", b"a\n"), PatchLine("-", b"b\n"), PatchLine("+", b"c\n"))
        >>> hunk = Hunk(number=1, header="@@", stated_start=None, lines=lines)
        >>> choose_repair_method(b"x\n" * 9, [hunk])
        <RepairMethod.EDIT: 'edit'>
        >>> choose_repair_method(b"x\n" * 3, [hunk])
        <RepairMethod.REWRITE: 'rewrite'>
    """
    if len(body) > MAX_REWRITTEN_BYTES:
        return RepairMethod.EDIT
    total = count_lines(body)
    affected_lines = sum(hunk.affected_lines for hunk in hunks)
    if 100 * affected_lines > REWRITE_PERCENT * total:
        return RepairMethod.REWRITE
    size = sum(len(hunk.lines) for hunk in hunks)
    return RepairMethod.EDIT if total >= EDIT_SIZE_RATIO * size else RepairMethod.REWRITE


class RepairAgents:
    """The two agents that can apply rejected hunks."""

    def __init__(self, name: str, model: Model | Provider | str | None) -> None:
        self.by_editing: Final = AgentFunction(
            name=f"{name}_by_editing",
            desc="Make the changes of some hunks in a working copy of a file.",
            args=[_FILE, _HUNKS, FunctionArg(FOLDER, str, "The folder of the working copy.")],
            system_prompt=_SYSTEM + _EDIT,
            user_prompt_template="The file is {file}. These hunks are left:\n\n{hunks}",
            uses=[edit_working_copy, raise_exception],
            default_model=model,
        )
        self.by_rewriting: Final = AgentFunction(
            name=f"{name}_by_rewriting",
            desc="Write a file anew, with the changes of some hunks.",
            args=[_FILE, _HUNKS, FunctionArg("text", str, "All that is in the file.")],
            system_prompt=_SYSTEM + _REWRITE,
            user_prompt_template=(
                "This is the file {file}:\n\n<file>\n{text}</file>\n\n"
                "These hunks are left:\n\n{hunks}"
            ),
            uses=[raise_exception],
            default_model=model,
            returns=str,
        )

    async def repair(
        self, ctx: RunContext, name: str, document: Document, rejected: Sequence[RejectedHunk]
    ) -> bytes:
        """Return the text of *document* with the *rejected* hunks applied by an agent, unverified.

        Raises:
            CallError, ModelProviderException: the agent failed.
        """
        hunks = [each.hunk for each in rejected]
        hunks_text = "\n".join(_format_hunks(document, rejected))
        if choose_repair_method(document.body, hunks) is RepairMethod.EDIT:
            return await self._repair_by_editing(ctx, name, document, hunks_text)
        text = document.decode(normalize_line_ends(document.body))
        args = {"file": name, "hunks": hunks_text, "text": text}
        made = document.encode(await ctx.invoke(self.by_rewriting, args), "the new text")
        added = [row for hunk in hunks for row in hunk.added]
        return await ctx.in_thread(restore_whitespace, document.body, made, added)

    async def _repair_by_editing(
        self, ctx: RunContext, name: str, document: Document, hunks: str
    ) -> bytes:
        async with working_copy(name, document) as path:
            args = {"file": name, "hunks": hunks, FOLDER: str(path.parent)}
            await ctx.invoke(self.by_editing, args)
            return await ctx.in_thread(_read_working_copy, path, document)


def _read_working_copy(path: Path, document: Document) -> bytes:
    """Return the edited text, with the original line ends if the agent rewrote the file."""
    before, after = document.body, read_copy(path, document)
    kinds = [set(LINE_END.findall(body)) for body in (before, after)]
    return after if kinds[0] == kinds[1] else restore_line_ends(before, after)


def _format_hunks(document: Document, rejected: Sequence[RejectedHunk]) -> Iterator[str]:
    """Yield the reason why each hunk was rejected, and the hunk as it was written."""
    for each in rejected:
        hunk = each.hunk
        rows = [
            f"{line.sign}{document.decode(normalize_line_ends(line.text))}" for line in hunk.lines
        ]
        ended = [
            row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n" for row in rows
        ]
        yield f"Hunk {hunk.number} was not applied because {each.reason}:"
        yield f"{hunk.header}\n{''.join(ended)}"
