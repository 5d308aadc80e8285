"""The source of a function in a form that only changes with what it does.

It is made from the syntax tree, not from the text or the bytecode: comments, docstrings and layout
do not count, and it is the same in every version of Python.
"""

import ast
import inspect
import os
import warnings
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, Final, cast

from treefold.core.signature import underlying

_LAMBDA: Final = "<lambda>"
# Fields that say how something is written (u"..."), or follow from the place where it is.
_LEFT_OUT: Final = frozenset({"kind", "ctx", "type_comment"})
_UNREADABLE: Final = (OSError, TypeError, SyntaxError, ValueError, IndexError, RecursionError)


def normalized_source(fn: Callable[..., Any], made_at: float) -> str | None:
    """Return the source of *fn*, or None if it is not available.

    A source file that was changed after *made_at* has the source of another function.
    """
    found = underlying(fn)
    code = cast("CodeType | None", getattr(found, "__code__", None))
    if code is None or _was_changed(code.co_filename, made_at):
        return None
    try:
        definitions = _lambdas(found, code) if code.co_name == _LAMBDA else _block(found, code)
        return "".join(part for one in definitions for part in _normalized(one)) or None
    # Depending on what is missing, the modules ast, inspect and tokenize raise any of these.
    except _UNREADABLE:
        return None


def _was_changed(path: str, made_at: float) -> bool:
    try:
        return os.stat(path).st_mtime > made_at
    # A cell of a notebook, or a file in a zip archive.
    except (OSError, ValueError):
        return False


def _block(fn: Callable[..., Any], code: CodeType) -> list[ast.AST]:
    """Return the definition of a named function, parsed without the rest of its file."""
    lines, _ = inspect.getsourcelines(fn)
    text = "".join(lines)
    # A nested function is indented. Without that, its texts of several lines would change.
    is_nested = text[:1].isspace()
    [first] = _parsed(f"if True:\n{text}" if is_nested else text).body
    definition = cast("ast.If", first).body[0] if is_nested else first
    is_function = isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef)
    return [definition] if is_function and definition.name == code.co_name else []


def _lambdas(fn: Callable[..., Any], code: CodeType) -> list[ast.AST]:
    """Return the lambda expressions in the line of one: they may be parts of a long statement."""
    lines, _ = inspect.findsource(fn)
    nodes = ast.walk(_parsed("".join(lines)))
    return [n for n in nodes if isinstance(n, ast.Lambda) and n.lineno == code.co_firstlineno]


def _parsed(text: str) -> ast.Module:
    with warnings.catch_warnings():
        # They were given when the program was compiled.
        warnings.simplefilter("ignore")
        return ast.parse(text)


def _normalized(node: ast.AST) -> Iterator[str]:
    """Yield the syntax tree below *node*, without empty fields: newer Pythons have more of them."""
    yield f"({type(node).__name__}"
    for name, value in ast.iter_fields(node):
        if name in _LEFT_OUT or value is None or value == []:
            continue
        yield f" {name}="
        items = cast("list[Any]", value if isinstance(value, list) else [value])
        if name == "body" and _has_docstring(node):
            items = items[1:]
        if isinstance(node, ast.JoinedStr):
            items = _joined(items)
        for item in items:
            if isinstance(item, ast.AST):
                yield from _normalized(item)
            else:
                # Not !r: which characters that escapes depends on the version of Unicode.
                yield f"{item!a},"
    yield ")"


def _has_docstring(node: ast.AST) -> bool:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    return ast.get_docstring(node, clean=False) is not None


def _joined(items: list[Any]) -> list[Any]:
    """Return the parts of an f-string, with the texts between two fields in one piece."""
    joined: list[Any] = []
    for item in items:
        text = item.value if isinstance(item, ast.Constant) else None
        last = joined[-1] if joined else None
        if isinstance(text, str) and isinstance(last, ast.Constant) and isinstance(last.value, str):
            joined[-1] = ast.Constant(last.value + text)
        elif text != "":
            joined.append(item)
    return joined
