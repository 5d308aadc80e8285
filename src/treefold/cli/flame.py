"""``treefold flame``: show where the time, the tokens or the money of a run went."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, get_args

import click

from treefold.cli.exit_codes import DONE
from treefold.cli.journal import node_id, observe
from treefold.cli.options import command, depth_option, json_option, node_argument, store_option
from treefold.cli.output import columns, duration, print_json
from treefold.core.truncation import truncate
from treefold.views import data
from treefold.views.flame import By
from treefold.views.liveness import up_to_date

_BAR_SHARE: Final = 3  # bars take one third of the columns
_NARROWEST_BAR: Final = 10  # columns
_INCOMPLETE: Final = ", without calls whose price is not known"


@command("flame", exit_codes="0 it was shown, 2 it was not found")
@node_argument("RUN")
@click.option("--by", type=click.Choice(get_args(By)), default="time", help="what is counted")
@depth_option
@store_option
@json_option
def flame(node: str, by: By, depth: int | None, store: str | None, *, json: bool) -> int:
    """Show where the time, the tokens or the money of a run went.

    example: treefold flame last --by tokens

    A line for each call: when it ran, or its share of the whole; how much it took with all calls
    below it; and in brackets how much of that is its own.
    """
    with observe(store) as observer:
        view = up_to_date(observer, observer.get_view(node_id(observer, node)))
    found = data.flame(view, by)
    if depth is not None:
        found["frames"] = [one for one in found["frames"] if one["depth"] <= depth]
    if json:
        print_json(found)
        return DONE
    known = "" if found["complete"] else _INCOMPLETE
    print(f"{_amount(found['total'], by)} in all{known}")
    print("\n".join(_lines(found["frames"], by, columns())))
    return DONE


def _lines(frames: Iterable[Mapping[str, Any]], by: By, room: int) -> Iterable[str]:
    width = max(_NARROWEST_BAR, room // _BAR_SHARE)
    for frame in frames:
        amount = _amount(frame["value"], by)
        if frame["own"] != frame["value"]:
            amount += f" ({_amount(frame['own'], by)})"
        indent = "  " * frame["depth"]
        line = f"{_bar(frame, width)}  {indent}{frame['path']} {frame['fn']}  {amount}"
        yield truncate(line, room)


def _bar(frame: Mapping[str, Any], width: int) -> str:
    """Return a bar at the position of the frame; one too narrow to be seen is a stroke."""
    begin = min(width - 1, int(frame["start"] * width))
    end = min(width, max(begin, round((frame["start"] + frame["width"]) * width)))
    bar = "█" * (end - begin) if end > begin and frame["width"] else "▏"
    return f"{' ' * begin}{bar}".ljust(width)


def _amount(value: Any, by: By) -> str:
    if by == "time":
        return duration(value)
    return f"{value:,} tokens" if by == "tokens" else f"${value}"
