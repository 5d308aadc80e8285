"""Runs the command quickly: a process that has imported ramify, and forks one for each call.

Each is a process of its own with its own folder, environment and files, as from a shell; only the
time that imports take is saved. What depends on those, or on how Python itself ends, is tested
with processes that are started from scratch.
"""

import json
import os
import runpy
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

_EARLY: Final = ("ramify.cli", "ramify.stores", "ramify.testing", "pydantic", "httpx")


class Commands:
    """Has the parent of all calls of the command."""

    def __init__(self, env: Mapping[str, str], patience: float) -> None:
        self._folder = TemporaryDirectory()
        self._patience = patience
        self._lock = threading.Lock()
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "documents.seeing_commands", self._folder.name],
            env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(
        self, args: Sequence[str], cwd: Path | None, env: Mapping[str, str], stdin: str
    ) -> tuple[int, str, str]:
        """Run ``ramify *args*``; return how it ended, and what it printed where."""
        folder = Path(self._folder.name)
        line = {"args": args, "cwd": str(cwd or Path.cwd()), "env": dict(env)}
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        with self._lock:
            (folder / "0").write_text(stdin, encoding="utf-8")
            self._parent.stdin.write(json.dumps(line) + "\n")
            self._parent.stdin.flush()
            watchdog = threading.Timer(self._patience, self._parent.kill)
            watchdog.start()
            try:
                status = self._parent.stdout.readline()
            finally:
                watchdog.cancel()
            out, err = ((folder / name).read_bytes().decode() for name in "12")
        assert status, f"no end after {self._patience} s: ramify {args}: {err}"
        return int(status), out, err

    def close(self) -> None:
        """End the parent."""
        self._parent.communicate(timeout=self._patience)
        self._folder.cleanup()


def serve(folder: str) -> None:
    """Fork a child for each line, and say how it ended."""
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _become(json.loads(line), folder)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _become(call: Mapping[str, Any], folder: str) -> None:
    status = 1
    try:
        for number, mode in enumerate((os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)):
            more = os.O_CREAT | os.O_TRUNC if number else 0
            file = os.open(f"{folder}/{number}", mode | more, 0o600)
            os.dup2(file, number)
            os.close(file)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - it ends with us
        os.environ.clear()
        os.environ.update(call["env"])
        os.chdir(call["cwd"])
        sys.path[0] = call["cwd"]
        sys.argv = ["ramify", *call["args"]]
        runpy.run_module("ramify", run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - the other end reads it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    for early in _EARLY:
        import_module(early)
    serve(sys.argv[1])
