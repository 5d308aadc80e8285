"""Ends a process that was told to stop, and does not."""

import faulthandler
import os
import select
import sys
import threading
import time

from treefold.cli.exit_codes import TERMINATED


class LastResort:
    """Ends the process some *seconds* after ``begin``, whatever it does then.

    Its event loop may be blocked by a call, or wait for one that ignores its cancellation.

    Args:
        text: is said then, before the stacks of all threads.
    """

    def __init__(self, seconds: float, text: str) -> None:
        self._seconds = seconds
        self._text = text
        # A handler of signals may write to a pipe; what holds a lock it might wait for itself.
        self._told, self._tells = os.pipe()
        threading.Thread(target=self._watch, name="treefold last resort", daemon=True).start()

    def begin(self) -> None:
        """Begin to count, unless that was done before; also in a handler of signals."""
        os.write(self._tells, b"1")

    def close(self) -> None:
        """Let the process live: it ends by itself."""
        os.close(self._tells)

    def _watch(self) -> None:
        if os.read(self._told, 1):
            end = time.monotonic() + self._seconds
            while select.select([self._told], [], [], max(0.0, end - time.monotonic()))[0]:
                if not os.read(self._told, 1):
                    break
            else:
                self._end()
        os.close(self._told)

    def _end(self) -> None:
        print(self._text, file=sys.stderr, flush=True)
        faulthandler.dump_traceback(all_threads=True)
        os._exit(TERMINATED)
