"""The base of the providers' models."""

import os
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from decimal import Decimal
from importlib import import_module
from types import ModuleType
from typing import ClassVar, Final, Self
from urllib.parse import urlsplit

from treefold.core.errors import DefinitionError, InvalidValueError, UsageError
from treefold.core.exchange import Exchange
from treefold.core.function import Function
from treefold.core.model import Model, ModelSettings
from treefold.core.provider import Provider
from treefold.core.usage import TokenUsage
from treefold.models.attempt import Endpoint
from treefold.models.dialect import Dialect
from treefold.models.profiles import Profile, profile_of
from treefold.models.retry import Retry, Timers
from treefold.models.secret import Secret, public_url
from treefold.models.session import WireSession

# As glibc and musl name a library that they do not find.
_SHARED_LIBRARY: Final = re.compile(r"\b(lib[\w+.-]*\.so[\d.]*)")
# Fields of ``ModelSettings.extra`` that may allow longer answers than ``max_tokens``.
_LENGTH_FIELDS: Final = frozenset({"max_tokens", "max_completion_tokens", "generationConfig"})
_SYSTEM_PACKAGES: Final = {
    "libgomp.so.1": "Debian and Ubuntu: apt install libgomp1; Fedora: dnf install libgomp;"
    " Alpine: apk add libgomp",
}


class WireModel(Model):
    """A model that is reached over HTTP.

    Attributes:
        key_names: environment variables that may hold the key.
        url_name: the environment variable that may hold the base URL.
        servers: base URLs by the names that *base_url* accepts for them.
        sdk: the module of the provider's SDK.
        caller: what to choose instead of a model that cannot call functions, in words.
        price: returns the price of one request in US dollars; None for the price list.
    """

    provider: Provider
    key_names: ClassVar[tuple[str, ...]]
    url_name: ClassVar[str]
    servers: ClassVar[Mapping[str, str]] = {}
    sdk: ClassVar[str] = ""
    caller: ClassVar[str] = "a model that can"

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
        self.base_url = self._checked_url(base_url or os.environ.get(self.url_name) or None)
        self._has_explicit_url = base_url is not None
        self.profile = profile or profile_of(self.provider, model)
        self.retry = retry or Retry()
        self.timers = timers or Timers()
        self.price = price
        self._api_key = None if api_key is None else Secret(api_key)

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return f"{self.provider}:{self.model}"

    @property
    def address(self) -> str:
        return "" if self.base_url is None else public_url(self.base_url)

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
            raise InvalidValueError(f"settings must be a ModelSettings, got {settings!r}")
        return WireSession(
            self._create_dialect(system, functions, settings),
            self.endpoint(),
            self.retry,
            self.timers,
            exchanges,
            provider=type(self).__name__,
            sdk=self.sdk,
        )

    def check(self, functions: Sequence[Function]) -> None:
        self._create_dialect("", functions, ModelSettings())

    @property
    def calls_functions(self) -> bool:
        return self.profile.calls_functions

    def without_retries(self) -> Self:
        other = copy(self)
        other.retry = Retry(())
        return other

    @property
    def context_window(self) -> int | None:
        return self.profile.context_window

    def longest_answer(self, settings: ModelSettings) -> int | None:
        profile, sent = self.profile, settings.max_tokens or self.profile.max_tokens
        if _LENGTH_FIELDS & settings.extra.keys():
            sent = None  # what is sent instead is not ours
        known = [one for one in (sent, profile.longest_answer) if one is not None]
        return min(known, default=None)

    def _create_dialect(
        self, system: str, functions: Sequence[Function], settings: ModelSettings
    ) -> Dialect:
        """Return the dialect; it requests a result by a schema if the model cannot call.

        Raises:
            DefinitionError: the model cannot call functions, and there are some.
        """
        dialect = self.dialect(system, functions, settings)
        if self.calls_functions:
            return dialect
        if uncallable := [one.name for one in functions if one.answer_schema is None]:
            raise DefinitionError(
                f"{self.name} cannot call functions, and this uses {', '.join(uncallable)}: choose"
                f" {self.caller}, or leave out 'uses' ('tools' in a chat)"
            )
        return dialect if dialect.answer_schema is None else dialect.without_functions()

    def _checked_url(self, url: str | None) -> str | None:
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
                "base_url must not contain a user name or a password: set a header instead,"
                " profile=replace(profile, headers={'Authorization': ...})"
            )
        return url.rstrip("/")

    @abstractmethod
    def dialect(
        self, system: str, functions: Sequence[Function], settings: ModelSettings
    ) -> Dialect:
        """Return the message format for a session with this model."""

    @abstractmethod
    def endpoint(self) -> Endpoint:
        """Return the server for the requests of a session."""

    def use_key(self, api_key: str) -> None:
        """Use this key from now on."""
        self._api_key = Secret(api_key)

    @property
    def key_name(self) -> str:
        """The environment variable that holds the key; empty if the key is not read from one."""
        return "" if self._api_key is not None else self.key_names[0]

    def key(self) -> Secret:
        """Return the key.

        Raises:
            UsageError: no key is set.
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


def required_package(module: str, requirement: str, extra: str, needed_by: str) -> ModuleType:
    """Import and return a provider's package; it is slow to load, so only on first use.

    Raises:
        UsageError: the package is not installed, or cannot be imported.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(package_is_missing(requirement, extra, needed_by)) from error
    except ImportError as error:
        raise UsageError(_package_is_broken(module, requirement, error)) from error


def package_is_missing(requirement: str, extra: str, needed_by: str) -> str:
    """Return how to install the package of a provider; *extra* is the extra that has it."""
    return (
        f"{needed_by} needs a package that is not installed: pip install '{requirement}'"
        f" (it is in 'treefold[{extra}]')"
    )


def _package_is_broken(module: str, requirement: str, error: ImportError) -> str:
    """Return why a package that is installed cannot be imported, and what to do."""
    library = _SHARED_LIBRARY.search(str(error))
    if library is None:
        return (
            f"{module} is installed, but cannot be imported ({error}):"
            f" pip install --force-reinstall '{requirement}'"
        )
    how = "the system's package manager"
    if command := _SYSTEM_PACKAGES.get(library[1]):
        how += f" ({command})"
    return (
        f"{module} is installed, but needs the shared library {library[1]}, which this system does"
        f" not have ({error}): install it with {how}"
    )
