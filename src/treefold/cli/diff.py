"""``treefold diff``: what is different between two runs."""

import argparse
from collections.abc import Callable, Iterator
from typing import Any, Final

from treefold.cli.exit_codes import DONE, FAILED
from treefold.cli.journal import HOW, add_store_to, node_id, opened
from treefold.cli.output import add_json_to, columns, print_json
from treefold.core.views import NodeView
from treefold.views import data
from treefold.views.difference import Pair, pairs_of
from treefold.views.liveness import up_to_date
from treefold.views.text import cut, printable

_ROWS: Final = {"function": "fn", "inputs": "args", "values": None, "transcript": None}


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "diff",
        description="Lay two runs, or two calls, beside each other and show what is different.",
        epilog=(
            "example: treefold diff 1.1 1.2\n\n"
            "Calls belong together that are of the same function with the same arguments, and\n"
            "then those of the same function in their order. Times, tokens, money and the order\n"
            "of calls are not looked at.\n\n"
            "exit codes: 0 they are the same, 1 they differ, 2 one was not found"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("a", metavar="A", help=HOW)
    parser.add_argument("b", metavar="B", help="the same")
    parser.add_argument("--other", metavar="FILE", help="the journal of B, if it is in another")
    add_store_to(parser)
    add_json_to(parser)
    parser.set_defaults(command=diff)


def diff(options: argparse.Namespace) -> int:
    """Print what is different between the calls that *options* name."""
    a = _found(options, options.a)
    if options.other is not None:
        options.store = options.other
    b = _found(options, options.b)
    if options.json:
        found = data.difference(a, b)
        print_json(found)
        return DONE if found["same"] else FAILED
    same, different = 0, 0
    for pair in pairs_of(a, b):
        if pair.same:
            same += 1
            continue
        different += 1
        for line in _lines(pair):
            print(cut(line, columns()))
    print(f"{different} calls differ, {same} are the same")
    return FAILED if different else DONE


def _found(options: argparse.Namespace, name: str) -> NodeView:
    with opened(options) as observer:
        return up_to_date(observer, observer.get_view(node_id(observer, name)))


def _lines(pair: Pair) -> Iterator[str]:
    if pair.a is None or pair.b is None:
        view, sign = (pair.b, "+") if pair.a is None else (pair.a, "-")
        assert view is not None  # there is one of them
        yield f"{sign} {_name(view)}({data.arguments(view.inputs)})"
        return
    yield f"~ {_name(pair.a)} / {pair.b.path}: {', '.join(pair.changed)}"
    for what in pair.changed:
        for sign, shown in zip("-+", _shown(what, pair.a, pair.b), strict=True):
            yield f"  {sign} {shown}"


def _shown(what: str, a: NodeView, b: NodeView) -> tuple[str, str]:
    """Return on a line each what changed."""
    if what == "transcript":
        return _first_apart(a, b)
    if what == "values":
        return f"{len(a.values)} values", f"{len(b.values)} values"
    name = _ROWS.get(what, what)
    one, other = data.row(a, None)[name or what], data.row(b, None)[name or what]
    return f"{what}: {one or 'none'}", f"{what}: {other or 'none'}"


def _first_apart(a: NodeView, b: NodeView) -> tuple[str, str]:
    """Return the first part of each transcript that the other does not have."""
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
