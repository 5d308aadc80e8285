"""``treefold view``: look at the runs in a browser."""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Final

from treefold.cli.browser import open_page
from treefold.cli.exit_codes import DONE
from treefold.cli.journal import add_store_to, opened
from treefold.views.web.server import EVERYWHERE, LOOPBACK, PORT, Viewer

_WARNING: Final = (
    "treefold view: other machines can reach this. Anyone with the token can read all that is in"
    " the journal (prompts, files, results), and answer, cancel and fork. Nothing is encrypted:"
    " whoever can listen on the network sees the token. A tunnel is safer:"
    " ssh -L {port}:localhost:{port}"
)


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "view",
        description=(
            "Serve a page that shows the runs of a journal, live, and open it in a browser.\n"
            "What is asked for there (answers, pauses, forks) is done by the program that drives\n"
            "the journal."
        ),
        epilog=(
            "example: treefold view --store run.db\n\n"
            "Only this machine can reach the page, and only with the token in the address that\n"
            "is printed. It is served until Ctrl-C.\n\n"
            "exit codes: 0 it was closed, 2 nothing was served, 130 it was interrupted"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_store_to(parser)
    parser.add_argument(
        "--port",
        metavar="N",
        type=int,
        help=f"0 takes any that is free; otherwise {PORT}, or the next that is free",
    )
    parser.add_argument(
        "--host",
        metavar="ADDRESS",
        help=f"where to serve; otherwise {LOOPBACK}, this machine alone",
    )
    parser.add_argument(
        "--public",
        action="store_true",
        help="let other machines reach it, at every address of this one unless --host is given",
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Serve the journal that *options* name."""
    host = options.host or (EVERYWHERE if options.public else LOOPBACK)
    with opened(options) as observer:
        viewer = Viewer(observer, host, options.port, public=options.public)
        viewer.serve(partial(_say_so, viewer, options))
    return DONE


def _say_so(viewer: Viewer, options: argparse.Namespace) -> None:
    if viewer.is_public:
        port = viewer.address.rpartition(":")[2]
        print(_WARNING.format(port=port), file=sys.stderr)
    print("treefold view: Ctrl-C ends it", file=sys.stderr, flush=True)
    print(viewer.url, flush=True)
    if not options.no_browser:
        open_page(viewer.url)
