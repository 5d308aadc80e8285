"""A working copy of a file in a temporary folder, and an editor confined to that folder."""

import os
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from treefold.core.errors import UsageError
from treefold.core.function import RunContext
from treefold.runtime.loops.threads import in_thread
from treefold.toolbox.editing.document import Document, read_document
from treefold.toolbox.editing.file_error import translate_os_errors
from treefold.toolbox.editing.files import read_file
from treefold.toolbox.editing.paths import resolve_path
from treefold.toolbox.editing.text_editor import TextEditor

FOLDER: Final = "folder"  # the argument with the folder of an agent's working copy
_MAX_REMOVALS: Final = 10


class WorkingCopyEditor(TextEditor):
    """A text editor confined to the folder in the arguments of the agent that calls it."""

    @property
    def name(self) -> str:
        return "edit_working_copy"  # not text_editor, which the program may also have

    @property
    def description(self) -> str:
        return super().description.replace(
            "start at the folder in which the program runs",
            "start at the folder of the file that you were given, and no path may leave it",
        )

    def root_for(self, ctx: RunContext) -> Path:
        caller = ctx.node.parent
        if caller is None or FOLDER not in caller.inputs:
            raise UsageError(f"{self.name} needs a caller with the argument {FOLDER!r}")
        return Path(caller.inputs[FOLDER])


edit_working_copy: Final = WorkingCopyEditor()


@asynccontextmanager
async def working_copy(name: str, document: Document) -> AsyncGenerator[Path, None]:
    """Yield the path of a copy of *document* in a new folder, which is removed at the end."""
    with translate_os_errors(tempfile.gettempdir()):
        folder = Path(tempfile.mkdtemp(prefix="treefold-patch-"))
    try:
        with translate_os_errors(name):
            await in_thread(_write, folder / name, document)
        yield folder / name
    finally:
        _remove(folder)


def read_copy(path: Path, document: Document) -> bytes:
    """Return the text of a copy, in the encoding of the document that it was made of.

    Raises:
        InvalidArgumentsError: that encoding cannot represent one of its characters.
        FileError: it is missing or no longer text.
    """
    found = read_document(read_file(resolve_path(path.name, path.parent)).raw, path.name)
    if found.encoding.body_codec == document.encoding.body_codec:
        return found.body
    text = found.body.decode(found.encoding.body_codec, "surrogatepass")
    return document.encode(text, "the new text")


def _write(path: Path, document: Document) -> None:
    path.write_bytes(document.raw)


def _remove(folder: Path) -> None:
    # The thread of a cancelled edit may still run, and write to the folder meanwhile.
    for _ in range(_MAX_REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            break
