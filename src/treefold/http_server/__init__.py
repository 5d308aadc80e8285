"""What the viewer and the MCP server share to answer HTTP requests.

``address`` parses addresses, ``tokens`` makes and checks tokens, ``guard`` checks the token, Host
and Origin of each request, ``connections`` limits connections without a token, and ``serving`` runs
an ASGI application on a socket. All but ``address`` and ``tokens`` need Starlette and uvicorn.
"""
