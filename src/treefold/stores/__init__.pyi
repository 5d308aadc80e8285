"""What ``treefold.stores`` exports, for type checkers; ``__init__.py`` loads it on first use."""

from treefold.core.cluster import (
    Cluster as Cluster,
    Drives as Drives,
    Estimate as Estimate,
    Load as Load,
    Members as Members,
    Orders as Orders,
    Overdrawn as Overdrawn,
    Owed as Owed,
    Ownership as Ownership,
    SharedLimits as SharedLimits,
    StoredAccount as StoredAccount,
    WorkerInfo as WorkerInfo,
    WorkerRow as WorkerRow,
)
from treefold.core.sessions import (
    SavedSession as SavedSession,
    SessionInfo as SessionInfo,
    Sessions as Sessions,
)
from treefold.core.store import (
    Batch as Batch,
    Call as Call,
    Entry as Entry,
    Message as Message,
    Store as Store,
    TreeRow as TreeRow,
)
from treefold.core.work_engine import Ticket as Ticket
from treefold.stores.memory_store import MemoryStore as MemoryStore
from treefold.stores.sqlite_store import SqliteStore as SqliteStore
from treefold.stores.transfer import export_tree as export_tree, import_tree as import_tree
