"""A file, the patch for it, and where the new version goes: all that is known before it is made."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from treefold.toolbox.editing.document import Document, read_document
from treefold.toolbox.editing.file_error import FileError, short_repr
from treefold.toolbox.editing.files import Contents, read_file, read_if_exists, write_file
from treefold.toolbox.editing.paths import ResolvedPath, resolve_path
from treefold.toolbox.patching.hunk import Hunk
from treefold.toolbox.patching.plan import Plan, make_plan
from treefold.toolbox.patching.sections import read_sections
from treefold.toolbox.patching.selection import part_for

_IS_DIFF: Final = re.compile(r"^@@.*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Job:
    """A file, what it is to become, and where that goes."""

    source: ResolvedPath
    target: ResolvedPath
    source_before: Contents | None
    target_before: Contents | None
    document: Document
    hunks: tuple[Hunk, ...]
    plan: Plan

    def write(self, after: bytes) -> None:
        """Write the new version at one stroke."""
        raw = self.document.with_body(after).raw
        write_file(self.target, raw, self.target_before, like=self.source_before)


def prepare(root: Path | None, file: str, patch: str, output: str | None) -> Job:
    """Read all that there is to read, and find the places of the hunks.

    Raises:
        FileError, InvalidArgumentsError: there is nothing that could be done.
    """
    source = resolve_path(file, root)
    target = source if output is None else resolve_path(output, root)
    before = read_if_exists(source)
    document = read_document(before.raw if before else b"", source.given)
    part = part_for(source.real, read_sections(_read_patch(root, patch, document)))
    has_old = any(hunk.old for hunk in part.hunks)
    if before is None and has_old:
        read_file(source)  # which says that there is none, and what there is
    if document.body and part.creates and not has_old:
        raise FileError(
            f"the patch creates {short_repr(source.given)}, which exists and is not empty; give"
            " another file, or a patch of what is in it"
        )
    target_before = before if target.real == source.real else read_if_exists(target)
    plan = make_plan(document.body, part.hunks)
    return Job(source, target, before, target_before, document, part.hunks, plan)


def _read_patch(root: Path | None, patch: str, document: Document) -> bytes:
    """Return the patch in the encoding that the text of the file is held in."""
    if _IS_DIFF.search(patch):
        return document.encode(patch, "patch")
    place = resolve_path(patch, root)
    found = read_document(read_file(place).raw, place.given)
    if found.encoding.body_codec == document.encoding.body_codec:
        return found.body
    return document.encode(found.body.decode(found.encoding.body_codec, "surrogatepass"), "patch")
