"""Parts of a cluster of which a test replaces a method."""

from typing import Any


class WrappedPart:
    """Does what another part does, but for the methods that a subclass has."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)
