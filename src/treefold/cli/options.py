"""What commands are made of: their decorator, the options that several share, and JSON values."""

import inspect
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import click

from treefold.cli.log_output import verbose_option
from treefold.core.errors import InvalidValueError

STORE_VARIABLE: Final = "TREEFOLD_STORE"
DEFAULT_STORE: Final = "run.db"
LAST: Final = "last"
NODE_HELP: Final = (
    "a run's number (3), a call's path (3.2.1), the key of a run, or 'last' for the newest run"
)
FILE: Final = click.Path(readable=False)  # completed by shells; it need not exist

_WAIT: Final = 5.0  # seconds


class Command(click.Command):
    """A command whose help keeps the line breaks of its docstring.

    The first paragraph of the docstring is printed above the options, the others below them.
    """

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        summary, _, _ = inspect.cleandoc(self.help or "").partition("\n\n")
        formatter.write(f"\n{summary}\n")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _, _, details = inspect.cleandoc(self.help or "").partition("\n\n")
        formatter.write(f"\n{details}\n\n{self.epilog}\n")


def command(
    name: str, *, exit_codes: str, kind: type[Command] = Command, **settings: Any
) -> Callable[[Callable[..., int]], Command]:
    """Make a function, which returns the exit code, the command *name*.

    The docstring is its help. *exit_codes* says what the exit codes mean, at the end of the help.
    *settings* are those of click's context.
    """

    def make(function: Callable[..., int]) -> Command:
        made = click.command(
            name,
            cls=kind,
            epilog=f"exit codes: {exit_codes}",
            context_settings={"help_option_names": ["-h", "--help"], **settings},
        )(function)
        made.params.append(verbose_option())
        return made

    return make


def node_argument(metavar: str = "NODE", *, required: bool = False) -> Callable[..., Any]:
    """Add the argument *node*: a call, or the newest run if it is left out."""
    default: dict[str, Any] = {} if required else {"default": LAST}
    return click.argument(
        "node",
        metavar=metavar if required else f"[{metavar}]",
        help=NODE_HELP,
        shell_complete=_complete_last,
        **default,
    )


def _complete_last(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [LAST] if LAST.startswith(incomplete) else []


def _levels(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise click.BadParameter(f"{text!r} is not a number of levels, such as 2")
    return int(text)


def read_seconds(text: str) -> float:
    """Return a number of seconds; the type of an option."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise click.BadParameter(f"{text!r} is not a number of seconds, such as 2.5")
    return seconds


store_option: Final = click.option(
    "--store",
    type=FILE,
    metavar="FILE",
    help=(
        f"the journal: a file, or a postgresql:// URL; by default ${STORE_VARIABLE}, or"
        f" {DEFAULT_STORE} in this folder"
    ),
)
shared_store_option: Final = click.option(
    "--store",
    metavar="URL",
    help=f"the journal that workers share, postgresql://USER@HOST/DATABASE; by default"
    f" ${STORE_VARIABLE}",
)
json_option: Final = click.option("--json", is_flag=True, help="print one JSON value")
depth_option: Final = click.option(
    "--depth", metavar="N", type=_levels, help="show only calls that are at most this far down"
)
wait_option: Final = click.option(
    "--wait",
    metavar="SECONDS",
    type=read_seconds,
    default=_WAIT,
    help=f"how long to wait until it is done; {_WAIT:g} by default",
)


def read_value(text: str) -> Any:
    """Return the JSON value in *text*, or *text* itself if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def read_text(text: str, option: str) -> str:
    """Return *text*, or what is in FILE if it is @FILE; a text that begins with @ is given as @@.

    Raises:
        InvalidValueError: the file that *option* names cannot be read.
    """
    if not text.startswith("@"):
        return text
    if text.startswith("@@"):
        return text[1:]
    try:
        return Path(text[1:]).expanduser().read_text("utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidValueError(
            f"{option} {text}: the file cannot be read ({why}); write @@ for a text that begins"
            " with @"
        ) from error


def read_arguments(text: str, option: str) -> dict[str, Any]:
    """Return the JSON object that *option* was given as *text*.

    Raises:
        InvalidValueError: it is not a JSON object.
    """
    found = read_value(text)
    if not isinstance(found, dict):
        example = '{"name": "Ada"}'
        raise InvalidValueError(f"{option} takes a JSON object such as '{example}', not {text!r}")
    return cast("dict[str, Any]", found)
