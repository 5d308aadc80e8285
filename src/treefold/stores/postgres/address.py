"""The URL of a journal: how to connect, which schema it is in, and what may be shown of it."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from treefold.core.errors import InvalidValueError

log = logging.getLogger(__name__)

TIMEOUT: Final = 10.0  # seconds
DEFAULT_SCHEMA: Final = "treefold"
_MAX_NAME: Final = 63  # bytes that PostgreSQL keeps of a name
_SCHEMA: Final = "schema"
_VERIFIED: Final = "verify-full"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a journal is.

    Attributes:
        parameters: for libpq, the password included.
        schema: the schema of the database that has the tables.
        name: the URL without anything secret, for messages.
        timeout: seconds without a reply after which a connection counts as lost.
    """

    parameters: Mapping[str, str]
    schema: str
    name: str
    timeout: float = TIMEOUT

    def __repr__(self) -> str:
        return f"Address({self.name})"


def parse_url(url: str) -> Address:
    """Return the address that a ``postgresql://`` URL names.

    Unless the URL says otherwise, a server on another machine has to prove who it is.

    Raises:
        InvalidValueError: it is not a valid URL.
    """
    plain, schema = _split_schema(url)
    try:
        # A parameter without a value is the same as none.
        given = {name: str(value) for name, value in conninfo_to_dict(plain).items() if value}
    except psycopg.Error:
        # PostgreSQL's message may quote the part with the password.
        raise InvalidValueError(
            "store is not a valid URL of PostgreSQL: write it as"
            " postgresql://user:password@host:5432/database, with special characters as %40"
        ) from None
    name = _public_name(given, schema)
    return Address({**given, **_encryption(given, name)}, schema, name)


def connection_string(url: str) -> str:
    """Return how other clients, such as a work engine, connect to the database of a journal."""
    return make_conninfo(**parse_url(url).parameters)


def _split_schema(url: str) -> tuple[str, str]:
    """Return *url* without its parameter ``schema``, which libpq does not know, and the schema."""
    # urlsplit would lose the slashes of a URL without a host.
    base, _, parameters = url.partition("?")
    query = parse_qsl(parameters, keep_blank_values=True)
    named = [value for key, value in query if key == _SCHEMA]
    schema = named[-1] if named else DEFAULT_SCHEMA
    if not schema or len(schema.encode()) > _MAX_NAME or not schema.isprintable():
        raise InvalidValueError(
            f"schema in the URL of a store must be a name of at most {_MAX_NAME} bytes, got"
            f" {schema!r}"
        )
    rest = "&".join(f"{quote(key)}={quote(value)}" for key, value in query if key != _SCHEMA)
    return f"{base}?{rest}" if rest else base, schema


def _public_name(given: Mapping[str, str], schema: str) -> str:
    user = f"{quote(given['user'])}@" if "user" in given else ""
    hosts = given.get("host", given.get("hostaddr", "")).split(",")
    ports = given.get("port", "").split(",")
    ports += ports[-1:] * (len(hosts) - len(ports))
    located = ",".join(
        quote(host, safe="[]:" if ":" in host else "") + (f":{port}" if port else "")
        for host, port in zip((_bracketed(host) for host in hosts), ports, strict=False)
    )
    named = "" if schema == DEFAULT_SCHEMA else f"?{urlencode({_SCHEMA: schema})}"
    return f"postgresql://{user}{located}/{quote(given.get('dbname', ''))}{named}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("/") else host


def _encryption(given: Mapping[str, str], name: str) -> dict[str, str]:
    """Return the parameters that make libpq verify a server on another machine."""
    if is_local(given):
        return {}
    chosen = given.get("sslmode") or os.environ.get("PGSSLMODE")
    if chosen not in {None, _VERIFIED}:
        log.warning(
            "%s: with sslmode=%s another machine could pretend to be this server and read what is"
            " written; leave sslmode out, or say sslmode=%s",
            name,
            chosen,
            _VERIFIED,
        )
        return {}
    if chosen is None and ("service" in given or "PGSERVICE" in os.environ):
        # Its file may have any settings, and its author knows the server.
        return {}
    needed = {"sslmode": _VERIFIED}
    known = "sslrootcert" in given or "PGSSLROOTCERT" in os.environ
    if not known and not Path("~/.postgresql/root.crt").expanduser().exists():
        needed["sslrootcert"] = "system"
    return needed


def is_local(given: Mapping[str, str]) -> bool:
    """Whether libpq connects to this machine only: through a socket, or the loopback interface."""
    found = given.get("hostaddr") or os.environ.get("PGHOSTADDR")
    found = found or given.get("host") or os.environ.get("PGHOST", "")
    return all(_is_loopback(host) for host in found.split(","))


def _is_loopback(host: str) -> bool:
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
