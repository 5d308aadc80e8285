"""Starting and closing a viewer."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

import treefold
from support import blocked_runtime, wait
from treefold import CodeFunction, MemoryStore, RunContext, Runtime, StoreError
from treefold.core.errors import InvalidValueError, StoreBusyError, UsageError
from treefold.views.web import Viewer, view
from treefold.views.web.server import PORT
from viewing import client_of, messages


async def add(ctx: RunContext, a: int, b: int) -> int:
    return a + b


adding = CodeFunction(callable=add)


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def port_of(viewer: Viewer) -> int:
    port = urlsplit(viewer.address).port
    assert port is not None
    return port


async def test_it_serves_next_to_a_run_on_a_loop():
    async with Runtime([adding], store=MemoryStore()) as runtime:
        with view(runtime, port=0) as viewer:
            assert await runtime.invoke(adding, {"a": 1, "b": 2}) == 3
            headers = {"authorization": f"Bearer {viewer.token}"}
            async with (
                asyncio.timeout(60),
                httpx.AsyncClient(base_url=viewer.address, headers=headers) as client,
            ):
                while (told := (await client.get("/api/nodes/1")).json()).get("outputs") != 3:
                    pass
    assert (told["fn"], told["state"]) == ("add", "success")


def test_a_run_can_be_followed_as_soon_as_it_was_made():
    with (
        blocked_runtime(adding, store=MemoryStore()) as runtime,
        view(runtime, port=0) as viewer,
        client_of(viewer) as client,
    ):
        node = runtime.invoke(adding, {"a": 1, "b": 2})
        with client.stream("GET", f"/api/stream?tree={node.id}") as response:
            assert response.status_code == 200
            told = messages(response.iter_lines())
            [row] = next(one.data for one in told if one.event == "rows")["rows"]
    assert (row["id"], row["fn"], row["state"]) == (node.id, "add", "waiting")


class Busy(MemoryStore):
    """A store in which nothing can be found just now."""

    def find(self, *, node: int) -> int | None:
        raise StoreBusyError(self.name, "another program has had it locked for too long")


def test_a_busy_store_is_one_to_ask_again():
    with view(Busy(), port=0) as viewer, client_of(viewer) as client:
        refused = client.get("/api/stream?tree=1")
    assert refused.status_code == 503
    assert "locked for too long" in refused.json()["error"]


def test_a_store_and_a_file_are_shown_as_well(journal: Path):
    store = MemoryStore()
    with view(store, port=0) as viewer, client_of(viewer) as client:
        assert client.get("/api/journal").json()["name"] == "memory"
    assert store.trees() == []  # it is the giver's, and is not closed
    for path in journal, str(journal):
        with view(path, port=0) as viewer, client_of(viewer) as client:
            assert client.get("/api/journal").json()["name"] == "run.db"
            assert repr(viewer) == f"<Viewer of {journal} at {viewer.address}>"


def test_what_cannot_be_shown_is_said(tmp_path: Path):
    with Runtime([adding]) as runtime, pytest.raises(UsageError, match=r"Runtime\(store='run.db'"):
        view(runtime)
    with pytest.raises(StoreError, match="there is no such file"):
        view(tmp_path / "nothing.db")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_of_it(journal: Path):
    before, files = threads(), len(os.listdir("/proc/self/fd"))
    with view(journal, port=0) as viewer, client_of(viewer) as client:
        client.get("/api/trees")
        with client.stream("GET", "/api/stream?tree=1") as response:
            next(response.iter_lines())
            assert "treefold viewer" in threads()
    viewer.close()  # which is fine
    wait(lambda: threads() <= before)
    wait(lambda: len(os.listdir("/proc/self/fd")) <= files)
    with pytest.raises(httpx.ConnectError):
        httpx.get(viewer.address)


def test_it_is_started_once(journal: Path):
    with treefold.attach(journal) as observer:
        viewer = Viewer(observer, port=0)
        assert (viewer.address, repr(viewer)) == ("", f"<Viewer of {journal} at no address yet>")
        viewer.close()  # which is fine, too
        with viewer:
            for again in viewer.start, viewer.serve:
                with pytest.raises(UsageError, match="has been started before; create another"):
                    again()
            assert httpx.get(viewer.address + "/api/").status_code == 401
        with pytest.raises(UsageError, match="has been started before; create another"):
            viewer.serve()


def test_it_serves_in_this_thread_until_another_closes_it(journal: Path):
    with treefold.attach(journal) as observer:
        viewer = Viewer(observer, port=0)
        statuses: list[int] = []

        def ask() -> None:
            statuses.append(httpx.get(viewer.address + "/api/").status_code)
            viewer.close()

        asking = threading.Thread(target=ask)
        viewer.serve(asking.start)
        asking.join()
    assert statuses == [401]


# --- where


@contextmanager
def taken(port: int) -> Generator[None, None, None]:
    """Occupy a port, unless it is occupied already."""
    with ExitStack() as stack:
        with suppress(OSError):
            stack.enter_context(socket.create_server(("127.0.0.1", port)))
        yield


def test_the_port_is_the_usual_one_or_the_next_that_is_free(journal: Path):
    with taken(PORT), taken(PORT + 1), view(journal) as first, view(journal) as second:
        ports = {port_of(first), port_of(second)}
        assert len(ports) == 2
        assert ports <= set(range(PORT + 2, PORT + 20))
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{PORT}: "):
            view(journal, port=PORT)


@pytest.mark.parametrize("port", [-1, 65_536, 10**30])
def test_a_port_that_is_none_is_refused(journal: Path, port: int):
    with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}: "):
        view(journal, port=port)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_other_machines_are_let_in_only_on_purpose(journal: Path, host: str):
    before = threads()
    with pytest.raises(InvalidValueError, match="other machines could reach .*--public"):
        view(journal, host=host, port=0)
    assert threads() <= before


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2", "::1"])
def test_this_machine_may_be_called_by_any_of_its_names(journal: Path, host: str):
    with view(journal, host=host, port=0) as viewer, client_of(viewer) as client:
        assert urlsplit(viewer.address).hostname == host
        assert not viewer.is_public
        assert client.get("/api/journal").status_code == 200


def test_all_addresses_are_served_if_that_is_wanted(journal: Path):
    with view(journal, host="0.0.0.0", port=0, public=True) as viewer, client_of(viewer) as client:
        assert viewer.address.startswith("http://127.0.0.1:")
        assert viewer.is_public
        assert client.get("/api/journal").status_code == 200
        named = {"host": f"198.51.100.7:{port_of(viewer)}"}
        assert client.get("/api/journal", headers=named).status_code == 200
        named = {"host": f"evil.example:{port_of(viewer)}"}
        assert client.get("/api/journal", headers=named).status_code == 403
        assert httpx.get(f"{viewer.address}/api/journal").status_code == 401


# --- what it needs


def in_python(script: str, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *args], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_is_loaded_before_it_is_started():
    script = (
        "import sys\n"
        "import treefold.views.web\n"
        "from treefold.views.web import Viewer, view\n"
        "print([name for name in ('starlette', 'uvicorn', 'anyio') if name in sys.modules])\n"
    )
    assert in_python(script) == "[]\n"


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_a_package_that_is_missing_is_named_with_how_to_install_it(journal: Path, missing: str):
    script = (
        "import sys\n"
        "sys.modules[sys.argv[2]] = None\n"
        "import treefold.views.web\n"
        "try:\n"
        "    treefold.views.web.view(sys.argv[1])\n"
        "except treefold.errors.UsageError as error:\n"
        "    print(error)\n"
    )
    assert in_python(script, str(journal), missing) == (
        f"the viewer needs a package that is not installed ({missing}): "
        "pip install 'treefold[web]'\n"
    )
