"""Which thinking was issued, and after which prefix: what signatures are checked against.

A provider's signature is a code over the thinking and all that came before it. Here the servers
of a process remember instead what they have issued, so scripts may have signatures that are easy
to read, and one server knows what another has issued, as those of one provider do.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

Thought: TypeAlias = tuple[str, ...]
"""What identifies thinking: all of its content, its signature included."""


class Issued:
    """The thinking that was issued, each with the prefixes after which it was."""

    def __init__(self) -> None:
        self._prefixes: dict[Thought, set[bytes]] = {}

    def __contains__(self, thought: Thought) -> bool:
        return thought in self._prefixes

    def after(self, thought: Thought, prefix: bytes) -> bool:
        """Whether *thought* was issued after *prefix*."""
        return prefix in self._prefixes.get(thought, ())

    def note(self, thoughts: Iterable[Thought], prefix: bytes) -> None:
        """Remember that *thoughts* were issued after *prefix*."""
        for thought in thoughts:
            self._prefixes.setdefault(thought, set()).add(prefix)


ISSUED = Issued()
"""What all servers of this process have issued."""


class Prefix:
    """A digest of what stands before a place in a conversation, which grows by messages."""

    def __init__(self, *head: Any) -> None:
        self._hash = hashlib.sha256()
        for value in head:
            self.add(value)

    def add(self, value: Any) -> None:
        """Append *value*."""
        text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        self._hash.update(text.encode("utf-8", "surrogatepass") + b"\0")

    @property
    def digest(self) -> bytes:
        """The digest of all so far."""
        return self._hash.digest()


def data_of(body: bytes) -> Iterator[Any]:
    """Yield the data of each event in a streamed *body* that is JSON."""
    for line in body.splitlines():
        if line.startswith(b"data:"):
            try:
                yield json.loads(line[5:])
            except ValueError:
                continue  # scripts may stream nonsense
