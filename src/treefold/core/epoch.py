"""Where the requests of a conversation begin, and why they do not begin with all that was said."""

from treefold.core.fact import Fact


class Epoch(Fact, frozen=True):
    """What holds for all requests of a conversation until it is opened with another epoch.

    In an epoch requests only grow by appending. It begins with the system prompt, then come the
    texts of the head, and then whole exchanges.

    Attributes:
        why: what began it, in words; empty for the first.
        since: the number of the first response that is sent; those before it are left out.
        head: texts that stand for what is left out; there are some if anything is.
        bare: the number of the last response that is sent without its thinking: the last there was
            when the epoch began. Providers bind thinking to all that preceded it when it was
            written, and refuse it after anything else.
        window: how many tokens the model takes, as far as it was known when it began.

    Example:
        >>> from treefold.events import Epoch
        >>> Epoch(why="compaction", since=31, head=("Count.", "So far ..."), bare=38).since
        31
    """

    why: str = ""
    since: int = 1
    head: tuple[str, ...] = ()
    bare: int = 0
    window: int | None = None


FIRST = Epoch()
