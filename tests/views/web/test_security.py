"""The security of the viewer: its token, origins, page and address."""

import http.client  # it sends a path as it is
import json
import re
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest

import survey_journals
from command_results import PATIENCE, environment, open_questions, treefold
from survey_journals import Journal
from viewer_process import Viewer, viewing
from viewing import UNENCRYPTED

READS = [
    "/api/journal", "/api/trees", "/api/nodes/1", "/api/nodes/1/parts/0", "/api/nodes/1/stack",
    "/api/trees/1/flame", "/api/difference?a=1&b=1", "/api/search?tree=1&q=a", "/api/questions",
    "/api/stream", "/api/stream?tree=1&seq=0", "/api/forks/x", "/api/nothing",
]  # fmt: skip

WRITES = [
    "/api/questions/1-1", "/api/nodes/1/pause", "/api/nodes/1/cancel", "/api/nodes/1/resume",
    "/api/nodes/1/fork",
]  # fmt: skip


@pytest.fixture(scope="module")
def parked(tmp_path_factory: pytest.TempPathFactory) -> Journal:
    return survey_journals.parked(tmp_path_factory.mktemp("parked"))


@pytest.fixture(scope="module")
def viewer(parked: Journal) -> Iterator[Viewer]:
    with viewing(parked.file) as viewer:
        yield viewer


def refused(viewer: Viewer, status: int, path: str, *, method: str = "GET", **options: Any) -> None:
    """Check that a request, which may be for a stream without an end, is refused."""
    with httpx.stream(
        method, viewer.url + path, timeout=PATIENCE, verify=UNENCRYPTED, **options
    ) as answer:
        assert answer.status_code == status, answer.status_code
        assert list(json.loads(answer.read())) == ["error"]


# --- the token


def test_the_address_is_of_this_machine_alone(viewer: Viewer):
    assert viewer.url.startswith("http://127.0.0.1:")


def test_the_token_is_long_and_never_the_same(viewer: Viewer, parked: Journal):
    with viewing(parked.file) as other:
        assert other.token != viewer.token
        refused(viewer, 401, "/api/trees", headers=other.bearer)
    assert len(viewer.token) >= 22  # 128 bits


@pytest.mark.parametrize("path", READS)
def test_nothing_is_read_without_the_token(viewer: Viewer, path: str):
    refused(viewer, 401, path)
    refused(viewer, 401, path, headers={"Authorization": "Bearer wrong"})


@pytest.mark.parametrize("header", ["", "Bearer", "Basic TOKEN", "TOKEN", "Bearer TOKENx"])
def test_only_the_whole_token_by_its_name_is_one(viewer: Viewer, header: str):
    headers = {"Authorization": header.replace("TOKEN", viewer.token)}
    refused(viewer, 401, "/api/trees", headers=headers)


@pytest.mark.parametrize("path", WRITES)
def test_nothing_is_done_without_the_token(viewer: Viewer, path: str, parked: Journal):
    refused(viewer, 401, path, method="POST", json={"text": "red"})
    [question] = open_questions(parked.file)
    assert question["id"] == "1-1"


@pytest.mark.parametrize("name", ["token", "access_token", "authorization"])
def test_a_token_in_the_address_is_none(viewer: Viewer, name: str):
    refused(viewer, 401, f"/api/trees?{name}={viewer.token}")


def test_a_token_in_a_cookie_is_none(viewer: Viewer):
    refused(viewer, 401, "/api/trees", headers={"Cookie": f"token={viewer.token}"})


def test_a_token_that_is_not_ascii_is_no_crash(viewer: Viewer):
    header = [(b"Authorization", b"Bearer \xff\xfe")]
    refused(viewer, 401, "/api/trees", headers=header)


# --- Host and Origin


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:PORT", "127.0.0.1.evil.example:PORT", ""]
)
@pytest.mark.parametrize("path", ["/api/trees", "/api/stream"])
def test_a_foreign_host_is_403(viewer: Viewer, host: str, path: str):
    port = viewer.url.rpartition(":")[2]
    refused(viewer, 403, path, headers={**viewer.bearer, "Host": host.replace("PORT", port)})


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "https://127.0.0.1:PORT", "http://127.0.0.1:1",
     "http://127.0.0.1:PORT.evil.example"],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/api/nodes/1/cancel", "/api/questions/1-1"])
def test_a_foreign_origin_is_403(viewer: Viewer, origin: str, path: str, parked: Journal):
    port = viewer.url.rpartition(":")[2]
    headers = {**viewer.bearer, "Origin": origin.replace("PORT", port)}
    refused(viewer, 403, path, method="POST", json={"text": "red", "reason": ""}, headers=headers)
    assert len(open_questions(parked.file)) == 1


def test_a_foreign_origin_cannot_read_either(viewer: Viewer):
    headers = {**viewer.bearer, "Origin": "http://evil.example"}
    refused(viewer, 403, "/api/trees", headers=headers)


def test_its_own_origin_is_welcome(viewer: Viewer):
    answer = viewer.client.get("/api/trees", headers={"Origin": viewer.url})
    assert answer.status_code == 200


