"""``treefold transcript``: show the conversation of a call and its model."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from treefold.cli.exit_codes import DONE
from treefold.cli.journal import node_id, observe
from treefold.cli.options import command, json_option, node_argument, store_option
from treefold.cli.output import columns, print_json
from treefold.core.address import address
from treefold.core.truncation import truncate
from treefold.core.views import NodeView
from treefold.views import data
from treefold.views.text import printable, readable, short

_MOST_NAMED: Final = 10  # other calls in a message


@command("transcript", exit_codes="0 it was shown, also if nothing was said, 2 it was not found")
@node_argument()
@click.option("--thinking", is_flag=True, help="show all of the model's thinking")
@store_option
@json_option
def transcript(node: str, store: str | None, *, thinking: bool, json: bool) -> int:
    """Show the conversation of an agent and its model: prompts, thinking, answers and calls.

    example: treefold transcript 1.1 --thinking

    A call that the model requested, and its result, have the path of the call.
    """
    with observe(store) as observer:
        view = observer.get_view(node_id(observer, node))
    parts = data.transcript(view, limit=None)
    if json:
        print_json(parts)
        return DONE
    names = {part["id"]: part["name"] for part in parts if part["kind"] == "call"}
    for part in parts:
        print("\n".join(_lines(part, names, thinking=thinking)))
    if view.partial:
        print(f"── model, unfinished\n{readable(view.partial)}")
    if not parts and not view.partial:
        print(_no_conversation(view))
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
            yield (
                truncate(f"── thinking: {printable(part['text'])}", columns() - len(length))
                + length
            )
        case "call":
            yield _call(part)
        case _:
            came = "error of" if part["error"] else "result of"
            yield f"── {came} {printable(names.get(part['id'], part['id']))}{_path(part)}"
            yield text


def _call(part: Mapping[str, Any]) -> str:
    if part["fault"] is not None:
        return f"── call {printable(part['name'])}, not made: {printable(part['fault'])}"
    args = ", ".join(f"{printable(name)}={short(v, 200)}" for name, v in part["args"].items())
    return f"── call {printable(part['name'])}({args}){_path(part)}"


def _path(part: Mapping[str, Any]) -> str:
    return "" if part["path"] is None else f"  {part['path']}"


def _no_conversation(view: NodeView) -> str:
    said = f"{printable(view.fn)} ({address(view.path)}) has had no conversation with a model"
    found: list[str] = []
    stack = [view]
    while stack and len(found) < _MOST_NAMED:
        one = stack.pop()
        stack.extend(reversed(one.children))
        if one.transcript:
            found.append(one.path)
    return f"{said}; these calls below it have: {', '.join(found)}" if found else said
