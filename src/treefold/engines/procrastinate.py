"""``Procrastinate``: places work by a queue in PostgreSQL."""

import re
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from treefold.core.errors import InvalidValueError
from treefold.core.work_engine import WorkEngine
from treefold.engines.server_engine import ServerEngine
from treefold.engines.timing import FIRST_DELAY, LONGEST_DELAY, Delays, DeliveryTiming

DEFAULT_SCHEMA: Final = "treefold_jobs"
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")


class Procrastinate(ServerEngine):
    """Places work by a queue in PostgreSQL, with the package procrastinate.

    The jobs are in a schema of their own, which ``open`` creates. They have nothing but the ids of
    drives, and are deleted when they are done. Connect directly, or through a pooler that keeps
    sessions: the workers listen for notifications.

    Args:
        url: of the database; that of a store, too, whose parameter ``schema`` is left out.
        schema: the PostgreSQL schema of the jobs.
        beat: seconds between the heartbeats of a worker.
        lease: seconds after its last heartbeat until the jobs of a worker are delivered to others.
        poll: seconds between two looks into the queue, if no notification arrives.
        patience: seconds that the database may take to answer.
        first_delay: seconds until a drive is delivered again that could not be run; twice as many
            each time.
        longest_delay: how many at most.

    Example:
        >>> from treefold.engines import Procrastinate
        >>> engine = Procrastinate("postgresql://localhost/app", lease=10)
    """

    def __init__(
        self,
        url: str,
        *,
        schema: str = DEFAULT_SCHEMA,
        beat: float = 2.0,
        lease: float = 6.0,
        poll: float = 1.0,
        patience: float = 3.0,
        first_delay: float = FIRST_DELAY,
        longest_delay: float = LONGEST_DELAY,
    ) -> None:
        super().__init__("procrastinate")
        if not _SCHEMA.fullmatch(schema):
            raise InvalidValueError(
                f"schema must be lower-case letters, digits and underscores, got {schema!r}"
            )
        self._url = _without_schema(url)
        self._schema = schema
        self._timing = DeliveryTiming(beat=beat, lease=lease, poll=poll, patience=patience)
        self._delays = Delays(first_delay, longest_delay)

    def _make(self, journal: str) -> WorkEngine:
        from treefold.engines.job_engine import JobEngine  # noqa: PLC0415 - needs the extra

        return JobEngine(
            self._url,
            schema=self._schema,
            journal=journal,
            timing=self._timing,
            delays=self._delays,
        )


def _without_schema(url: str) -> str:
    """Return *url* without the parameter that names the schema of a store."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url  # it is refused when the engine is opened
    query = [(name, value) for name, value in parse_qsl(parts.query) if name != "schema"]
    return (
        url
        if "://" not in url
        else urlunsplit(parts._replace(query=urlencode(query, quote_via=quote)))
    )
