"""The HTTP server that the viewer and the MCP server share.

``address`` parses addresses, ``tokens`` makes and checks tokens, ``guard`` checks the token, Host
and Origin of each request, ``connections`` limits connections without a token, and ``serving`` runs
an ASGI application on a socket. All but ``address`` and ``tokens`` need Starlette and uvicorn.
"""
