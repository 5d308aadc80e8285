"""Requests are checked by token, Host and Origin, and every response has the security headers."""

import platform
import socket
from urllib.parse import urlsplit

import httpx
import pytest

from treefold.http_server.guard import Hosts
from treefold.views.web import Viewer

READ = [
    "/api/journal",
    "/api/trees",
    "/api/stream",
    "/api/stream?tree=1",
    "/api/nodes/1",
    "/api/nodes/2/parts/0",
    "/api/nodes/1/stack",
    "/api/trees/1/flame",
    "/api/difference?a=1&b=1",
    "/api/search?tree=1&q=sea",
    "/api/questions",
    "/api/forks/key",
    "/api/",
    "/api/nothing",
]
ASK = [
    "/api/questions/9-1",
    "/api/nodes/9/pause",
    "/api/nodes/9/cancel",
    "/api/nodes/9/resume",
    "/api/nodes/9/fork",
]
NO_TOKEN = {
    "error": "the token is missing or wrong; open the address that the viewer printed, token"
    " included"
}
NO_HOST = {"error": "the Host header is not a name of this viewer; use the address that it printed"}
NO_ORIGIN = {"error": "requests from other origins are refused; use the viewer's own page"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)


def test_nothing_is_told_or_done_without_the_token(viewer: Viewer):
    with httpx.Client(base_url=viewer.address) as stranger:
        for path in READ:
            refused = stranger.get(path)
            assert (refused.status_code, refused.json()) == (401, NO_TOKEN), path
            assert refused.headers["www-authenticate"] == "Bearer"
        for path in ASK:
            refused = stranger.post(path, json={})
            assert (refused.status_code, refused.json()) == (401, NO_TOKEN), path


def test_only_the_token_itself_will_do(viewer: Viewer):
    token = viewer.token
    good = [f"Bearer {token}", f"bearer  {token}"]
    bad = [
        "",
        "Bearer",
        token,
        f"Basic {token}",
        f"Bearer {token[:-1]}",
        f"Bearer {token}x",
        f"Bearer {token} {token}",
        f"Bearer {token.swapcase()}",
        "Bearer \xff\xfe",
    ]
    with httpx.Client(base_url=viewer.address) as someone:
        for said in good:
            headers = {"authorization": said}
            assert someone.get("/api/journal", headers=headers).status_code == 200
        for said in bad:
            headers = [(b"authorization", said.encode("latin-1"))]
            refused = someone.get("/api/journal", headers=headers)
            assert (refused.status_code, refused.json()) == (401, NO_TOKEN), said
        twice = [("authorization", good[0]), ("authorization", good[0])]
        assert someone.get("/api/journal", headers=twice).status_code == 401
        assert someone.get(f"/api/journal?token={token}").status_code == 401
        assert someone.get("/api/journal", headers={"cookie": f"token={token}"}).status_code == 401


def test_every_viewer_has_a_token_of_its_own(viewer: Viewer):
    other = Viewer(viewer._observer)  # pyright: ignore[reportPrivateUsage]
    assert len(viewer.token) >= 43  # 256 bits
    assert viewer.token != other.token
    assert viewer.url == f"{viewer.address}/#token={viewer.token}"


def test_a_name_that_leads_here_by_dns_is_not_answered(client: httpx.Client, viewer: Viewer):
    port = urlsplit(viewer.address).port
    for host in [
        f"evil.example:{port}",
        "evil.example",
        f"127.0.0.1.evil.example:{port}",
        f"localhost.evil.example:{port}",
        f"evil-localhost:{port}",
        f"127.0.0.1@evil.example:{port}",
        f"evil.example#127.0.0.1:{port}",
        f"evil.example/127.0.0.1:{port}",
        f"192.168.0.1:{port}",
        f"0.0.0.0:{port}",
        f"[::2]:{port}",
        f"127.0.0.1:{port}:{port}",
        "127.0.0.1:",
        "127.0.0.1:x",
        "[::1",
        "",
    ]:
        for path in "/", "/assets/app.js", "/api/journal", "/api/stream":
            refused = client.get(path, headers={"host": host})
            assert (refused.status_code, refused.json()) == (403, NO_HOST), (host, path)
    for host in [
        f"127.0.0.1:{port}",
        f"localhost:{port}",
        f"LOCALHOST:{port}",
        f"[::1]:{port}",
        "localhost",
        "localhost:9000",  # by a tunnel
    ]:
        assert client.get("/api/journal", headers={"host": host}).status_code == 200, host


