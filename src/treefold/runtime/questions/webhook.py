"""Posts JSON to a URL, in a thread."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from treefold.core.errors import InvalidValueError

_TIMEOUT: Final = 5.0  # seconds for one attempt


def checked_url(url: str) -> str:
    """Return *url* if something can be posted there.

    Raises:
        InvalidValueError: it is not a web address.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InvalidValueError(f"notify= is a function or an https:// address, not {url!r}")
    return url


def post_json(url: str, data: Mapping[str, Any]) -> None:
    """Post *data*; the answer has to be a success (2xx), and its content is not read.

    Raises:
        OSError: the server cannot be reached, or refuses it.
    """
    body = json.dumps(data).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "treefold"}
    request = urllib.request.Request(url, body, headers)
    try:
        urllib.request.urlopen(request, timeout=_TIMEOUT).close()
    except urllib.error.HTTPError as error:
        with error:
            raise OSError(f"{url} answered {error.code} {error.reason}") from None
