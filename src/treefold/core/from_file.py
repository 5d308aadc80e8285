"""A value that stands in a file."""

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FromFile:
    """An argument, or a prompt, that is read from a file when the call runs.

    The file is text in UTF-8. What the call was given, and its views, name the file and not what is
    in it.

    Example:
        >>> from treefold import CodeFunction, FromFile, Runtime
        >>> def count(ctx, text: str) -> int:
        ...     return len(text.split())
        >>> with Runtime() as runtime:
        ...     node = runtime.invoke(CodeFunction(callable=count), {"text": FromFile("LICENSE")})
        ...     node.result() > 100, node.inputs
        (True, {'text': FromFile(path='LICENSE')})
    """

    path: str | os.PathLike[str]
