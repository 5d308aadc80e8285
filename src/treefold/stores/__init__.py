"""Journals and saved chats, in SQLite files or in memory; nothing else opens a database.

The names are loaded when they are first used; ``__init__.pyi`` tells type checkers the same.
"""

from treefold.exports import exports

__getattr__, __dir__, __all__ = exports(  # pyright: ignore[reportUnsupportedDunderAll]
    __name__,
    {
        "treefold.core.sessions": ["SavedSession", "SessionInfo", "Sessions"],
        "treefold.core.store": ["Call", "Entry", "Message", "Store", "TreeRow"],
        "treefold.stores.memory_store": ["MemoryStore"],
        "treefold.stores.sqlite_store": ["SqliteStore"],
        "treefold.stores.transfer": ["export_tree", "import_tree"],
    },
)
