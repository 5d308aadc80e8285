"""The exit codes of all commands, and what they mean."""

from typing import Final

DONE: Final = 0
FAILED: Final = 1  # what was asked about failed, differs or has faults
USAGE: Final = 2  # wrong usage, or it was not found: nothing was done
NOT_YET: Final = 3  # it is not done yet
INTERRUPTED: Final = 130  # from the keyboard
TERMINATED: Final = 143  # by another program
