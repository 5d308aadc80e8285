"""``treefold stack``: show the calls that lead to what runs now, as a debugger does."""

from collections.abc import Iterator

from treefold.cli.exit_codes import DONE
from treefold.cli.journal import node_id, observe, warn_if_not_driven
from treefold.cli.options import command, json_option, node_argument, store_option
from treefold.cli.output import columns, print_json
from treefold.core.frames import agent_traceback
from treefold.core.truncation import truncate
from treefold.core.views import NodeView
from treefold.views import data
from treefold.views.text import printable


@command("stack", exit_codes="0 it was shown, 2 it was not found")
@node_argument("RUN")
@store_option
@json_option
def stack(node: str, store: str | None, *, json: bool) -> int:
    """Show the calls from the top-level call through a call to what it waits for.

    example: treefold stack last

    A line for each call, the one that runs now last: its function, its path, its arguments, and
    the progress of an agent. If several run at the same time, each has a stack of its own; --json
    has every call once, after its caller. For a run that has ended, the call itself is the last.
    """
    with observe(store) as observer:
        view = observer.get_view(node_id(observer, node))
        stacks = [observer.stack(call) for call in _innermost(view)]
        if json:
            frames = {frame.node_id: frame for frames in stacks for frame in frames}
            print_json([data.frame(frame) for frame in frames.values()])
            return DONE
        width = columns()
        for line in "\n\n".join(map(agent_traceback, stacks)).split("\n"):
            print(truncate(printable(line), width))
        if not view.state.final:
            warn_if_not_driven(observer)
    return DONE


def _innermost(top: NodeView) -> Iterator[int]:
    """Yield the calls from *top* down that wait for no other call, in the order of calls."""
    views = [top]
    while views:
        view = views.pop()
        below = [child for child in view.children if not child.state.final]
        views.extend(reversed(below))
        if not below:
            yield view.id
