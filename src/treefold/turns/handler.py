"""How the handler of a named tool is called: with all arguments as one dict."""

import inspect
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

from treefold.core.parameter import JsonSchema
from treefold.core.parameters import REST, Parameters
from treefold.core.signature import Kind, Signature
from treefold.runtime.threads import in_thread
from treefold.turns.shorthand import read_shorthand


class HandlerSignature(Signature):
    """One parameter takes all arguments; others may ask for what the framework fills in."""

    def __init__(
        self, owner: str, handler: Callable[..., Any], written: JsonSchema, *, lock: bool
    ) -> None:
        super().__init__(owner, handler)
        self._written = written
        self._is_sync = Kind.of(handler) is Kind.SYNC
        # A thread that was given up works on, when others may have the tool's own lock.
        self._alone: AbstractContextManager[Any] = threading.Lock() if lock else nullcontext()

    @cached_property
    def parameters(self) -> Parameters:
        return read_shorthand(self._owner, self._written)

    @staticmethod
    def values(arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return what ``call`` and the rest want to be given for *arguments*."""
        return {REST: arguments}

    def with_defaults(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {**values[REST], **{name: values[name] for name in values if name != REST}}

    def call(self, values: Mapping[str, Any]) -> Any:
        injected = dict(values)
        arguments = injected.pop(REST)
        if self._is_sync:
            return self._in_thread(arguments, injected)
        return self._fn(arguments, **injected)

    async def _in_thread(self, arguments: Mapping[str, Any], injected: Mapping[str, Any]) -> Any:
        given_up = False

        def work() -> Any:
            with self._alone:
                return None if given_up else self._fn(arguments, **injected)

        try:
            value = await in_thread(work)
        finally:
            given_up = True
        return await value if inspect.isawaitable(value) else value  # of a wrapper, perhaps
