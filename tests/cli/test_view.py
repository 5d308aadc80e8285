"""``treefold view``, as a person uses it."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import warm_python
from support import heed_interrupts
from treefold.views.web.server import PORT

PATIENCE = 60
COMMAND = ["-W", "error", "-m", "treefold"]


@contextmanager
def started(*args: str, env: dict[str, str] | None = None) -> Generator[subprocess.Popen[str]]:
    """Start a command that has to be interrupted, if the test does not end it."""
    hidden = {"BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "TREEFOLD_STORE"}
    clean = {name: value for name, value in os.environ.items() if name not in hidden}
    with subprocess.Popen(
        warm_python.command(*COMMAND, *args),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**clean, **(env or {})},
        preexec_fn=heed_interrupts,
    ) as process:
        watchdog = threading.Timer(PATIENCE, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()


def address(process: subprocess.Popen[str]) -> tuple[str, dict[str, str]]:
    """Return where it serves, and the header that it wants."""
    assert process.stdout is not None
    url, _, token = process.stdout.readline().strip().partition("/#token=")
    return url, {"authorization": f"Bearer {token}"}


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Press Ctrl-C; return the exit code, and what was said on stderr."""
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=PATIENCE)
    return process.returncode, told


def test_it_prints_the_address_and_serves_until_it_is_interrupted(journal: Path):
    with started("view", "--store", str(journal), "--port", "0") as process:
        url, headers = address(process)
        assert url.startswith("http://127.0.0.1:")
        assert httpx.get(f"{url}/api/journal", headers=headers).json()["name"] == "run.db"
        assert httpx.get(f"{url}/api/journal").status_code == 401
        with httpx.stream("GET", f"{url}/api/stream?tree=1", headers=headers) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: trees"
            assert interrupted(process) == (130, "treefold view: Ctrl-C ends it\n")
            assert "event: rows" in list(lines)  # and the stream came to an end of its own


def test_the_page_is_opened_in_the_browser_unless_that_is_not_wanted(journal: Path, tmp_path: Path):
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}.new\nmv {opened}.new {opened}\n')
    browser.chmod(0o755)
    env = {"BROWSER": str(browser)}
    for options, opens in [((), True), (("--no-browser",), False)]:
        opened.unlink(missing_ok=True)
        with started("view", "--store", str(journal), "--port", "0", *options, env=env) as process:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            if opens:
                deadline = threading.Event()
                while not opened.exists() and not deadline.wait(0.01):
                    assert process.poll() is None
                assert opened.read_text() == url
            assert interrupted(process)[0] == 130
            assert opened.exists() == opens


def test_the_journal_is_found_as_by_every_command(journal: Path):
    with started("view", "--port", "0", env={"TREEFOLD_STORE": str(journal)}) as process:
        url, headers = address(process)
        assert len(httpx.get(f"{url}/api/trees", headers=headers).json()["trees"]) == 3
        assert interrupted(process)[0] == 130


def test_the_usual_port_is_taken_or_the_next(journal: Path):
    with started("view", "--store", str(journal)) as process:
        url, _ = address(process)
        assert PORT <= int(url.rpartition(":")[2]) < PORT + 20
        assert interrupted(process)[0] == 130


def failed(*args: str) -> str:
    done = subprocess.run(
        warm_python.command(*COMMAND, *args), capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def test_what_cannot_be_served_is_exit_code_2(journal: Path, tmp_path: Path):
    store = ["view", "--store", str(journal)]
    missing = tmp_path / "nothing.db"
    assert "there is no such journal" in failed("view", "--store", str(missing))
    assert not missing.exists()
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = str(busy.getsockname()[1])
        assert failed(*store, "--port", port).startswith(
            f"treefold view: cannot listen on 127.0.0.1:{port}: "
        )
    assert "'--port': 'x' is not a valid integer" in failed(*store, "--port", "x")
    for host in "0.0.0.0", "::", "example.org":
        told = failed(*store, "--host", host, "--port", "0")
        assert told.startswith(f"treefold view: other machines could reach {host}, ")
        assert told.endswith("pass public=True (--public) if that is intended\n")


@pytest.mark.parametrize("options", [["--public"], ["--public", "--host", "0.0.0.0"]])
def test_letting_others_in_is_warned_of(journal: Path, options: list[str]):
    with started("view", "--store", str(journal), "--port", "0", *options) as process:
        url, headers = address(process)
        assert url.startswith("http://127.0.0.1:")
        named = {**headers, "host": "198.51.100.7"}
        assert httpx.get(f"{url}/api/journal", headers=named).status_code == 200
        code, told = interrupted(process)
    assert code == 130
    warning, last = told.splitlines()
    assert warning.startswith("treefold view: other machines can reach this. Anyone with the token")
    assert "Nothing is encrypted" in warning
    assert last == "treefold view: Ctrl-C ends it"


def test_a_public_flag_is_no_warning_where_only_this_machine_connects(journal: Path):
    options = ["--public", "--host", "127.0.0.1", "--port", "0"]
    with started("view", "--store", str(journal), *options) as process:
        address(process)
        assert interrupted(process) == (130, "treefold view: Ctrl-C ends it\n")


def test_a_missing_package_is_named_with_how_to_install_it(journal: Path):
    script = (
        "import sys\n"
        "sys.modules['starlette'] = None\n"
        "from treefold.cli import main\n"
        "sys.exit(main(['view', '--store', sys.argv[1]]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(journal)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        "treefold view: the viewer needs a package that is not installed (starlette):"
        " pip install 'treefold[web]'\n",
    )


# --- treefold run --view

JOB = """
import asyncio, pathlib
from treefold import tool

@tool
async def wait(path: str) -> str:
    while not pathlib.Path(path).exists():
        await asyncio.sleep(0.01)
    return "seen"
"""


@pytest.mark.parametrize("kept", [True, False])
def test_a_run_is_shown_while_it_runs(tmp_path: Path, *, kept: bool):
    job, signal_file, store = tmp_path / "job.py", tmp_path / "go", tmp_path / "run.db"
    job.write_text(JOB)
    options = ["--arg", f"path={signal_file}", *(["--store", str(store)] if kept else [])]
    with started("run", f"{job}:wait", "--view", *options) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("treefold run: http://127.0.0.1:")
        url, _, token = line.split()[-1].partition("/#token=")
        headers = {"authorization": f"Bearer {token}"}
        with httpx.stream("GET", f"{url}/api/stream", headers=headers) as stream:
            for told in stream.iter_lines():
                if '"function":"wait","state":"running"' in told:
                    break
        name = httpx.get(f"{url}/api/journal", headers=headers).json()["name"]
        assert name == ("run.db" if kept else "memory")
        signal_file.touch()
        printed, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, printed, store.exists()) == (0, "seen\n", kept)
