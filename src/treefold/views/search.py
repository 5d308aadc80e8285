"""Full-text search in the calls of a tree."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from treefold.core.transcript import ModelText, ThinkingPart, ToolResult, ToolUse, UserText
from treefold.core.truncation import truncated_repr
from treefold.core.views import NodeView

_LONGEST: Final = 1000  # characters of the repr of a number or another object


def search(view: NodeView, text: str) -> list[int]:
    """Return the ids of the calls in *view* that contain *text*, ignoring case; callers first.

    Searches names, inputs, results, exceptions and transcripts.

    Example:
        >>> from treefold import CodeFunction, Runtime
        >>> def greet(ctx, name: str) -> str:
        ...     return f"Hello, {name}!"
        >>> with Runtime() as runtime:
        ...     node = runtime.invoke(CodeFunction(callable=greet), {"name": "Ada"})
        ...     _ = node.result()
        ...     [search(runtime.get_view(node.id), text) for text in ("hello, ada", "Grace")]
        [[1], []]
    """
    wanted = text.casefold()
    ids: list[int] = []
    views = [view]
    while wanted and views:
        one = views.pop()
        if any(wanted in candidate.casefold() for candidate in _texts_of(one)):
            ids.append(one.id)
        views.extend(reversed(one.children))
    return ids


def _texts_of(view: NodeView) -> Iterator[str]:
    yield view.fn
    yield view.system
    if view.exception is not None:
        yield str(view.exception)
    for value in (view.inputs, view.outputs, view.values):
        yield from _texts_in(value)
    for part in view.transcript:
        match part:
            case ToolUse():
                yield part.name
                yield from _texts_in(part.args)
            case ToolResult():
                yield part.content
            case UserText() | ModelText() | ThinkingPart():
                yield part.text


def _texts_in(value: Any) -> Iterator[str]:
    """Yield all texts in *value*, at any depth, keys of mappings included."""
    values = [value]
    while values:
        one = values.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping):
            mapping = cast("Mapping[Any, Any]", one)
            values.extend([*mapping.values(), *mapping])
        elif isinstance(one, list | tuple | set | frozenset):
            values.extend(cast("list[Any]", one))
        else:
            yield truncated_repr(one, _LONGEST)
