"""Which calls of a tree mention a text."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from treefold.core.frames import shortened
from treefold.core.transcript import ModelText, ThinkingPart, ToolResult, ToolUse, UserText
from treefold.core.views import NodeView

_LONGEST: Final = 1000  # characters of a number, or of what is no plain data


def found(view: NodeView, text: str) -> list[int]:
    """Return the ids of *view* and all below it that mention *text*, whichever case it is in.

    Looked through are names, inputs, results, exceptions and transcripts; callers come before what
    they called.

    Example:
        >>> from treefold import CodeFunction, Runtime
        >>> def greet(ctx, name: str) -> str:
        ...     return f"Hello, {name}!"
        >>> with Runtime() as runtime:
        ...     node = runtime.invoke(CodeFunction(callable=greet), {"name": "Ada"})
        ...     _ = node.result()
        ...     [found(runtime.get_view(node.id), text) for text in ("hello, ada", "Grace")]
        [[1], []]
    """
    wanted = text.casefold()
    ids: list[int] = []
    views = [view]
    while wanted and views:
        one = views.pop()
        if any(wanted in said.casefold() for said in _said(one)):
            ids.append(one.id)
        views.extend(reversed(one.children))
    return ids


def _said(view: NodeView) -> Iterator[str]:
    yield view.fn
    yield view.system
    if view.exception is not None:
        yield str(view.exception)
    for value in (view.inputs, view.outputs, view.values):
        yield from _texts(value)
    for part in view.transcript:
        match part:
            case ToolUse():
                yield part.name
                yield from _texts(part.args)
            case ToolResult():
                yield part.content
            case UserText() | ModelText() | ThinkingPart():
                yield part.text
            case _:
                pass


def _texts(value: Any) -> Iterator[str]:
    """Give all that is written in *value*, names of fields included, however deep it is."""
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
            yield shortened(one, _LONGEST)
