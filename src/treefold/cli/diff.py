"""``treefold diff``: show the differences between two runs."""

from collections.abc import Iterator
from typing import Any, Final

import click

from treefold.cli.exit_codes import DONE, FAILED
from treefold.cli.journal import node_id, observe
from treefold.cli.options import FILE, NODE_HELP, command, json_option, store_option
from treefold.cli.output import columns, print_json
from treefold.core.truncation import truncate
from treefold.core.views import NodeView
from treefold.views import data
from treefold.views.difference import Pair, pairs_of
from treefold.views.liveness import up_to_date
from treefold.views.text import printable

_ROWS: Final = {"function": "fn", "inputs": "args", "values": None, "transcript": None}


@command("diff", exit_codes="0 they are the same, 1 they differ, 2 one was not found")
@click.argument("a", metavar="A", help=NODE_HELP)
@click.argument("b", metavar="B", help="the same")
@click.option("--other", type=FILE, metavar="FILE", help="the journal of B, if it is another one")
@store_option
@json_option
def diff(a: str, b: str, other: str | None, store: str | None, *, json: bool) -> int:
    """Compare two runs, or two calls, and show the differences.

    example: treefold diff 1.1 1.2

    Calls of the same function with the same arguments are compared with each other, then the
    other calls of the same function in their order. Times, tokens, money and the order of calls
    are ignored.
    """
    first = _view(store, a)
    second = _view(store if other is None else other, b)
    if json:
        found = data.difference(first, second)
        print_json(found)
        return DONE if found["same"] else FAILED
    same, different = 0, 0
    for pair in pairs_of(first, second):
        if pair.same:
            same += 1
            continue
        different += 1
        for line in _lines(pair):
            print(truncate(line, columns()))
    differ = "call differs" if different == 1 else "calls differ"
    print(f"{different} {differ}, {same} {'is' if same == 1 else 'are'} the same")
    return FAILED if different else DONE


def _view(store: str | None, name: str) -> NodeView:
    with observe(store) as observer:
        return up_to_date(observer, observer.get_view(node_id(observer, name)))


def _lines(pair: Pair) -> Iterator[str]:
    if pair.a is None or pair.b is None:
        view, sign = (pair.b, "+") if pair.a is None else (pair.a, "-")
        assert view is not None  # a pair has at least one
        yield f"{sign} {_name(view)}({data.arguments(view.inputs)})"
        return
    yield f"~ {_name(pair.a)} / {pair.b.path}: {', '.join(pair.changed)}"
    for what in pair.changed:
        for sign, shown in zip("-+", _shown(what, pair.a, pair.b), strict=True):
            yield f"  {sign} {shown}"


def _shown(what: str, a: NodeView, b: NodeView) -> tuple[str, str]:
    """Return *what* changed, as one line for each of the two."""
    if what == "transcript":
        return _first_difference(a, b)
    if what == "values":
        return f"{len(a.values)} values", f"{len(b.values)} values"
    name = _ROWS.get(what, what)
    one, other = data.row(a, None)[name or what], data.row(b, None)[name or what]
    return f"{what}: {one or 'none'}", f"{what}: {other or 'none'}"


def _first_difference(a: NodeView, b: NodeView) -> tuple[str, str]:
    """Return the first part in which the transcripts differ, of each of the two."""
    one, other = (list(map(_said, data.transcript(view, limit=None))) for view in (a, b))
    index = next(
        (at for at, (x, y) in enumerate(zip(one, other, strict=False)) if x != y),
        min(len(one), len(other)),
    )
    shown = [parts[index] if index < len(parts) else "(its end)" for parts in (one, other)]
    return f"part {index}: {shown[0]}", f"part {index}: {shown[1]}"


def _said(part: dict[str, Any]) -> str:
    name = f" {part['name']}" if part["kind"] == "call" else ""
    return printable(f"{part['kind']}{name}: {part['text']}")


def _name(view: NodeView) -> str:
    return f"{view.path} {printable(view.fn)}"
