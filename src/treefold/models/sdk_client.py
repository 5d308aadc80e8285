"""The SDKs of OpenAI and Anthropic, which have the same structure: both are built on httpx2."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from ssl import SSLContext
from typing import Any

import httpx2

from treefold.models.http_pool import Target
from treefold.models.secret import Secret, public_url


@dataclass(frozen=True, slots=True)
class SdkClient:
    """A client class of an SDK, and the server that it connects to."""

    package: Any
    name: str
    base_url: str | None  # None: the provider's own server
    path: str
    headers: Mapping[str, str]

    @property
    def address(self) -> str:
        return public_url(self.base_url) if self.base_url else self.name.removeprefix("Async")

    @property
    def identity(self) -> Hashable:
        return (self.name, self.base_url, self.path, tuple(self.headers.items()))

    def target(self, key: Secret) -> Target:
        # The client sends no requests, so it needs no connections or certificates.
        unused = httpx2.AsyncClient(transport=httpx2.AsyncBaseTransport(), trust_env=False)
        client = getattr(self.package, self.name)(
            api_key=key.reveal(), base_url=self.base_url, http_client=unused
        )
        headers = {**client.default_headers, **client.auth_headers, **self.headers}
        # Headers of httpx2 merge names that differ in case only.
        joined = httpx2.Headers({k: v for k, v in headers.items() if isinstance(v, str)})
        url = httpx2.URL(f"{str(client.base_url).rstrip('/')}/{self.path}")
        return Target(str(url), dict(joined), _trusted())

    def error(
        self, status: int, text: str, body: Any, headers: Mapping[str, str], target: Target
    ) -> Exception:
        request = httpx2.Request("POST", target.url, headers=dict(target.headers))
        response = httpx2.Response(status, headers=dict(headers), text=text, request=request)
        raised: Exception = self.package.APIStatusError(
            f"HTTP {status}", response=response, body=body
        )
        return raised


@cache
def _trusted() -> SSLContext:
    """Return the trusted certificates, cached: loading them takes longer than making a client."""
    return httpx2.create_ssl_context()
