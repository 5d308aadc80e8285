"""Random lives of a store, against a dict."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from saved_exchanges import entries, exchange, reached
from treefold import SessionConflictError, SessionStore, ToolResult
from treefold.core.exchange import Exchange

NAMES = st.sampled_from(["a", "b", "c", "d"])
TEXTS = st.lists(st.sampled_from("xyz"), max_size=4)


class Life(RuleBasedStateMachine):
    """What is done to the store is done to a dict of what each session should hold."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "chats.db"
        self.store = SessionStore(self.path)
        self.expected: dict[str, tuple[tuple[Exchange, ...], tuple[ToolResult, ...]]] = {}
        self.heads: dict[str, int | None] = {}
        self.old_heads: set[int | None] = set()

    @rule(name=NAMES)
    def open(self, name: str) -> None:
        saved = self.store.open(name)
        self.expected.setdefault(name, ((), ()))
        self.heads.setdefault(name, None)
        assert (saved.exchanges, saved.unsent) == self.expected[name]
        assert saved.head == self.heads[name]

    @rule(name=NAMES, text=st.sampled_from("xyz"))
    def append(self, name: str, text: str) -> None:
        if name not in self.expected:
            with pytest.raises(KeyError):
                self.store.append(name, exchange(text), after=None)
            return
        self.old_heads.add(self.heads[name])
        head = self.store.append(name, exchange(text), after=self.heads[name])
        assert head not in self.old_heads
        self.heads[name] = head
        self.expected[name] = ((*self.expected[name][0], exchange(text)), ())

    @rule(name=NAMES, contents=st.lists(st.text(max_size=3), max_size=2))
    def keep(self, name: str, contents: list[str]) -> None:
        if name in self.expected:
            results = tuple(ToolResult(str(n), content) for n, content in enumerate(contents))
            self.store.keep(name, results, after=self.heads[name])
            self.expected[name] = (self.expected[name][0], results)

    @rule(name=NAMES, cut=st.integers(0, 4), texts=TEXTS)
    def replace(self, name: str, cut: int, texts: list[str]) -> None:
        if name in self.expected:
            edited = (*self.expected[name][0][:cut], *map(exchange, texts))
            self.old_heads.add(self.heads[name])
            self.heads[name] = self.store.replace(name, edited, after=self.heads[name])
            self.expected[name] = (edited, ())

    @rule(name=NAMES, new_name=NAMES)
    def fork(self, name: str, new_name: str) -> None:
        if name in self.expected and new_name not in self.expected:
            self.store.fork(name, new_name)
            self.expected[new_name] = self.expected[name]
            self.heads[new_name] = self.heads[name]
        else:
            with pytest.raises((KeyError, ValueError)):
                self.store.fork(name, new_name)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if name in self.expected:
            self.store.delete(name)
            del self.expected[name]
            self.old_heads.add(self.heads.pop(name))
        else:
            with pytest.raises(KeyError):
                self.store.delete(name)

    @rule(name=NAMES)
    def go_on_from_an_outdated_head(self, name: str) -> None:
        if name in self.expected:
            for head in self.old_heads - {self.heads[name]}:
                with pytest.raises(SessionConflictError):
                    self.store.append(name, exchange("never"), after=head)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = SessionStore(self.path)

    @invariant()
    def the_list_is_right(self) -> None:
        lengths = {info.name: info.exchanges for info in self.store.list()}
        assert lengths == {name: len(held) for name, (held, _) in self.expected.items()}

    @invariant()
    def no_entry_is_lost_or_left_over(self) -> None:
        assert entries(self.path) == reached(self.path)

    def teardown(self) -> None:
        for name, (exchanges, unsent) in self.expected.items():
            saved = self.store.open(name)
            assert (saved.exchanges, saved.unsent) == (exchanges, unsent)
        self.store.close()
        shutil.rmtree(self.folder)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)
