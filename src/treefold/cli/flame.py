"""``treefold flame``: where the time, the tokens or the money of a run went."""

import argparse
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, get_args

from treefold.cli.exit_codes import DONE
from treefold.cli.journal import add_node_to, add_store_to, node_id, opened
from treefold.cli.output import add_json_to, columns, duration, print_json
from treefold.cli.tree import depth
from treefold.views import data
from treefold.views.flame import By
from treefold.views.text import cut

_SHARE: Final = 3  # the bars take one column in so many
_LEAST: Final = 10  # columns
_UNKNOWN: Final = ", without calls whose price is not known"


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "flame",
        description="Show where the time, the tokens or the money of a run went.",
        epilog=(
            "example: treefold flame last --by tokens\n\n"
            "A line for each call: when it ran, or which part of the whole it spent; how much it\n"
            "took with all below it; and in brackets how much of that is its own.\n\n"
            "exit codes: 0 it was shown, 2 it was not found"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_node_to(parser, "RUN")
    parser.add_argument("--by", choices=get_args(By), default="time", help="what is counted")
    parser.add_argument("--depth", metavar="N", type=depth, help="show calls this far down only")
    add_store_to(parser)
    add_json_to(parser)
    parser.set_defaults(command=flame)


def flame(options: argparse.Namespace) -> int:
    """Print where what *options* name went."""
    with opened(options) as observer:
        view = observer.get_view(node_id(observer, options.node))
    found = data.flame(view, options.by)
    if options.depth is not None:
        found["frames"] = [one for one in found["frames"] if one["depth"] <= options.depth]
    if options.json:
        print_json(found)
        return DONE
    known = "" if found["complete"] else _UNKNOWN
    print(f"{_amount(found['total'], options.by)} in all{known}")
    print("\n".join(_lines(found["frames"], options.by, columns())))
    return DONE


def _lines(frames: Iterable[Mapping[str, Any]], by: By, room: int) -> Iterable[str]:
    width = max(_LEAST, room // _SHARE)
    for frame in frames:
        amount = _amount(frame["value"], by)
        if frame["own"] != frame["value"]:
            amount += f" ({_amount(frame['own'], by)})"
        indent = "  " * frame["depth"]
        line = f"{_bar(frame, width)}  {indent}{frame['path']} {frame['fn']}  {amount}"
        yield cut(line, room)


def _bar(frame: Mapping[str, Any], width: int) -> str:
    """Return a bar that is where the frame is; one that has no width to be seen is a stroke."""
    begin = min(width - 1, int(frame["start"] * width))
    end = min(width, max(begin, round((frame["start"] + frame["width"]) * width)))
    bar = "█" * (end - begin) if end > begin and frame["width"] else "▏"
    return f"{' ' * begin}{bar}".ljust(width)


def _amount(value: Any, by: By) -> str:
    if by == "time":
        return duration(value)
    return f"{value:,} tokens" if by == "tokens" else f"${value}"
