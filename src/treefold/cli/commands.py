"""The group of all commands: their names and one-line help are here, and no module is loaded.

A new command is a line here and a ``@command`` in the module that the line names.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import click

from treefold.cli.log_output import verbose_option
from treefold.version import __version__

COMPLETION_VARIABLE: Final = "_TREEFOLD_COMPLETE"  # set by the scripts of ``treefold completion``
_UNKNOWN: Final = "treefold.unknown_command"

# The groups of ``treefold --help``: the name of each command, its module and its help.
GROUPS: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "run": {
        "run": ("run", "call a function and watch the tree grow"),
        "chat": ("chat", "talk to a model"),
        "mcp": ("mcp", "serve functions as the tools of an MCP server"),
    },
    "run on several machines": {
        "worker": ("worker", "run what is submitted to a store that workers share"),
        "workers": ("workers", "list the workers of a store, and stop one"),
    },
    "look at a run": {
        "ps": ("ps", "list the runs of a journal"),
        "tree": ("tree", "show the calls of a run"),
        "stack": ("stack", "show the calls that lead to what runs now"),
        "transcript": ("transcript", "show what an agent and its model said"),
        "flame": ("flame", "show where time, tokens or money went"),
        "diff": ("diff", "show the differences between two runs"),
        "export": ("export", "write a run to a file of its own"),
        "view": ("view", "look at the runs in a browser"),
    },
    "act on a run": {
        "questions": ("questions", "list the questions that wait for a person"),
        "answer": ("control", "answer a question"),
        "say": ("control", "say something to an agent while it runs"),
        "pause": ("control", "pause a call and all calls below it"),
        "resume": ("resume", "resume a call that is paused, failed or was cancelled"),
        "cancel": ("control", "cancel a call and all calls below it"),
        "fork": ("fork", "run again from a call in the past, with something changed"),
        "replay": ("replay", "run a recording again offline and show what differs"),
    },
    "maintain a journal": {
        "import": ("maintenance", "import a run that was exported"),
        "delete": ("maintenance", "delete a run that has ended"),
        "vacuum": ("maintenance", "return the space of deleted runs to the disk"),
        "store": ("store", "create or share a journal in PostgreSQL"),
    },
    "set up": {
        "init": ("init", "write a small project: an agent, its tool and a test"),
        "check": ("check", "check which functions call which, without running them"),
        "doctor": ("doctor", "show what is installed and configured, and what is missing"),
        "local": ("local", "list and fetch the models that run on this machine"),
        "completion": ("completion", "print a completion script for a shell"),
    },
}

COMMANDS: Final = {name: line for group in GROUPS.values() for name, line in group.items()}


class CommandGroup(click.Group):
    """The ``treefold`` command: imports the module of a subcommand when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing and (not args or not args[0]):
            ctx.fail("give a command; 'treefold --help' lists them")
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and ctx.resilient_parsing:
            ctx.meta[_UNKNOWN] = True
        elif args[0] not in COMMANDS:
            from treefold.core.suggestions import did_you_mean  # noqa: PLC0415 - only a typo needs it

            hint = did_you_mean(args[0], COMMANDS) or "'treefold --help' lists them"
            ctx.fail(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", help) for name, (_, help) in group.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Return the commands and options that begin with *incomplete*; no command is loaded."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only shells need it

        if ctx.meta.get(_UNKNOWN):
            return []
        found = [
            CompletionItem(name, help=help)
            for name, (_, help) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


def load_command(name: str) -> click.Command:
    """Import the module of the command *name* and return the command."""
    found = vars(import_module(f"treefold.cli.{COMMANDS[name][0]}")).values()
    return next(one for one in found if isinstance(one, click.Command) and one.name == name)


treefold: Final = CommandGroup(
    "treefold",
    help="Agents are functions, and every run is a tree.",
    epilog="'treefold COMMAND --help' shows an example of each.",
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[verbose_option()],
)
click.version_option(__version__, message="treefold %(version)s")(treefold)
