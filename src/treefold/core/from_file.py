"""``FromFile``: an argument or prompt that is read from a file."""

import os
from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class FromFile:
    """An argument or prompt that is read from a file when the call runs.

    The file must be UTF-8 text. The inputs of the call and its views show the path of the file, not
    its contents.

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
