"""Functions that touch files, programs and people: what agents are given to work with.

Each is a Function like any other. Its results and its errors are written for a model to read. The
names are loaded when they are first used; ``__init__.pyi`` tells type checkers the same.
"""

from treefold.exports import exports

__getattr__, __dir__, __all__ = exports(  # pyright: ignore[reportUnsupportedDunderAll]
    __name__,
    {
        "treefold.agents.results": ["ReturnResult"],
        "treefold.toolbox.editing.file_error": ["FileError"],
        "treefold.toolbox.editing.text_editor": ["TextEditor", "text_editor"],
        "treefold.toolbox.giving_up": ["RaiseException", "raise_exception"],
        "treefold.toolbox.human": ["HumanInLoop", "human_in_loop"],
        "treefold.toolbox.patching.apply_diff_patch": ["ApplyDiffPatch", "apply_diff_patch"],
        "treefold.toolbox.returning": ["return_result"],
        "treefold.toolbox.shell.bash": ["Bash", "bash"],
    },
)
