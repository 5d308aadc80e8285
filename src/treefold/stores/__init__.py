"""Journals and saved chats, in SQLite files, in memory or in PostgreSQL.

Nothing else opens a database. ``treefold.stores.postgres`` needs the extra ``postgres``.

The names are loaded when they are first used; ``__init__.pyi`` tells type checkers the same.
"""

from treefold.exports import exports

__getattr__, __dir__ = exports(__name__)
