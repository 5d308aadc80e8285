"""The agents that settle what has no place in a text: one edits it, one writes it anew."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from treefold.agents.function import AgentFunction
from treefold.core.function import RunContext
from treefold.core.model import Model
from treefold.core.parameter import FunctionArg
from treefold.core.provider import Provider
from treefold.toolbox.editing.document import Document
from treefold.toolbox.editing.lines import LINE_END, normalize_line_ends
from treefold.toolbox.giving_up import raise_exception
from treefold.toolbox.patching.placement import Misfit
from treefold.toolbox.patching.rewriting import as_it_was, with_line_ends_of
from treefold.toolbox.patching.settling import Settling, choose_settling
from treefold.toolbox.patching.working_copy import (
    FOLDER,
    edit_working_copy,
    read_copy,
    working_copy,
)

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


class Settlers:
    """The two agents, and when each of them is asked."""

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

    async def settle(
        self, ctx: RunContext, name: str, document: Document, left: Sequence[Misfit]
    ) -> bytes:
        """Return the text of *document* with the hunks that are *left*, as an agent made it.

        Raises:
            CallError, ModelProviderException: there is none.
        """
        hunks = [misfit.hunk for misfit in left]
        told = "\n".join(_shown(document, left))
        if choose_settling(document.body, hunks) is Settling.EDIT:
            return await self._edited(ctx, name, document, told)
        text = document.decode(normalize_line_ends(document.body))
        args = {"file": name, "hunks": told, "text": text}
        made = document.encode(await ctx.invoke(self.by_rewriting, args), "the new text")
        added = [row for hunk in hunks for row in hunk.added]
        return await ctx.in_thread(as_it_was, document.body, made, added)

    async def _edited(self, ctx: RunContext, name: str, document: Document, hunks: str) -> bytes:
        async with working_copy(name, document) as path:
            args = {"file": name, "hunks": hunks, FOLDER: str(path.parent)}
            await ctx.invoke(self.by_editing, args)
            return await ctx.in_thread(_read, path, document)


def _read(path: Path, document: Document) -> bytes:
    """Return what was made of the copy, with its line ends if it was written anew."""
    before, after = document.body, read_copy(path, document)
    kinds = [set(LINE_END.findall(body)) for body in (before, after)]
    return after if kinds[0] == kinds[1] else with_line_ends_of(before, after)


def _shown(document: Document, left: Sequence[Misfit]) -> Iterator[str]:
    """Give each hunk as it was written, after the reason why it was not applied."""
    for misfit in left:
        hunk = misfit.hunk
        rows = [
            f"{line.sign}{document.decode(normalize_line_ends(line.text))}" for line in hunk.lines
        ]
        ended = [
            row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n" for row in rows
        ]
        yield f"Hunk {hunk.number} was not applied because {misfit.reason}:"
        yield f"{hunk.header}\n{''.join(ended)}"
