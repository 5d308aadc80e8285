"""What ``treefold.toolbox`` exports, for type checkers; ``__init__.py`` loads it on first use."""

from treefold.agents.results import ReturnResult as ReturnResult
from treefold.toolbox.editing.file_error import FileError as FileError
from treefold.toolbox.editing.text_editor import (
    TextEditor as TextEditor,
    text_editor as text_editor,
)
from treefold.toolbox.human import HumanInLoop as HumanInLoop, human_in_loop as human_in_loop
from treefold.toolbox.patching.apply_diff_patch import (
    ApplyDiffPatch as ApplyDiffPatch,
    apply_diff_patch as apply_diff_patch,
)
from treefold.toolbox.raising import (
    RaiseException as RaiseException,
    raise_exception as raise_exception,
)
from treefold.toolbox.returning import return_result as return_result
from treefold.toolbox.shell.bash import Bash as Bash, bash as bash
