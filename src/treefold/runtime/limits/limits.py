"""How many requests to models may be under way at the same time, and how many in a minute."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, TypeVar, cast

from treefold.core.errors import InvalidValueError
from treefold.core.provider import Provider
from treefold.core.rate import Rate
from treefold.runtime.limits.allowances import LocalAllowances
from treefold.runtime.limits.slots import SlotPool

T = TypeVar("T")

_ALL: Final = "*"


class Limits:
    """Bounds on how many requests to models are under way at the same time, or sent in a minute.

    Several runtimes may share one object; runtimes without one share a default of 8 requests.
    ``cluster_requests`` and ``rates`` hold for all processes that share the store of a journal, if
    all are given the same; without such a store they hold for the runtimes that share this object.
    Their patterns are those of a shell, for names of models; a request falls under every pattern
    that matches.

    Args:
        concurrent_requests: the limit for all providers together, in this process.
        per_provider: a further limit for each provider in it.
        cluster_requests: the limit for all processes together; or one for each pattern.
        rates: how much may be sent in a minute, for each pattern.

    Example:
        >>> from treefold import Limits, Provider, Rate, Runtime
        >>> with Runtime(limits=Limits(2, per_provider={Provider.Anthropic: 1})) as runtime:
        ...     runtime.limits.concurrent_requests
        2
        >>> limits = Limits(cluster_requests={"anthropic:*": 3, "*": 7}, rates={"*": Rate(rpm=50)})
        >>> limits.slots_for("openai:gpt-6.1-sol")
        {'*': 7}
    """

    def __init__(
        self,
        concurrent_requests: int = 8,
        *,
        per_provider: Mapping[Provider, int] | None = None,
        cluster_requests: int | Mapping[str, int] | None = None,
        rates: Mapping[str, Rate] | None = None,
    ) -> None:
        if not isinstance(per_provider, Mapping | None):
            raise InvalidValueError(f"per_provider goes by Provider: not {per_provider!r}")
        if unknown := [name for name in per_provider or {} if name not in list(Provider)]:
            raise InvalidValueError(f"per_provider goes by Provider, which {unknown} are not")
        together = {
            f"cluster_requests[{pattern!r}]": size
            for pattern, size in _by_pattern(cluster_requests).items()
        }
        sizes = {"concurrent_requests": concurrent_requests, **(per_provider or {}), **together}
        for name, size in sizes.items():
            if not isinstance(size, int) or size < 1:
                raise InvalidValueError(f"{name}={size!r} would let no request through")
        _check_rates(rates)
        self.concurrent_requests = concurrent_requests
        self.cluster_requests = _by_pattern(cluster_requests)
        self.rates = dict(rates or {})
        self.pool = SlotPool(concurrent_requests)
        self.pools = {Provider(name): SlotPool(size) for name, size in (per_provider or {}).items()}
        self.local = LocalAllowances()

    def slots_for(self, model: str) -> dict[str, int]:
        """Return the limits of all processes that a request to *model* falls under."""
        return _matching(self.cluster_requests, model)

    def rates_for(self, model: str) -> dict[str, Rate]:
        """Return the rates that a request to *model* falls under."""
        return _matching(self.rates, model)


def _by_pattern(given: int | Mapping[str, int] | None) -> dict[str, int]:
    if given is None:
        return {}
    return dict(given) if isinstance(given, Mapping) else {_ALL: given}


def _check_rates(rates: object) -> None:
    given = cast("Mapping[Any, Any]", rates) if isinstance(rates, Mapping) else {None: rates}
    if rates is not None and not all(
        isinstance(pattern, str) and isinstance(rate, Rate) for pattern, rate in given.items()
    ):
        raise InvalidValueError(
            "rates map patterns of model names to rates, as in {'anthropic:*': Rate(rpm=50)}; got"
            f" {rates!r}"
        )


def _matching(limits: Mapping[str, T], model: str) -> dict[str, T]:
    # In one order, in which nothing that waits for each other can hold each other up.
    return {name: limits[name] for name in sorted(limits) if fnmatchcase(model, name)}


DEFAULT_LIMITS = Limits()
