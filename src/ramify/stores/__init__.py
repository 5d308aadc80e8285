"""What is kept on disk; nothing else opens a database.

The names are loaded when they are first used; ``__init__.pyi`` tells type checkers the same.
"""

from ramify.exports import exports

__getattr__, __dir__, __all__ = exports(  # pyright: ignore[reportUnsupportedDunderAll]
    __name__,
    {
        "ramify.core.store": ["Call", "Entry", "Message", "Store", "TreeRow"],
        "ramify.stores.memory_store": ["MemoryStore"],
        "ramify.stores.sqlite_store": ["SqliteStore"],
        "ramify.stores.transfer": ["export_tree", "import_tree"],
    },
)
