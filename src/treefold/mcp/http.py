"""Serve the SDK's server over streamable HTTP."""

from collections.abc import Callable
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings

from treefold.http_server.guard import AccessPolicy, Guard, Hosts
from treefold.http_server.serving import listen, serve_on, url_of


async def serve_http(
    server: Server[Any], host: str, port: int, token: str, on_ready: Callable[[str], None]
) -> None:
    """Serve *server* at /mcp until cancelled; call *on_ready* with the URL when it is reachable.

    Raises:
        UsageError: the address is not available.
    """
    # The guard checks Host and Origin; the SDK's own check would be off for any but loopback hosts.
    unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = server.streamable_http_app(host=host, transport_security=unchecked)
    policy = AccessPolicy(
        token,
        Hosts(host),
        wrong_host="the Host header is not a name of this MCP server; use the address that it"
        " printed, or serve at the name that clients use",
        wrong_origin="requests from web pages of another origin are refused",
        wrong_token="the token is missing or wrong; send the header 'Authorization: Bearer TOKEN'"
        " with the token of 'treefold mcp' or serve(token=...)",
    )
    with listen(host, port) as listening:
        url = f"{url_of(listening, host)}/mcp"
        await serve_on(listening, Guard(app, policy), lambda: on_ready(url))
