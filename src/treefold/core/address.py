"""How people name runs, calls and questions: run 3, call 3.2.1. The ids of nodes are for programs.

Where only an id is known, messages have it as ``node:17``, which commands take, too.
"""


def address(path: str) -> str:
    """Return the name of the run or the call at *path*.

    Example:
        >>> address("3"), address("3.2.1")
        ('run 3', 'call 3.2.1')
    """
    return f"call {path}" if "." in path else f"run {path}"


def question_address(path: str, id: str) -> str:
    """Return what people write to answer the question *id* of the call at *path*.

    Example:
        >>> question_address("3.2", "17-1"), question_address("3.2", "17-2")
        ('3.2', '3.2:2')
    """
    number = id.partition("-")[2]
    return path if number == "1" else f"{path}:{number}"
