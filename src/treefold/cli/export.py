"""``treefold export``: write a run to a file of its own."""

import json
import os
import sys
from collections.abc import Mapping
from contextlib import closing, suppress
from tempfile import TemporaryDirectory
from typing import Any

import click

from treefold.cli.exit_codes import DONE
from treefold.cli.journal import journal_path, observe, run_id
from treefold.cli.options import FILE, command, node_argument, store_option
from treefold.core.errors import InvalidValueError, StoreError, UnknownNodeError
from treefold.core.json_values import encodable
from treefold.runtime.observe.observer import Observer
from treefold.stores.opening import open_store
from treefold.stores.private_file import write_file
from treefold.stores.urls import public_name
from treefold.version import __version__
from treefold.views import data
from treefold.views.fork_plan import shared_calls
from treefold.views.liveness import open_questions, up_to_date


@command("export", exit_codes="0 it was written, 2 it was not")
@node_argument("RUN")
@click.option(
    "--html", "html_file", type=FILE, metavar="FILE", help="write a web page; - prints it"
)
@click.option(
    "--json", "json_file", type=FILE, metavar="FILE", help="write all data as JSON; - prints it"
)
@click.option(
    "--tree", "tree_file", type=FILE, metavar="FILE", help="write it for import; - prints it"
)
@store_option
def export(
    node: str,
    html_file: str | None,
    json_file: str | None,
    tree_file: str | None,
    store: str | None,
) -> int:
    """Write a run to a file of its own, which only you can read.

    example: treefold export last --json run.json --tree run.jsonl

    The page needs no other file and can be given to others; it has all that was said. A tree can
    be imported into another journal, and be replayed. An existing file is replaced.
    """
    if not (html_file or json_file or tree_file):
        raise InvalidValueError("say what to write: --html FILE, --json FILE or --tree FILE")
    with observe(store) as observer:
        run = run_id(observer, node)
        if html_file or json_file:
            found = exported(observer, run, journal_path(store))
            if html_file:
                _write(html_file, _page(found))
            if json_file:
                _write(json_file, json.dumps(found) + "\n")
    if tree_file == "-":
        with TemporaryDirectory() as folder:
            path = os.path.join(folder, "tree")
            _write_tree(journal_path(store), run, path)
            with open(path, encoding="utf-8") as lines:
                sys.stdout.writelines(lines)
    elif tree_file:
        _write_tree(journal_path(store), run, tree_file)
    return DONE


def exported(observer: Observer, run: int, path: str) -> dict[str, Any]:
    """Return the data of a web page with one run."""
    name = encodable(os.path.basename(public_name(path)))
    journal = {"name": name, "driven": False, "version": __version__}
    row, source = observer.tree(run), None
    view = up_to_date(observer, observer.get_view(run))
    shared: Mapping[int, int] = {}
    if row.source:
        with suppress(UnknownNodeError, StoreError):  # the source may have been deleted
            source = observer.tree(row.source).number
            shared = shared_calls(view, observer.get_view(row.source))
    asked = sum(map(len, open_questions(observer, view).values()))
    return data.run(view, row, asked, journal, shared, source=source)


def _page(found: dict[str, Any]) -> str:
    from treefold.views.html import page  # noqa: PLC0415 - only --html needs it

    return page(found)


def _write_tree(journal: str, run: int, path: str) -> None:
    from treefold.stores import export_tree  # noqa: PLC0415 - only --tree needs it

    with closing(open_store(journal, create=False)) as store:
        export_tree(store, run, path)


def _write(path: str, text: str) -> None:
    if path == "-":
        print(text, end="")
    else:
        write_file(path, [text.encode()])
