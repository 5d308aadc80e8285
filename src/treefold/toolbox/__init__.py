"""Functions for agents to use: a shell, files, patches, people, and how an agent ends.

Each is a Function like any other, whose results and errors are written for a model to read. The
names in lower case are instances with the default options; the classes make others.

Programs and files:
    bash, Bash: run commands in a shell that persists between calls.
    text_editor, TextEditor: view, create and edit text files, and undo the edits.
    apply_diff_patch, ApplyDiffPatch: apply a unified diff to a file, with git and an agent.
    FileError: a file cannot be read or changed as requested.

People:
    human_in_loop, HumanInLoop: ask a person and wait for the answer.

How an agent ends:
    return_result, ReturnResult: return the result of the agent.
    raise_exception, RaiseException: end the agent with an AgentException.

They are loaded on first use; type checkers read ``__init__.pyi``.
"""

from treefold.exports import exports

__getattr__, __dir__ = exports(__name__)
