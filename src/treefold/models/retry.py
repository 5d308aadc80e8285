"""When to retry a failed request, and how long to wait for a response."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

BACKOFF = (5.0, 10.0, 15.0, 20.0)  # seconds
LONGEST_WAIT = 300.0  # seconds; a request is not retried if the provider asks for a longer wait


@dataclass(frozen=True, slots=True)
class Retry:
    """The delay before each further attempt in seconds, and the function that waits.

    A delay that the provider asks for takes precedence, up to *longest*. *if_refused* says whether
    to try again when no server listens at the address; by default only if it is another machine.

    Example:
        >>> from treefold.models import OpenAIModel, Retry
        >>> OpenAIModel("qwen3", base_url="ollama", retry=Retry([1, 2])).retry.wait_before(2)
        2
    """

    delays: Sequence[float] = BACKOFF
    longest: float = LONGEST_WAIT
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    if_refused: bool | None = None

    def wait_before(self, attempt: int, retry_after: float | None = None) -> float | None:
        """Return the delay after attempt *attempt*, counted from 1; None for no further attempt."""
        if attempt > len(self.delays):
            return None
        if retry_after is None:
            return self.delays[attempt - 1]
        return retry_after if retry_after <= self.longest else None

    def tries_refused(self, address: str) -> bool:
        """Whether to try again when nothing listens at *address*."""
        return not is_loopback(address) if self.if_refused is None else self.if_refused


def is_loopback(address: str) -> bool:
    """Whether the URL *address* is one of this machine."""
    host = urlsplit(address).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Timers:
    """How long to wait for a response, in seconds; None for no limit.

    A response that is not complete after *total* seconds fails, and is not retried.

    Example:
        >>> from treefold.models import OpenAIModel, Timers
        >>> OpenAIModel("qwen3", base_url="ollama", timers=Timers(idle=30)).timers.first_byte
        600.0
    """

    first_byte: float | None = 600.0  # a local server may process a long prompt for minutes
    idle: float | None = 120.0  # between two chunks of a stream
    total: float | None = 3600.0  # from the request to the end of the stream
