"""Journals and saved chats, in SQLite files or in memory; nothing else opens a database.

The names are loaded when they are first used; ``__init__.pyi`` tells type checkers the same.
"""

from treefold.exports import exports

__getattr__, __dir__ = exports(__name__)
