"""``treefold view`` in a process of its own, and an HTTP client of it."""

import json
import re
import signal
import subprocess
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

import warm_python
from command_results import PATIENCE, environment
from support import heed_interrupts
from viewing import UNENCRYPTED


@dataclass(frozen=True)
class Message:
    """One server-sent event."""

    event: str
    id: str | None
    data: Any


def messages(lines: Iterator[str]) -> Iterator[Message]:
    """Return the events in a stream of lines."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            if name:
                fields[name] = fields.get(name, "") + value.removeprefix(" ")
        elif "data" in fields:
            yield Message(fields.get("event", ""), fields.get("id"), json.loads(fields["data"]))
            fields = {}


class Viewer:
    """``treefold view`` in a process of its own, and somebody who speaks HTTP to it."""

    def __init__(self, file: Path, *args: str) -> None:
        self._process = subprocess.Popen(
            warm_python.command("-m", "treefold", "view", "--store", str(file), *args),
            env=environment(PYTHONUNBUFFERED="1"), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=heed_interrupts,
        )  # fmt: skip
        self.said = ""
        try:
            self.url, self.token = self._address()
        except BaseException:
            self._process.kill()
            self._process.communicate()
            raise
        self.client = httpx.Client(
            base_url=self.url, timeout=PATIENCE, headers=self.bearer, verify=UNENCRYPTED
        )

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def get(self, path: str, **options: Any) -> Any:
        """Return the data at *path*, which is there."""
        answer = self.client.get(path, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    @contextmanager
    def stream(self, tree: int | None = None, seq: int = 0) -> Generator[Iterator[Message]]:
        """Listen to what happens, after what is known already."""
        params = {} if tree is None else {"tree": tree, "seq": seq}
        with self.client.stream("GET", "/api/stream", params=params) as answer:
            assert answer.status_code == 200, answer.read()
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield messages(answer.iter_lines())

    def post(self, path: str, data: Any) -> httpx.Response:
        """Ask for something."""
        return self.client.post(path, json=data)

    def interrupt(self) -> None:
        """Stop it as Ctrl-C does, and wait until it has ended."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            rest, _ = self._process.communicate(timeout=PATIENCE)
            self.said += rest
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise

    def close(self) -> None:
        """Stop it, and whoever speaks to it."""
        self.client.close()
        if self._process.returncode is None:
            self.interrupt()

    @property
    def code(self) -> int | None:
        return self._process.returncode

    def _address(self) -> tuple[str, str]:
        assert self._process.stdout is not None
        watchdog = threading.Timer(PATIENCE, self._process.kill)
        watchdog.start()
        try:
            for line in self._process.stdout:
                self.said += line
                found = re.search(r"(http://[^\s/]+)/#token=([\w.~-]+)", line)
                if found:
                    return found[1], found[2]
        finally:
            watchdog.cancel()
        raise AssertionError(f"no address: {self.said}")


@contextmanager
def viewing(file: Path, *args: str) -> Generator[Viewer]:
    """Have ``treefold view`` show a journal, at any port that is free."""
    viewer = Viewer(file, "--port", "0", "--no-browser", *args)
    try:
        yield viewer
    finally:
        viewer.close()
