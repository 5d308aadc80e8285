"""What the models of all providers have in common."""

import os
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar
from urllib.parse import urlsplit

from ramify.core.errors import InvalidValueError, UsageError
from ramify.core.exchange import Exchange
from ramify.core.function import Function
from ramify.core.model import Model, ModelSettings
from ramify.core.provider import Provider
from ramify.core.usage import TokenUsage
from ramify.models.attempt import Endpoint
from ramify.models.dialect import Dialect
from ramify.models.profiles import Profile, profile_of
from ramify.models.retry import Retry, Timers
from ramify.models.secret import Secret, public_url
from ramify.models.session import WireSession


@dataclass(frozen=True, slots=True)
class SdkClient:
    """Which client of which package talks to a model, and where."""

    package: Any
    name: str
    base_url: str | None  # None: where the provider itself is
    path: str
    headers: Mapping[str, str]

    @property
    def address(self) -> str:
        """Where that is, without secrets."""
        return public_url(self.base_url) if self.base_url else self.name.removeprefix("Async")

    @property
    def identity(self) -> Hashable:
        """What two sessions must agree in to share a client."""
        return (self.name, self.base_url, self.path, tuple(self.headers.items()))

    def make(self, key: Secret, http_client: Any) -> Any:
        """Return the client itself; retrying is not its business."""
        return getattr(self.package, self.name)(
            api_key=key.reveal(), base_url=self.base_url, max_retries=0, http_client=http_client
        )


class WireModel(Model):
    """A model that is reached over HTTP."""

    provider: Provider
    key_names: ClassVar[tuple[str, ...]]  # environment variables that may hold the key
    url_name: ClassVar[str]  # the one that may hold the address
    servers: ClassVar[Mapping[str, str]] = {}  # addresses that have a name

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        profile: Profile | None = None,
        retry: Retry | None = None,
        timers: Timers | None = None,
        price: Callable[[TokenUsage], Decimal | None] | None = None,
    ) -> None:
        self.model = model
        self.base_url = self._address(base_url or os.environ.get(self.url_name) or None)
        self._was_told_where = base_url is not None
        self.profile = profile or profile_of(self.provider, model)
        self.retry = retry or Retry()
        self.timers = timers or Timers()
        self.price = price  # of one request in US dollars, where the price list does not know
        self._api_key = None if api_key is None else Secret(api_key)

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return f"{self.provider}:{self.model}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def open(
        self,
        system: str = "",
        functions: Sequence[Function] = (),
        settings: ModelSettings | None = None,
        *,
        exchanges: Sequence[Exchange] = (),
    ) -> WireSession:
        settings = ModelSettings() if settings is None else settings
        if not isinstance(settings, ModelSettings):
            raise InvalidValueError(f"settings are a ModelSettings(...), not {settings!r}")
        dialect = self.dialect(system, functions, settings)
        return WireSession(
            dialect,
            self.endpoint(),
            self.retry,
            self.timers,
            exchanges,
            provider=type(self).__name__,
        )

    def check(self, functions: Sequence[Function]) -> None:
        self.dialect("", functions, ModelSettings())

    def _address(self, url: str | None) -> str | None:
        if url is None:
            return None
        url = self.servers.get(url.lower(), url)
        if not _is_usable(url):
            names = f", nor one of {', '.join(self.servers)}" if self.servers else ""
            raise InvalidValueError(
                f"base_url {url!r} is not an address such as http://localhost:8080/v1{names}"
            )
        if "@" in urlsplit(url).netloc:
            raise InvalidValueError(
                "an address with a name and a password in it is not used: give a header instead,"
                " profile=replace(profile, headers={'Authorization': ...})"
            )
        return url.rstrip("/")

    @abstractmethod
    def dialect(
        self, system: str, functions: Sequence[Function], settings: ModelSettings
    ) -> Dialect:
        """Return how a session with this model is written down."""

    @abstractmethod
    def endpoint(self) -> Endpoint:
        """Return where its requests go."""

    def use_key(self, api_key: str) -> None:
        """Use this key from now on."""
        self._api_key = Secret(api_key)

    def key(self) -> Secret:
        """Return the key.

        Raises:
            UsageError: there is none.
        """
        if self._api_key is not None:
            return self._api_key
        for name in self.key_names:
            if value := os.environ.get(name):
                return Secret(value)
        raise UsageError(f"{self.name} needs a key: set {self.key_names[0]}, or give api_key=")


def _is_usable(url: str) -> bool:
    """Whether requests can be sent to *url*."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(host)


def required_package(module: str, requirement: str) -> ModuleType:
    """Import a provider's package: slow, so on first use.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(f"a package is missing: pip install '{requirement}'") from error
