"""Small pages that are served from a thread."""

import socket
import urllib.error
import urllib.request

import pytest

from treefold.core.errors import UsageError
from treefold.http_server.probes import ProbePage, ProbeServer

TIMEOUT = 60.0  # seconds


def server(host: str = "127.0.0.1", port: int = 0, **options: float) -> ProbeServer:
    pages = {"/ok": lambda: ProbePage("fine\n"), "/bad": lambda: ProbePage("no\n", 503)}
    return ProbeServer(host, port, pages, **options)


def test_a_page_is_served_with_its_status():
    with server() as probes:
        with urllib.request.urlopen(f"{probes.url}/ok?x=1", timeout=TIMEOUT) as response:
            assert (response.status, response.read()) == (200, b"fine\n")
            assert response.headers["content-type"] == "text/plain; charset=utf-8"
            assert response.headers["cache-control"] == "no-store"
            # Not which Python this is.
            assert response.headers["server"] == "treefold"
        with pytest.raises(urllib.error.HTTPError) as failed:
            urllib.request.urlopen(f"{probes.url}/bad", timeout=TIMEOUT)
        with failed.value as response:
            assert (response.code, response.read()) == (503, b"no\n")


def test_head_gets_no_body():
    with server() as probes:
        request = urllib.request.Request(f"{probes.url}/ok", method="HEAD")
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            assert (response.status, response.read()) == (200, b"")


def test_another_path_is_not_found():
    with server() as probes, pytest.raises(urllib.error.HTTPError) as failed:
        urllib.request.urlopen(f"{probes.url}/etc", timeout=TIMEOUT)
    with failed.value as response:
        assert response.code == 404
        assert response.read() == b"there is no page /etc; there are /ok, /bad\n"


def test_ipv6_is_written_in_brackets():
    with server("::1") as probes:
        assert probes.url.startswith("http://[::1]:")
        with urllib.request.urlopen(f"{probes.url}/ok", timeout=TIMEOUT) as response:
            assert response.read() == b"fine\n"


def test_idle_connections_do_not_keep_others_out():
    with server(patience=1.0) as probes:
        port = int(probes.url.rpartition(":")[2])
        idle = [socket.create_connection(("127.0.0.1", port), TIMEOUT) for _ in range(40)]
        try:
            # The first ones fill all places; they are closed after a second, and the rest was.
            assert idle[-1].recv(1) == b""
            assert idle[0].recv(1) == b""
            with urllib.request.urlopen(f"{probes.url}/ok", timeout=TIMEOUT) as response:
                assert response.read() == b"fine\n"
        finally:
            for one in idle:
                one.close()


def test_an_address_that_is_taken_is_refused_in_words():
    with server() as probes:
        port = int(probes.url.rpartition(":")[2])
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}: "):
            server(port=port)


def test_a_closed_server_is_gone():
    probes = server()
    probes.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{probes.url}/ok", timeout=TIMEOUT)
