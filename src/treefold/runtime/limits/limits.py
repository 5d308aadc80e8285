"""How many requests to models may be under way at the same time."""

from collections.abc import Mapping

from treefold.core.errors import InvalidValueError
from treefold.core.provider import Provider
from treefold.runtime.limits.slots import SlotPool


class Limits:
    """Bounds on how many requests to models are under way at the same time.

    Several runtimes may share one object; runtimes without one share a default of 8 requests.

    Args:
        concurrent_requests: the limit for all providers together.
        per_provider: a further limit for each provider in it.

    Example:
        >>> from treefold import Limits, Provider, Runtime
        >>> with Runtime(limits=Limits(2, per_provider={Provider.Anthropic: 1})) as runtime:
        ...     runtime.limits.concurrent_requests
        2
    """

    def __init__(
        self, concurrent_requests: int = 8, *, per_provider: Mapping[Provider, int] | None = None
    ) -> None:
        if not isinstance(per_provider, Mapping | None):
            raise InvalidValueError(f"per_provider goes by Provider: not {per_provider!r}")
        if unknown := [name for name in per_provider or {} if name not in list(Provider)]:
            raise InvalidValueError(f"per_provider goes by Provider, which {unknown} are not")
        sizes = {"concurrent_requests": concurrent_requests, **(per_provider or {})}
        for name, size in sizes.items():
            if not isinstance(size, int) or size < 1:
                raise InvalidValueError(f"{name}={size!r} would let no request through")
        self.concurrent_requests = concurrent_requests
        self.pool = SlotPool(concurrent_requests)
        self.pools = {Provider(name): SlotPool(size) for name, size in (per_provider or {}).items()}


DEFAULT_LIMITS = Limits()
