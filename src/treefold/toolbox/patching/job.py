"""Everything that a call of apply_diff_patch reads before it changes a file."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from treefold.toolbox.editing.document import Document, read_document
from treefold.toolbox.editing.file_error import FileError, short_repr
from treefold.toolbox.editing.files import Contents, read_file, read_if_exists, write_file
from treefold.toolbox.editing.paths import ResolvedPath, resolve_path
from treefold.toolbox.patching.file_diff import parse_patch, select_file_diff
from treefold.toolbox.patching.hunk import Hunk
from treefold.toolbox.patching.plan import Plan, make_plan

_IS_DIFF: Final = re.compile(r"^@@.*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PatchJob:
    """A file, the plan for its new version, and where to write that."""

    source: ResolvedPath
    target: ResolvedPath
    source_before: Contents | None
    target_before: Contents | None
    document: Document
    hunks: tuple[Hunk, ...]
    plan: Plan

    def write(self, after: bytes) -> None:
        """Write the new version atomically."""
        raw = self.document.with_body(after).raw
        write_file(self.target, raw, self.target_before, like=self.source_before)


def prepare_job(root: Path | None, file: str, patch: str, output: str | None) -> PatchJob:
    """Read the file and the patch, and place the hunks.

    Raises:
        FileError, InvalidArgumentsError: the patch cannot be applied to the file at all.
    """
    source = resolve_path(file, root)
    target = source if output is None else resolve_path(output, root)
    before = read_if_exists(source)
    document = read_document(before.raw if before else b"", source.given)
    file_diff = select_file_diff(source.real, parse_patch(_read_patch(root, patch, document)))
    has_old = any(hunk.old for hunk in file_diff.hunks)
    if before is None and has_old:
        read_file(source)  # raises, and suggests similar names
    if document.body and file_diff.creates and not has_old:
        raise FileError(
            f"the patch creates {short_repr(source.given)}, which exists and is not empty; give"
            " another file, or a patch of its contents"
        )
    target_before = before if target.real == source.real else read_if_exists(target)
    plan = make_plan(document.body, file_diff.hunks)
    return PatchJob(source, target, before, target_before, document, file_diff.hunks, plan)


def _read_patch(root: Path | None, patch: str, document: Document) -> bytes:
    """Return the patch in the encoding of the document's body."""
    if _IS_DIFF.search(patch):
        return document.encode(patch, "patch")
    path = resolve_path(patch, root)
    found = read_document(read_file(path).raw, path.given)
    if found.encoding.body_codec == document.encoding.body_codec:
        return found.body
    return document.encode(found.body.decode(found.encoding.body_codec, "surrogatepass"), "patch")
