"""What ``treefold.stores.postgres`` exports; ``__init__.py`` loads it on first use."""

from treefold.stores.postgres.migration import migrate as migrate
from treefold.stores.postgres.roles import grant as grant
from treefold.stores.postgres.store import PostgresStore as PostgresStore
