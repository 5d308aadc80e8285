"""The HTTP server that the viewer and the MCP server share, and that of health checks.

``address`` parses addresses, ``tokens`` makes and checks tokens, ``guard`` checks the token, Host
and Origin of each request, ``connections`` limits connections without a token, and ``serving`` runs
an ASGI application on a socket: these need Starlette and uvicorn. ``probes`` serves a few small
pages from a thread.
"""
