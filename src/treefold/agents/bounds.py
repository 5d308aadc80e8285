"""Bounds the results that a model gets at once; what is left out, it reads piece by piece.

The whole result stays the value of the call, in the tree and in the journal.
"""

from collections.abc import Mapping
from typing import Any, Final

from treefold.agents.prompts import as_text
from treefold.core.compaction import Compaction
from treefold.core.conversation import AgentConversation
from treefold.core.decisions import HOOK_POST_TOOL_USE
from treefold.core.errors import InvalidArgumentsError
from treefold.core.events import Failure
from treefold.core.fact import replace
from treefold.core.function import FEWEST_CHARS, Function, Node, RunContext
from treefold.core.parameter import Parameter
from treefold.core.parameters import Parameters
from treefold.core.transcript import ToolResult, ToolUse
from treefold.core.truncation import truncate_middle

MOST: Final = 100_000  # characters of one result
READ_RESULT: Final = "read_result"

_BYTES_PER_TOKEN: Final = 4  # about
_PART: Final = 0.25  # of the window, for one result
# With compaction, the room that is left is for the results of so many steps.
_STEPS: Final = 10
_SPARED: Final = 0.8  # of that room; the rest is for what the model writes

_LEFT_OUT: Final = "\n[... {left:,} of {total:,} characters are left out ...]\n"
_READ_ON: Final = (
    "\n[... {left:,} of {total:,} characters are left out here;"
    ' read_result(call="{path}", start={start}) returns them ...]\n'
)
_PAGE: Final = "[characters {start:,} to {end:,} of {total:,}]\n"
_BEFORE: Final = 200  # characters before what was searched for
_DESCRIPTION: Final = """\
Read a part of the result of an earlier call, of which only the beginning and the end were shown."""


class Bounds:
    """How much one call of an agent shows of the results of its calls.

    Attributes:
        has_cut: whether anything was left out.
    """

    def __init__(self, conversation: AgentConversation, compaction: Compaction | None) -> None:
        self._conversation = conversation
        self._compaction = compaction
        self._room: int | None = None  # bytes of a result; None: any number
        self.has_cut = False

    def share(self, count: int) -> None:
        """Let *count* results, those of one response, have the room together."""
        window = self._conversation.window
        if window is None:
            return
        room = window * _PART
        if (compaction := self._compaction) is not None:
            steps = self._conversation.responses - self._conversation.epoch.bare
            free = compaction.at * window - self._conversation.size(())
            room = min(room, free * _SPARED / max(1, _STEPS - steps))
        self._room = max(0, round(room * _BYTES_PER_TOKEN / count))

    def limit(self, function: Function | None, text: str) -> int:
        """Return how many characters a result of *function* may have, if it is like *text*."""
        own = None if function is None else function.max_result_chars
        most = MOST if own is None else min(MOST, own)
        room = self._room
        if room is None:
            return most
        if not text.isascii():
            room = room * len(text) // len(text.encode(errors="replace"))
        return min(most, max(FEWEST_CHARS, room))

    def shortened(self, result: ToolResult, node: Node) -> ToolResult:
        """Return *result*, that of *node*, in the room that there is for it by now."""
        limit = self.limit(node.function, result.content)
        if len(result.content) <= limit:
            return result
        if isinstance(node.function, ReadResult):  # the model knows how to read on
            return replace(result, content=_cut(result.content, limit, _LEFT_OUT, ""))
        text = self.told_instead(node)
        if text is None:
            text = result.content if result.is_error else as_text(node.outputs)
        return replace(result, content=self.cut(text, node))

    def told_instead(self, node: Node) -> str | None:
        """Return what a hook has had the model told instead of the result of *node*, or None."""
        id, decisions = node.tool_use_id, self._conversation.decisions
        found = [
            key
            for hook, key in decisions
            if hook == HOOK_POST_TOOL_USE and key.partition("/")[2] == id
        ]
        if not found:
            return None
        # Some providers use an id again in a later response.
        steps = [
            one.step
            for one in self._conversation.said
            for part in one.parts
            if isinstance(part, ToolUse) and part.id == id
        ]
        siblings = () if node.parent is None else node.parent.children
        nodes = [one for one in siblings if one.tool_use_id == id]
        if len(steps) == len(nodes):
            found = [f"{steps[nodes.index(node)]}/{id}"]
        # Otherwise it is not known which was replaced: what is hidden stays hidden.
        return decisions.get((HOOK_POST_TOOL_USE, found[-1]))

    def cut(self, text: str, node: Node) -> str:
        """Return *text*, the result of *node*, without its middle if it is too long."""
        limit = self.limit(node.function, text)
        if len(text) <= limit or isinstance(node.function, ReadResult):
            return text
        self.has_cut = True
        return _cut(text, limit, _READ_ON, node.path)


def bounded(text: str, node: Node) -> str:
    """Return *text*, the result of *node*, without its middle if it is too long for any model."""
    limit = node.function.max_result_chars or MOST
    return text if len(text) <= limit else _cut(text, limit, _LEFT_OUT, "")


def _cut(text: str, limit: int, note: str, path: str) -> str:
    """Return *text* in about *limit* characters, with a *note* for its middle."""
    length = len(note.format(left=len(text), total=len(text), path=path, start=len(text)))
    start = max(1, (limit - length) // 2)
    mark = note.format(left=len(text) - 2 * start, total=len(text), path=path, start=start)
    return truncate_middle(text, 2 * start, mark)


class ReadResult(Function):
    """Reads a result that was too long, page by page or from where a text occurs in it.

    Args:
        bounds: those of the call of the agent that offers it.
    """

    def __init__(self, bounds: Bounds | None = None) -> None:
        super().__init__(READ_RESULT, _DESCRIPTION, repeatable=True)
        self._bounds = bounds
        self._parameters = Parameters(
            self.name,
            [
                Parameter("call", str, description="Which call, such as 1.3"),
                Parameter("start", int, 0, "Where to begin, in characters"),
                Parameter("chars", int, MOST, "How many characters, at most"),
                Parameter("find", str, "", "Begin where this text occurs, at or after the start"),
            ],
        )

    @property
    def parameters(self) -> Parameters:
        return self._parameters

    @property
    def output_type(self) -> Any:
        return str

    async def run_call(self, ctx: RunContext, args: Mapping[str, Any]) -> Any:
        node = _call_beside(ctx.node, args["call"])
        text = None if self._bounds is None else self._bounds.told_instead(node)
        text = _result_of(node) if text is None else text
        start = max(0, args.get("start", 0))
        if wanted := args.get("find", ""):
            if (found := text.find(wanted, start)) < 0:
                return f"{wanted!r} does not occur at or after character {start:,} of {len(text):,}"
            start = max(start, found - _BEFORE)
        limit = MOST if self._bounds is None else self._bounds.limit(None, text)
        page = max(1, min(args.get("chars", MOST), limit - len(_PAGE) - _DIGITS))
        end = min(len(text), start + page)
        return _PAGE.format(start=start, end=end, total=len(text)) + text[start:end]


_DIGITS: Final = 20  # that the numbers of a page take more than their names


def _call_beside(reader: Node, path: str) -> Node:
    """Return the call beside *reader* with that *path*, which the model has asked for, too."""
    above = reader.parent
    for node in () if above is None else above.children:
        if node.path == path and node.tool_use_id is not None and node is not reader:
            return node
    raise InvalidArgumentsError(f"read_result: you have made no call {path!r}")


def _result_of(node: Node) -> str:
    """Return the whole result of *node*."""
    if (failure := node.exception) is not None:
        return str(Failure.of(failure))
    return as_text(node.outputs)
