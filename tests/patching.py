"""Calls of apply_diff_patch, as tests make them."""

from pathlib import Path
from textwrap import dedent

from ramify import Runtime
from ramify.toolbox import ApplyDiffPatch, apply_diff_patch
from ramify.toolbox.patching.hunk import Hunk
from ramify.toolbox.patching.sections import read_sections


def apply(
    file: Path | str, patch: Path | str, output: Path | str | None = None, root: Path | None = None
) -> str:
    """Make one call at top level."""
    function = apply_diff_patch if root is None else ApplyDiffPatch(root=root)
    args = {"file": str(file), "patch": str(patch)}
    if output is not None:
        args["output"] = str(output)
    with Runtime() as runtime:
        return runtime.invoke(function, args).result(60)


def text(block: str) -> str:
    """Return an indented block as the text that it stands for."""
    return dedent(block).removeprefix("\n")


def hunks_in(patch: str) -> list[Hunk]:
    """Return all the hunks of a patch."""
    return [hunk for section in read_sections(patch.encode()) for hunk in section.hunks]


def numbered(total: int) -> bytes:
    """Return that many lines, each with its number."""
    return b"".join(b"line %d\n" % number for number in range(1, total + 1))
