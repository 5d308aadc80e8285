"""Fills a journal by SQL with any number of trees, as a program that ran for long leaves them.

Their checksums are wrong: whatever reads one of them in order to use it fails.
"""

from typing import Any, Final

import psycopg

# Of each 40 trees 34 have ended, 3 of which are forks. Two wait for a person, and one of these has
# been answered by a message. One sleeps, two are owed, and a worker that lives runs one.
EVENTS: Final = 12  # of a tree

_KIND: Final = """
    SELECT %(first)s::bigint + 4 * (number - 1) AS id, number, number %% 40 AS kind
    FROM generate_series(%(from)s::bigint, %(to)s::bigint) AS number
"""
_FILL: Final = (
    f"""
    INSERT INTO drives (node, tree, epoch, written, last, owner, wanted, wake_at, queue, priority)
    SELECT id, id, 1, {EVENTS}, {EVENTS},
        CASE WHEN kind = 39 THEN %(worker)s::bigint END,
        CASE WHEN kind >= 35 THEN clock_timestamp() - interval '1 hour' END,
        CASE WHEN kind = 36 THEN clock_timestamp() + interval '1 day' END,
        CASE WHEN kind >= 35 THEN 'nobody' ELSE 'default' END, 0
    FROM ({_KIND}) AS tree
    """,
    f"""
    INSERT INTO nodes (
        id, tree, drive, parent, call_key, number, function, idles, source, inherited, state, open,
        started, ended, crc, state_crc, started_crc
    )
    SELECT id + call, id, id, call * id, CASE call WHEN 0 THEN '#' || id ELSE 'call' END,
        CASE call WHEN 0 THEN number ELSE 1 END, 'function', call = 0,
        CASE WHEN call = 0 AND kind < 3 AND number > 40 THEN id - 160 ELSE 0 END,
        CASE WHEN call = 0 AND kind < 3 AND number > 40 THEN 1 ELSE 0 END,
        CASE WHEN kind < 34 THEN 'success' ELSE 'running' END, kind >= 34, id, id, 0, 0, 0
    FROM ({_KIND}) AS tree CROSS JOIN generate_series(0, 1) AS call
    """,
    f"""
    INSERT INTO events (tree, place, node, n, kind, body, at, state, question, settled, crc)
    SELECT id, place, id + place %% 2, (place + 1) / 2, 'Something', repeat('x', 100), 1, NULL,
        NULL, NULL, 0
    FROM ({_KIND}) AS tree CROSS JOIN generate_series(1, {EVENTS}) AS place
    """,
    f"""
    INSERT INTO questions (id, node, tree, place, asks, due, in_doubt, crc)
    SELECT (id + 1) || '-1', id + 1, id, 3, kind <> 36, CASE kind WHEN 36 THEN 1e10 END, false, 0
    FROM ({_KIND}) AS tree WHERE kind IN (34, 35, 36)
    """,
    f"""
    INSERT INTO inbox (drive, body, question, token, hash)
    SELECT id, '{{}}', (id + 1) || '-1', gen_random_uuid(),
        sha256(convert_to(concat(id, ' ', (id + 1) || '-1', ' ', '{{}}'), 'UTF8'))
    FROM ({_KIND}) AS tree WHERE kind = 35
    """,
    f"""
    INSERT INTO texts (tree, hash, text, crc)
    SELECT id, sha256(convert_to(id::text, 'UTF8')), 'text', 0 FROM ({_KIND}) AS tree
    """,
    f"""
    INSERT INTO accounts (name, tree, calls, tokens, usd)
    SELECT 'account ' || id, id, 1, 1, 1 FROM ({_KIND}) AS tree WHERE kind = 1
    """,
    f"""
    INSERT INTO holds (id, account, worker, tokens, usd, excused, lost)
    SELECT gen_random_uuid(), 'account ' || id, 1, 1, 1, false, true
    FROM ({_KIND}) AS tree WHERE kind = 1
    """,
    f"""
    INSERT INTO histories (account, tree)
    SELECT 'account ' || id, id FROM ({_KIND}) AS tree WHERE kind = 1
    """,
)
_WORKER: Final = """
    INSERT INTO workers (name, host, process, functions, queues, lease, seen, server)
    VALUES (
        'other', 'host', 1, '[]', '[]', interval '1 day', clock_timestamp(),
        pg_postmaster_start_time()
    )
    RETURNING id
"""
_RESERVED: Final = """
    UPDATE journal
    SET node = greatest(node, %(first)s + 4 * %(to)s), number = greatest(number, %(to)s)
"""


def fill(connection: psycopg.Connection[Any], *, first: int, start: int, end: int) -> None:
    """Add the trees with the numbers from *start* to *end*; number 1 would have the id *first*."""
    row = connection.execute(_WORKER).fetchone()
    assert row is not None
    values = {"first": first, "from": start, "to": end, "worker": row[0]}
    for statement in (*_FILL, _RESERVED):
        connection.execute(statement.encode(), values)
    # As the server itself does from time to time.
    for table in ("drives", "nodes", "events", "questions", "inbox", "texts", "accounts", "holds"):
        connection.execute(f"VACUUM ANALYZE {table}".encode())
