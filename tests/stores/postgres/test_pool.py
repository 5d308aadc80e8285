"""The connections of a store: a burst does not open new ones each time."""

from contextlib import ExitStack

import pytest

from postgres_server import shared_url
from treefold.stores.postgres.address import parse_url
from treefold.stores.postgres.pool import Pool

BURST = 8  # as many as one store may use at once


def burst(pool: Pool) -> set[int]:
    """Use connections at once; return the numbers of their sessions."""
    with ExitStack() as stack:
        lent = [stack.enter_context(pool.lend()) for _ in range(BURST)]
        return {connection.info.backend_pid for connection in lent}


@pytest.fixture
def lasting() -> Pool:
    return Pool(parse_url(shared_url()))


def test_the_connections_of_a_burst_are_used_by_the_next(lasting: Pool):
    first = burst(lasting)
    assert len(first) == BURST
    assert burst(lasting) == first
    lasting.close()


def test_connections_of_a_burst_that_are_not_used_any_more_are_closed():
    pool = Pool(parse_url(shared_url()), linger=0.0)
    first = burst(pool)
    for _ in range(BURST):
        pool.fetch("SELECT 1")
    assert len(burst(pool) & first) == 4
    pool.close()