def test_a_request_that_says_no_host_or_two_is_not_answered(viewer: Viewer):
    where = urlsplit(viewer.address)
    own = f"Host: 127.0.0.1:{where.port}\r\n"
    authorized = f"Authorization: Bearer {viewer.token}\r\n"
    for line, hosts, status in [
        ("GET /api/journal HTTP/1.0", "", b"403"),
        ("GET /api/journal HTTP/1.1", "", b"400"),
        ("GET /api/journal HTTP/1.1", own + own, b"400"),
        ("GET /api/journal HTTP/1.0", own + own, b"400"),
        ("GET http://evil.example/api/journal HTTP/1.1", own, b"404"),
        ("GET /api/journal HTTP/1.1", own, b"200"),
    ]:
        with socket.create_connection(("127.0.0.1", where.port or 0), timeout=20) as raw:
            raw.sendall(f"{line}\r\n{hosts}{authorized}Connection: close\r\n\r\n".encode())
            assert raw.makefile("rb").readline().split()[1] == status, (line, hosts)


def test_pages_of_others_may_ask_for_nothing(client: httpx.Client, viewer: Viewer):
    port = urlsplit(viewer.address).port or 0
    for origin in [
        "http://evil.example",
        "null",
        "",
        "file://",
        f"https://127.0.0.1:{port}",
        f"http://127.0.0.1:{port + 1}",
        f"http://localhost:{port}",  # which is another origin than the one of the Host
        "http://127.0.0.1",
        f"http://127.0.0.1:{port}.evil.example",
        f"{viewer.address}/",
    ]:
        headers = {"origin": origin}
        for path in "/", "/api/journal", "/api/stream":
            refused = client.get(path, headers=headers)
            assert (refused.status_code, refused.json()) == (403, NO_ORIGIN), (origin, path)
        assert client.post("/api/nodes/1/cancel", headers=headers, json={}).status_code == 403
        asked = {**headers, "access-control-request-method": "POST"}
        assert client.options("/api/nodes/1/cancel", headers=asked).status_code == 403
    both = [("origin", viewer.address), ("origin", "http://evil.example")]
    assert client.get("/api/journal", headers=both).status_code == 403
    own = {"origin": viewer.address}
    assert client.get("/api/journal", headers=own).status_code == 200
    assert client.post("/api/nodes/9/pause", headers=own, json={}).status_code == 404
    allowed = client.options("/api/nodes/1/cancel", headers=own)
    assert allowed.status_code == 405
    assert not [name for name in allowed.headers if name.startswith("access-control")]


def test_every_answer_says_what_a_browser_may_do_with_it(client: httpx.Client, viewer: Viewer):
    answers = [
        client.get("/"),
        client.get("/nothing"),
        client.get("/api/journal"),
        client.get("/api/nodes/9"),
        client.post("/api/nodes/1/pause", content=b"{"),
        client.delete("/api/journal"),
        client.get("/api/journal", headers={"host": "evil.example"}),
        httpx.get(f"{viewer.address}/api/journal"),
        client.head("/api/stream"),
    ]
    with client.stream("GET", "/api/stream") as stream:
        answers.append(stream)
    for answer in answers:
        told = answer.headers
        assert told["content-security-policy"] == POLICY
        assert told["x-content-type-options"] == "nosniff"
        assert told["referrer-policy"] == "no-referrer"
        assert told["x-frame-options"] == "DENY"
        assert told["cross-origin-resource-policy"] == "same-origin"
        assert told["cross-origin-opener-policy"] == "same-origin"
        assert "server" not in told
        if answer is not answers[0]:
            assert told["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("bound", "known", "unknown"),
    [
        ("127.0.0.1", ["127.0.0.1:1"], ["192.168.0.1", "box.lan", "evil.example"]),
        ("192.168.0.1", ["192.168.0.1:1", "localhost"], ["192.168.0.2", "evil.example"]),
        ("Box.lan", ["box.lan:4747", "BOX.LAN"], ["192.168.0.2", "evil.example"]),
        ("fe80::1", ["[fe80::1]:4747"], ["[fe80::2]", "fe80::1"]),
        (
            "0.0.0.0",
            ["192.168.0.2:1", "[fe80::2]", f"{platform.node()}:1", f"{platform.node()}.local"],
            ["evil.example", "192.168.0.2.evil.example", "1"],
        ),
        ("::", ["192.168.0.2:1", "[fe80::2]"], ["evil.example"]),
    ],
)
def test_names_are_those_of_the_address_that_is_bound(
    bound: str, known: list[str], unknown: list[str]
):
    hosts = Hosts(bound)
    assert [host for host in known if not hosts.has(host)] == []
    assert [host for host in unknown if hosts.has(host)] == []