def test_no_other_site_is_given_leave_to_read(viewer: Viewer):
    for method in ("GET", "OPTIONS"):
        answer = viewer.client.request(
            method, "/api/trees", headers={"Origin": "http://evil.example"}
        )
        assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert answer.status_code >= 400


# --- the page


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_page_needs_no_token_and_holds_no_data(viewer: Viewer):
    answer = httpx.get(viewer.url + "/", timeout=PATIENCE, verify=UNENCRYPTED)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert "Which colour?" not in answer.text
    assert viewer.token not in answer.text


def test_everything_on_the_page_comes_from_here_and_is_there(viewer: Viewer):
    page = Page(httpx.get(viewer.url + "/", timeout=PATIENCE, verify=UNENCRYPTED).text)
    loaded = [
        attrs[name] or ""
        for tag, attrs in page.tags
        for name in ("src", "href")
        if name in attrs and tag in {"script", "link", "img", "iframe"}
    ]
    assert loaded
    for address in loaded:
        if address.startswith("data:"):
            continue
        assert not re.match(r"(\w+:)?//", address), address
        answer = httpx.get(
            httpx.URL(viewer.url + "/").join(address), timeout=PATIENCE, verify=UNENCRYPTED
        )
        assert answer.status_code == 200, address


def test_the_policy_lets_only_its_own_scripts_run(viewer: Viewer):
    answer = httpx.get(viewer.url + "/", timeout=PATIENCE, verify=UNENCRYPTED)
    policy = {
        part.split()[0]: part.split()[1:]
        for part in answer.headers["content-security-policy"].split(";")
        if part.strip()
    }
    scripts = policy.get("script-src", policy.get("default-src", ["*"]))
    for word in scripts:
        assert word in {"'self'", "'none'"} or re.match(r"'(sha256|nonce)-", word), policy
    for name in ("default-src", "connect-src", "object-src", "frame-src", "form-action"):
        words = policy.get(name, policy["default-src"])
        assert set(words) <= {"'self'", "'none'"}, policy
    assert set(policy.get("base-uri", ["*"])) <= {"'self'", "'none'"}, policy
    assert set(policy.get("frame-ancestors", ["*"])) <= {"'self'", "'none'"}, policy


def test_no_inline_script_or_handler_is_on_the_page(viewer: Viewer):
    page = Page(httpx.get(viewer.url + "/", timeout=PATIENCE, verify=UNENCRYPTED).text)
    for tag, attrs in page.tags:
        assert not [name for name in attrs if name.startswith("on")], (tag, attrs)
        if tag == "script":
            assert attrs.get("src") or attrs.get("type") in {"application/json", "importmap"}


@pytest.mark.parametrize(
    "path",
    ["/assets/../server.py", "/assets/%2e%2e/server.py", "/assets/..%2fserver.py",
     "/assets/%2e%2e%2f%2e%2e%2fdata.py", "/assets//etc/passwd", "/assets/", "/assets/no.js",
     "/assets/%00", "/assets/..\\server.py"],
)  # fmt: skip
def test_only_assets_are_served(viewer: Viewer, path: str):
    host = viewer.url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=PATIENCE)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert answer.status in {400, 403, 404}, (answer.status, body[:200])


def test_data_is_never_sent_as_a_page(viewer: Viewer):
    answer = viewer.client.get("/api/questions")
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "no-store" in answer.headers["cache-control"]


@pytest.mark.parametrize("path", WRITES)
def test_asking_for_something_takes_a_post(viewer: Viewer, path: str, parked: Journal):
    for method in ("GET", "PUT", "DELETE"):
        assert viewer.client.request(method, path).status_code in {404, 405}
    assert len(open_questions(parked.file)) == 1


# --- binding elsewhere


def test_another_address_needs_an_explicit_flag(parked: Journal):
    done = treefold("view", "--store", parked.file, "--host", "0.0.0.0", "--port", "0")
    done.refused("--public")


def test_another_address_with_the_flag_prints_a_warning(parked: Journal):
    with viewing(parked.file, "--host", "0.0.0.0", "--public") as viewer:
        assert "other machines can reach" in viewer.said
        address = re.sub(r"//[^:]+", "//127.0.0.1", viewer.url)
        assert httpx.get(f"{address}/api/trees", timeout=PATIENCE).status_code == 401


def test_a_port_that_is_taken_is_told_in_words(viewer: Viewer, parked: Journal):
    port = viewer.url.rpartition(":")[2]
    done = treefold("view", "--store", parked.file, "--port", port)
    done.refused(port)


def test_the_token_is_not_in_the_list_of_processes(viewer: Viewer):
    done = subprocess.run(
        ["ps", "-ef"], capture_output=True, text=True, timeout=PATIENCE, check=False,
        env=environment(),
    )  # fmt: skip
    assert viewer.token not in done.stdout


# --- the end


def test_ctrl_c_ends_it_at_once_though_somebody_listens(parked: Journal):
    with viewing(parked.file) as viewer, viewer.stream(1) as stream:
        assert next(stream)
        viewer.interrupt()
    assert viewer.code == 130
    assert "Traceback" not in viewer.said
