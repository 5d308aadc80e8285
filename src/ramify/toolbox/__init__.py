"""Functions that touch files and start programs: what agents are given to work with.

Each is a Function like any other. Its results and its errors are written for a model to read.
"""

from ramify.toolbox.editing.file_error import FileError
from ramify.toolbox.editing.text_editor import TextEditor, text_editor
from ramify.toolbox.shell.bash import Bash, bash

__all__ = ["Bash", "FileError", "TextEditor", "bash", "text_editor"]
