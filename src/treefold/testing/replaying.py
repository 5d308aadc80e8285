"""``replay``: run a recorded tree again, offline, and report the first divergence."""

import os
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from treefold.core.decisions import Hooks
from treefold.core.errors import InvalidValueError, StoreError
from treefold.core.function import Function
from treefold.core.store import Store
from treefold.core.views import NodeView
from treefold.runtime.durable.tree_reader import read_events, reporting_damage
from treefold.stores.memory_store import MemoryStore
from treefold.stores.opening import open_store
from treefold.stores.sqlite_store import SqliteStore
from treefold.stores.transfer import import_tree
from treefold.stores.urls import is_url
from treefold.testing.divergence import Divergence
from treefold.testing.recording import Recording
from treefold.testing.replay_runtime import ReplayRuntime

_SQLITE: Final = b"SQLite format 3\0"  # the first bytes of every SQLite file

Source = Store | str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Replay:
    """The outcome of a replay.

    Attributes:
        divergence: the first difference from the recording; None if there is none.
        output: the result of the top-level call; None if it failed or did not end.
        view: the tree, as far as it ran.

    Example:
        >>> from treefold import MemoryStore, Runtime, agent
        >>> from treefold.testing import ScriptedModel, replay
        >>> @agent
        ... def greet(name: str) -> str:
        ...     return f"Greet {name}."
        >>> store = MemoryStore()
        >>> with Runtime([greet], models=ScriptedModel("Hi, Ada!"), store=store) as runtime:
        ...     _ = runtime.invoke(greet, {"name": "Ada"}).result()
        >>> again = replay([greet], store)
        >>> again.check()
        >>> again.output, again.view.state.name
        ('Hi, Ada!', 'Success')
    """

    divergence: Divergence | None
    output: Any
    view: NodeView

    def check(self) -> None:
        """Raise AssertionError with the difference if there was a divergence."""
        if self.divergence is not None:
            raise AssertionError(str(self.divergence))


def replay(
    functions: Iterable[Function],
    source: Source,
    tree: int | None = None,
    hooks: Hooks | None = None,
    deps: object = None,
) -> Replay:
    """Run a recorded tree again, in memory, with *functions* as they are now.

    Agents, and code that may call other functions, run. Everything else comes from the recording
    and is not done again: the responses of models, the results and exceptions of other code, and
    the answers of people. The first divergence ends the replay: a call that was not made before, or
    is not made any more; a request with another system prompt, other functions or other inputs;
    another output; another exception. The order of calls does not matter. An unfinished tree is
    replayed as far as it was recorded.

    Args:
        functions: the top-level functions; those that they use are found.
        source: the path of a journal, which is only read, or of an exported tree, or a Store.
        tree: the id of the top-level call; by default the newest.
        hooks: decision hooks for the calls that models ask for; without them, the recorded
            decisions apply.
        deps: what code and prompts have as ``ctx.deps``, as for a Runtime.

    Raises:
        InvalidValueError: there is no such tree, or no function for it.
        UsageError: the tree is a turn of a chat, which cannot be replayed.
        StoreError: the source cannot be read.

    Example:
        >>> from treefold import MemoryStore, Runtime, agent
        >>> from treefold.testing import ScriptedModel, replay
        >>> @agent(system="You are polite.")
        ... def greet(name: str) -> str:
        ...     return f"Greet {name}."
        >>> store = MemoryStore()
        >>> with Runtime([greet], models=ScriptedModel("Hi, Ada!"), store=store) as runtime:
        ...     _ = runtime.invoke(greet, {"name": "Ada"}).result()
        >>> @agent(system="You are rude.")
        ... def greet(name: str) -> str:
        ...     return f"Greet {name}."
        >>> print(replay([greet], store).divergence)
        a system prompt that differs: greet (run 1)
        --- recorded: greet (run 1)
        +++ now: greet (run 1)
        @@ -1 +1 @@
        -You are polite.
        +You are rude.
    """
    with _opened(source) as store:
        found = _found(store, tree)
        events = read_events(store, found)
        with reporting_damage(store, found):
            recording = Recording(events)
        runtime = ReplayRuntime(functions, recording, hooks, store.id, deps)
    try:
        root = runtime.play()
        return Replay(runtime.divergence, root.outputs, runtime.get_view(root.id))
    finally:
        runtime.close()


def journal_fixture(source: Source, functions: Iterable[Function], tree: int | None = None) -> Any:
    """Return a pytest fixture whose value is the Replay of a tree.

    A relative path is looked up in the folder of the test, then in the current folder.

    Example:
        >>> from treefold import MemoryStore, Runtime, agent
        >>> from treefold.testing import ScriptedModel, journal_fixture
        >>> @agent
        ... def greet(name: str) -> str:
        ...     return f"Greet {name}."
        >>> store = MemoryStore()
        >>> with Runtime([greet], models=ScriptedModel("Hi, Ada!"), store=store) as runtime:
        ...     _ = runtime.invoke(greet, {"name": "Ada"}).result()
        >>> greeting = journal_fixture(store, [greet])
        >>> def test_the_greeting_has_not_changed(greeting):
        ...     greeting.check()
    """
    import pytest  # noqa: PLC0415 - it is installed only for tests

    functions = list(functions)

    @pytest.fixture
    def replayed(request: pytest.FixtureRequest) -> Replay:
        if not isinstance(source, str | os.PathLike):
            return replay(functions, source, tree)
        beside = request.path.parent / source
        return replay(functions, beside if beside.exists() else source, tree)

    return replayed


@contextmanager
def _opened(source: Source) -> Generator[Store]:
    """Open the journal or exported tree at *source*; a Store is used as it is."""
    if not isinstance(source, str | os.PathLike):
        yield source
        return
    if is_url(source):
        with closing(open_store(source, create=False)) as store:
            yield store
        return
    path = Path(source)
    try:
        with path.open("rb") as file:
            is_journal = file.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        raise StoreError(str(path), f"it cannot be read ({error.strerror or error})") from error
    if is_journal:
        with SqliteStore(path) as store:
            yield store
    else:
        store = MemoryStore()
        store.join()
        import_tree(store, path)
        yield store


def _found(store: Store, tree: int | None) -> int:
    trees = store.trees()
    if tree is None and trees:
        return trees[-1].id
    if tree in {row.id for row in trees}:
        return tree
    known = ", ".join(f"{row.id} ({row.function}, {row.state})" for row in trees) or "none"
    wanted = "no tree" if tree is None else f"no tree {tree!r}"
    raise InvalidValueError(f"{store.name} has {wanted}; there are: {known}")
