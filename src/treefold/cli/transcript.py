"""``treefold transcript``: what a call and its model said to each other."""

import argparse
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from treefold.cli.exit_codes import DONE
from treefold.cli.journal import add_node_to, add_store_to, node_id, opened
from treefold.cli.output import add_json_to, columns, print_json
from treefold.core.views import NodeView
from treefold.views import data
from treefold.views.text import cut, printable, readable, short

_MOST: Final = 10  # other calls that are named


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "transcript",
        description="Show what an agent was told, thought, said and called.",
        epilog=(
            "example: treefold transcript 1.1 --thinking\n\n"
            "A call that the model asked for, and its result, have the id of its node.\n\n"
            "exit codes: 0 it was shown, also if nothing was said, 2 it was not found"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_node_to(parser)
    parser.add_argument("--thinking", action="store_true", help="show all that the model thought")
    add_store_to(parser)
    add_json_to(parser)
    parser.set_defaults(command=transcript)


def transcript(options: argparse.Namespace) -> int:
    """Print the conversation of the call that *options* name."""
    with opened(options) as observer:
        view = observer.get_view(node_id(observer, options.node))
    parts = data.transcript(view, limit=None)
    if options.json:
        print_json(parts)
        return DONE
    names = {part["id"]: part["name"] for part in parts if part["kind"] == "call"}
    for part in parts:
        print("\n".join(_lines(part, names, thinking=options.thinking)))
    if view.partial:
        print(f"── model, not at its end yet\n{readable(view.partial)}")
    if not parts and not view.partial:
        print(_nothing_said(view))
    return DONE


def _lines(part: Mapping[str, Any], names: Mapping[str, str], *, thinking: bool) -> Iterator[str]:
    text = readable(part["text"])
    match part["kind"]:
        case "system" | "user" as who:
            yield from (f"── {who}", text)
        case "text":
            yield from ("── model", text)
        case "thinking" if part["redacted"]:
            yield "── thinking, which only the provider can read"
        case "thinking" if thinking:
            yield from ("── thinking", text)
        case "thinking":
            length = f"  ({part['length']:,} characters; see --thinking)"
            yield cut(f"── thinking: {printable(part['text'])}", columns() - len(length)) + length
        case "call":
            yield _call(part)
        case _:
            came = "what went wrong in" if part["error"] else "result of"
            yield f"── {came} {printable(names.get(part['id'], part['id']))}{_node(part)}"
            yield text


def _call(part: Mapping[str, Any]) -> str:
    if part["fault"] is not None:
        return f"── call {printable(part['name'])}, not made: {printable(part['fault'])}"
    args = ", ".join(f"{printable(name)}={short(v, 200)}" for name, v in part["args"].items())
    return f"── call {printable(part['name'])}({args}){_node(part)}"


def _node(part: Mapping[str, Any]) -> str:
    return "" if part["node"] is None else f"  node {part['node']}"


def _nothing_said(view: NodeView) -> str:
    told = f"{printable(view.fn)} (node {view.id}) has said nothing to a model"
    found: list[str] = []
    stack = [view]
    while stack and len(found) < _MOST:
        one = stack.pop()
        stack.extend(reversed(one.children))
        if one.transcript:
            found.append(one.path)
    return f"{told}; these below it have: {', '.join(found)}" if found else told
