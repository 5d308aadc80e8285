"""``treefold export``: a run as a file of its own."""

import argparse
import json
import os
import sys
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

from treefold.cli.exit_codes import DONE
from treefold.cli.journal import add_node_to, add_store_to, journal_path, opened, run_id
from treefold.cli.ps import questions_by_run
from treefold.core.errors import InvalidValueError
from treefold.runtime.observer import Observer
from treefold.stores.private_file import write_file
from treefold.version import __version__
from treefold.views import data
from treefold.views.liveness import up_to_date
from treefold.views.values import encodable


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "export",
        description="Write a run into a file of its own, which only you can read.",
        epilog=(
            "example: treefold export last --json run.json --tree run.jsonl\n\n"
            "The page needs nothing else, and can be given to others; it holds all that was said.\n"
            "A tree can be taken into another journal, and be replayed. What is in the file is\n"
            "replaced.\n\n"
            "exit codes: 0 it was written, 2 it was not"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_node_to(parser, "RUN")
    parser.add_argument("--html", metavar="FILE", help="write a page to look at; - prints it")
    parser.add_argument("--json", metavar="FILE", help="write all there is to be said; - prints it")
    parser.add_argument(
        "--tree", metavar="FILE", help="write what another journal can take in; - prints it"
    )
    add_store_to(parser)
    parser.set_defaults(command=export)


def export(options: argparse.Namespace) -> int:
    """Write the run that *options* name."""
    if not (options.html or options.json or options.tree):
        raise InvalidValueError("say what to write: --html FILE, --json FILE or --tree FILE")
    with opened(options) as observer:
        run = run_id(observer, options.node)
        if options.html or options.json:
            _write_data(options, _run(options, observer, run))
    if options.tree == "-":
        with TemporaryDirectory() as folder:
            path = os.path.join(folder, "tree")
            _write_tree(options, run, path)
            with open(path, encoding="utf-8") as lines:
                sys.stdout.writelines(lines)
    elif options.tree:
        _write_tree(options, run, options.tree)
    return DONE


def _write_tree(options: argparse.Namespace, run: int, path: str) -> None:
    from treefold.stores import SqliteStore, export_tree  # noqa: PLC0415 - who wants none

    store = SqliteStore(journal_path(options))
    try:
        export_tree(store, run, path)
    finally:
        store.close()


def _run(options: argparse.Namespace, observer: Observer, run: int) -> dict[str, Any]:
    name = encodable(os.path.basename(journal_path(options)))
    journal = {"name": name, "driven": False, "version": __version__}
    row = next(tree for tree in observer.trees() if tree.id == run)
    view = up_to_date(observer, observer.get_view(run))
    return data.run(view, row, questions_by_run(observer)[run], journal)


def _write_data(options: argparse.Namespace, found: dict[str, Any]) -> None:
    if options.html:
        from treefold.views.html import page  # noqa: PLC0415 - who wants none

        _write(options.html, page(found))
    if options.json:
        _write(options.json, json.dumps(found) + "\n")


def _write(path: str, text: str) -> None:
    if path == "-":
        print(text, end="")
    else:
        write_file(path, [text.encode()])
