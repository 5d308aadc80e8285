"""``treefold view``: look at the runs in a browser."""

import sys
from functools import partial
from typing import Final

import click

from treefold.cli.browser import open_page
from treefold.cli.exit_codes import DONE
from treefold.cli.journal import observe
from treefold.cli.options import command, store_option
from treefold.views.web.server import EVERYWHERE, LOOPBACK, PORT, Viewer

_WARNING: Final = (
    "treefold view: other machines can reach this. Anyone with the token can read all that is in"
    " the journal (prompts, files, results), and answer, cancel and fork. Nothing is encrypted:"
    " anyone who can read the network traffic sees the token. A tunnel is safer:"
    " ssh -L {port}:localhost:{port}"
)


@command("view", exit_codes="0 it was closed, 2 nothing was served, 130 it was interrupted")
@store_option
@click.option(
    "--port",
    metavar="N",
    type=int,
    help=f"0 takes any free port; by default {PORT}, or the next free one",
)
@click.option(
    "--host", metavar="ADDRESS", help=f"where to serve; by default {LOOPBACK}, this machine only"
)
@click.option(
    "--public",
    is_flag=True,
    help="let other machines connect, at every address of this one unless --host is given",
)
@click.option("--no-browser", is_flag=True, help="only print the address")
def view(
    store: str | None, port: int | None, host: str | None, *, public: bool, no_browser: bool
) -> int:
    """Serve a page that shows the runs of a journal, live, and open it in a browser.
    Requests made there (answers, pauses, forks) are carried out by the program that drives the
    journal.

    example: treefold view --store run.db

    Only this machine can reach the page, and only with the token in the address that is printed.
    It is served until Ctrl-C.
    """
    address = host or (EVERYWHERE if public else LOOPBACK)
    with observe(store) as observer:
        viewer = Viewer(observer, address, port, public=public)
        viewer.serve(partial(_announce, viewer, open_browser=not no_browser))
    return DONE


def _announce(viewer: Viewer, *, open_browser: bool) -> None:
    if viewer.is_public:
        port = viewer.address.rpartition(":")[2]
        print(_WARNING.format(port=port), file=sys.stderr)
    print("treefold view: Ctrl-C ends it", file=sys.stderr, flush=True)
    print(viewer.url, flush=True)
    if open_browser:
        open_page(viewer.url)
