"""Slots, rates and budgets that all workers keep together."""

import threading
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from treefold.core.cluster import Estimate, Overdrawn, Ownership, StoredAccount
from treefold.core.rate import Rate
from treefold.stores.postgres.membership import Membership
from treefold.stores.postgres.pool import Pool
from treefold.stores.postgres.rows import compact, decode_text, encode_text, encode_texts

_SET_SLOTS: Final = "SELECT set_slots(%s::bigint, %s::bigint, %s::json)"
_SET_ASIDE: Final = """
    SELECT refused, its_calls, used, paid, must_wait FROM set_aside(
        %s::uuid, %s::bigint, %s::integer, %s::json,
        %s::bigint, %s::numeric, %s::bigint, %s::numeric
    )
"""
_LARGEST: Final = 2**63 - 1  # in a column
_CHARGE: Final = "SELECT charge(%s::uuid, %s::bigint, %s::bigint, %s::numeric)"


class LimitTable:
    """The slots of workers, the buckets of rates and the accounts of budgets; for any thread."""

    def __init__(self, pool: Pool, membership: Membership) -> None:
        self._pool = pool
        self._membership = membership
        self._lock = threading.Lock()  # so that statements are sent in the order of their turns
        self._turn = 0

    def set_slots(
        self, slots: Mapping[str, int], *, limits: Mapping[str, int] | None = None
    ) -> bool:
        worker, most = self._membership.worker, limits or {}
        given = [
            {"name": encode_text(name), "taken": taken, "most": most.get(name)}
            for name, taken in slots.items()
        ]
        with self._lock:
            self._turn += 1
            [(is_set,)] = self._pool.fetch(_SET_SLOTS, (worker, self._turn, compact(given)))
        return is_set

    def take_rates(self, rates: Mapping[str, Rate], tokens: int) -> float:
        given = [
            {
                "name": encode_text(name),
                "rpm": rate.rpm,
                "tpm": rate.tpm,
                "requests": rate.most_requests,
                "tokens": rate.most_tokens,
            }
            for name, rate in rates.items()
        ]
        search = "SELECT take_rates(%s::json, %s::double precision)"
        # If it is sent twice, it is taken twice: then the rate is not quite used.
        [(seconds,)] = self._pool.fetch(search, (compact(given), tokens))
        return seconds

    def charge_rates(self, names: Collection[str], more: int) -> None:
        values = (encode_texts(names), more)
        self._pool.fetch("SELECT charge_rates(%s::json, %s::double precision)", values)

    def set_aside(
        self,
        accounts: Sequence[StoredAccount],
        *,
        id: UUID,
        estimate: Estimate,
        ownership: Ownership,
    ) -> Overdrawn | None:
        given = compact([_row(account, place) for place, account in enumerate(accounts)])
        most = (estimate.tokens, estimate.usd)
        least = (estimate.least_tokens, estimate.least_usd)
        values = (id, ownership.node, ownership.epoch, given, *most, *least)
        [(refused, calls, used, paid, must_wait)] = self._pool.fetch(_SET_ASIDE, values)
        if refused is None:
            return None
        name = decode_text(refused)
        return Overdrawn(name=name, calls=calls, tokens=used, usd=paid, must_wait=must_wait)

    def charge(self, id: UUID, *, calls: int, tokens: int, usd: Decimal) -> None:
        self._pool.fetch(_CHARGE, (id, calls, tokens, usd))


def _row(account: StoredAccount, place: int) -> dict[str, Any]:
    most = account.most_usd
    return {
        "name": encode_text(account.name),
        "place": place,
        "tree": account.tree,
        "most_calls": _storable(account.most_calls),
        "most_tokens": _storable(account.most_tokens),
        # As texts: a number of JSON may lose digits.
        "most_usd": None if most is None else str(most),
        "history": account.history,
        "calls": account.calls,
        "tokens": account.tokens,
        "usd": str(account.usd),
    }


def _storable(most: int | None) -> int | None:
    """Return a limit that fits into a column; nobody reaches a larger one."""
    return None if most is None else min(most, _LARGEST)
