"""Log messages of commands: on stderr, warnings only unless ``-v`` or ``-vv`` is given.

The handler replaces ``logging.lastResort``, which Python uses while a program has not configured
logging: if the program that a command loads does configure it, that is not disturbed.
"""

import logging
import sys
import time
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

import click

_LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG)  # by the number of -v
_MOST_HELD: Final = 1000  # messages


class LogOutput(logging.Handler):
    """Prints log messages on stderr; above the live tree, if there is one."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._holds = 0
        self._held: deque[str] = deque(maxlen=_MOST_HELD)

    def format(self, record: logging.LogRecord) -> str:
        from treefold.views.text import readable  # noqa: PLC0415 - most commands log nothing

        # Messages may quote a tool or a model.
        text = readable(super().format(record))
        if self.level >= logging.WARNING:
            return text
        kind = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return f"{time.strftime('%H:%M:%S', time.localtime(record.created))} {kind}{text}"

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._held.append(self.format(record))
        except Exception:  # noqa: BLE001 - a message of another library may not fit its arguments
            self.handleError(record)
        self._print_held()

    @contextmanager
    def holding(self) -> Generator[None]:
        """Keep messages, the latest thousand, and print them at the end of the block."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self.acquire()
            try:
                self._print_held()
            finally:
                self.release()

    def _print_held(self) -> None:
        while self._held and not self._holds:
            # The terminal may be closed; the run continues without it.
            with suppress(OSError, ValueError):
                # Not the stream of the start: the live tree replaces it while it is drawn.
                print(self._held.popleft(), file=sys.stderr, flush=True)


@contextmanager
def messages_held() -> Generator[None]:
    """Keep log messages until the end of the block, in which the user types at a prompt."""
    output = logging.lastResort
    if isinstance(output, LogOutput):
        with output.holding():
            yield
    else:
        yield


@contextmanager
def messages_printed() -> Generator[None]:
    """Print log messages in the block by ``LogOutput``, at the level that ``-v`` sets."""
    log = logging.getLogger("treefold")
    before, level = logging.lastResort, log.level
    logging.lastResort = LogOutput()
    try:
        yield
    finally:
        logging.lastResort = before
        log.setLevel(level)


def verbose_option() -> click.Option:
    """Return the option ``-v``, which every command has."""
    return click.Option(
        ["-v", "--verbose"],
        count=True,
        expose_value=False,
        callback=_set_level,
        help="log when runs start, wait for a person, resume and end; -vv: every call, too",
    )


def _set_level(_ctx: click.Context, _param: click.Parameter, count: int) -> None:
    level = _LEVELS[min(count, len(_LEVELS) - 1)]
    if count:
        logging.getLogger("treefold").setLevel(level)
        if logging.lastResort is not None:
            logging.lastResort.setLevel(level)
