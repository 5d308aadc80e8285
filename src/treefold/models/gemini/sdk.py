"""The URL, the API version and the authentication, from Google's SDK."""

import os
import re
import ssl
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from treefold.core.provider import Provider
from treefold.models.http_pool import Target
from treefold.models.secret import Secret, public_url

_GATEWAY_VERSION: Final = "v1beta"
_VERSION: Final = re.compile(r"v[0-9]+((alpha|beta)[0-9]*)?")


@dataclass(frozen=True, slots=True)
class GeminiSdk:
    """Google's client, and the server and model that it connects to."""

    package: Any
    base_url: str | None  # None: Google's own server
    model: str

    @property
    def address(self) -> str:
        return public_url(self.base_url) if self.base_url else "Google"

    @property
    def identity(self) -> Hashable:
        return (Provider.Gemini, self.base_url, self.model)

    def target(self, key: Secret) -> Target:
        # The client sends no requests; by default it would load certificates three times.
        no_certificates = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        options = self.package.types.HttpOptions(
            **self._server(),
            client_args={"verify": no_certificates},
            async_client_args={"verify": no_certificates, "ssl": no_certificates},
        )
        name = self.model if "/" in self.model else f"models/{self.model}"
        path = f"{quote(name)}:streamGenerateContent?alt=sse"
        client = self.package.Client(api_key=key.reveal(), vertexai=False, http_options=options)
        # The SDK has no public way to send an encoded body, and its typed layer would rewrite
        # thought signatures.
        request = client._api_client._build_request("post", path, {}, None)
        client.close()
        return Target(request.url, request.headers)

    def _server(self) -> dict[str, str]:
        """Return the server and the API version where the SDK's defaults do not apply."""
        if self.base_url is None:
            return {}
        # The SDK's default is Google's stable version, which gateways do not serve.
        default = os.environ.get("GOOGLE_GENAI_API_VERSION") or _GATEWAY_VERSION
        root, _, last = self.base_url.rpartition("/")
        if _VERSION.fullmatch(last):
            return {"base_url": root, "api_version": last}
        return {
            "base_url": self.base_url,
            "api_version": _GATEWAY_VERSION if default == "beta" else default,
        }

    def error(
        self, status: int, text: str, body: Any, headers: Mapping[str, str], target: Target
    ) -> Exception:
        raised: Exception = self.package.errors.APIError(status, body if body is not text else {})
        return raised
