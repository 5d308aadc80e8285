"""Which commands there are: one line each, and no module loaded.

A new command is a line here and a module with ``add_to(add_parser)``. Its one-line help is here and
nowhere else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Command:
    """A command, and the module below ``treefold.cli`` that adds it."""

    name: str
    module: str
    help: str


GROUPS: Final[Mapping[str, Sequence[Command]]] = {
    "run": [
        Command("run", "run", "call a function and watch the tree grow"),
        Command("chat", "chat", "talk to a model"),
        Command("mcp", "mcp", "serve functions as the tools of an MCP server"),
    ],
    "look at a run": [
        Command("ps", "ps", "list the runs of a journal"),
        Command("tree", "tree", "show the calls of a run"),
        Command("stack", "stack", "show the calls that lead to what runs now"),
        Command("transcript", "transcript", "show what an agent and its model said"),
        Command("flame", "flame", "show where time, tokens or money went"),
        Command("diff", "diff", "show what is different between two runs"),
        Command("export", "export", "write a run into a file of its own"),
        Command("view", "view", "look at the runs in a browser"),
    ],
    "act on a run": [
        Command("questions", "questions", "list what waits for a person"),
        Command("answer", "answer", "answer a question"),
        Command("pause", "pause", "let a call stand still"),
        Command("resume", "resume", "let it go on"),
        Command("cancel", "cancel", "end a call and all below it"),
        Command("fork", "fork", "go on from the past, with something changed"),
        Command("replay", "replay", "run it again offline, and say what differs"),
    ],
    "keep a journal": [
        Command("import", "importing", "take in a run that was exported"),
        Command("delete", "delete", "forget a run that is over"),
        Command("vacuum", "vacuum", "give the room of deleted runs back to the disk"),
    ],
    "set up": [
        Command("check", "check", "check which functions call which, and run nothing"),
        Command("doctor", "doctor", "say what is installed and found here, and what is missing"),
        Command("local", "local", "fetch the small model that runs on this machine"),
        Command("completion", "completion", "have a shell complete all of this"),
    ],
}

COMMANDS: Final[Mapping[str, Command]] = {
    command.name: command for group in GROUPS.values() for command in group
}
