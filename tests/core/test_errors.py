"""The tree of errors, as it is drawn and as it is."""

import importlib
import re

from treefold import errors as drawing
from treefold.core.errors import TreefoldError

_ELSEWHERE = (
    "core.agent_errors",
    "mcp.errors",
    "models",
    "models.local.weights",
    "toolbox.editing.file_error",
)
for _module in _ELSEWHERE:
    importlib.import_module(f"treefold.{_module}")


def classes_below(kind: type[Exception]) -> set[type[Exception]]:
    found = {kind}
    for one in kind.__subclasses__():
        found |= classes_below(one)
    return {one for one in found if one.__module__.startswith("treefold.")}


def test_the_drawing_of_the_tree_has_every_error_and_no_other():
    drawn = set(re.findall(r"^[│├└─ ]*(\w+)", drawing.__doc__ or "", re.MULTILINE))
    errors = {one.__name__ for one in classes_below(TreefoldError)}
    assert errors <= drawn
    assert {name for name in drawn if name.endswith(("Error", "Exception", "Exceeded"))} <= errors
