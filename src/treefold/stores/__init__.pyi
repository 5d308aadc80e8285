"""What ``treefold.stores`` exports, for type checkers; ``__init__.py`` loads it on first use."""

from treefold.core.sessions import (
    SavedSession as SavedSession,
    SessionInfo as SessionInfo,
    Sessions as Sessions,
)
from treefold.core.shared_store import (
    Batch as Batch,
    Estimate as Estimate,
    Load as Load,
    Orders as Orders,
    Overdrawn as Overdrawn,
    Owed as Owed,
    Ownership as Ownership,
    SharedStore as SharedStore,
    StoredAccount as StoredAccount,
    TakenSlots as TakenSlots,
    Ticket as Ticket,
    WorkerInfo as WorkerInfo,
    WorkerRow as WorkerRow,
)
from treefold.core.store import (
    Call as Call,
    Entry as Entry,
    Message as Message,
    Store as Store,
    TreeRow as TreeRow,
)
from treefold.stores.memory_store import MemoryStore as MemoryStore
from treefold.stores.sqlite_store import SqliteStore as SqliteStore
from treefold.stores.transfer import export_tree as export_tree, import_tree as import_tree
