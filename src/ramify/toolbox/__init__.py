"""Functions that touch files, programs and people: what agents are given to work with.

Each is a Function like any other. Its results and its errors are written for a model to read.
"""

from typing import Final

from ramify.agents.results import ReturnResult
from ramify.toolbox.editing.file_error import FileError
from ramify.toolbox.editing.text_editor import TextEditor, text_editor
from ramify.toolbox.giving_up import RaiseException, raise_exception
from ramify.toolbox.human import HumanInLoop, human_in_loop
from ramify.toolbox.patching.apply_diff_patch import ApplyDiffPatch, apply_diff_patch
from ramify.toolbox.shell.bash import Bash, bash

return_result: Final = ReturnResult(str)

__all__ = [
    "ApplyDiffPatch",
    "Bash",
    "FileError",
    "HumanInLoop",
    "RaiseException",
    "ReturnResult",
    "TextEditor",
    "apply_diff_patch",
    "bash",
    "human_in_loop",
    "raise_exception",
    "return_result",
    "text_editor",
]
