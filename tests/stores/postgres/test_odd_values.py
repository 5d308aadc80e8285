"""Texts and keys that PostgreSQL cannot store as they are, and values that are large."""

import psycopg
import pytest
from hypothesis import given, strategies as st

from postgres_server import shared_url
from shared_stores import LEASE, TreeWriter, info
from treefold.core.cluster import Ownership, WorkerInfo
from treefold.core.question import Question, QuestionKind
from treefold.core.store import Batch, Call, Entry
from treefold.stores.postgres import PostgresStore
from treefold.stores.postgres.rows import decode_text, encode_text, pack_hash, unpack_hash
from treefold.testing.store_suite import noted

ODD = [
    "\0",
    "\ud800",
    "\x01",
    "\x01\\x00",
    "é\0漢",
    "\\u0000",
    '"\\',
    "\r\n\t",
    "😀",
]
PAIR = "\ud83d\ude00"  # which JSON, in the text of a question, takes for one character
texts = st.text(st.characters(codec=None), max_size=20) | st.sampled_from([*ODD, PAIR])


@given(texts)
def test_every_text_is_decoded_as_it_was(text: str):
    stored = encode_text(text)
    assert decode_text(stored) == text
    assert "\0" not in stored
    stored.encode()  # which a lone surrogate could not be


@given(texts | st.binary().map(bytes.hex) | st.just("007465787420"))
def test_every_hash_is_unpacked_as_it_was(hash: str):
    assert unpack_hash(pack_hash(hash)) == hash


def test_odd_texts_come_back_as_they_were(journal_url: str):
    with PostgresStore(journal_url) as store:
        store.join(WorkerInfo(name="\0", host="\ud800", process=1, queues=["\0"]), lease=LEASE)
        assert store.cluster.members.workers()[0].info == WorkerInfo(
            name="\0", host="\ud800", process=1, queues=("\0",)
        )
        for tree, odd in enumerate(ODD, 1):
            question = Question(
                id=f"{tree}-{odd}", node_id=tree, kind=QuestionKind.Human, text=odd, choices=(odd,)
            )
            call = Call(parent=0, key=odd, index=tree, function=odd)
            entries = [
                Entry(tree=tree, node=tree, number=1, kind=odd, body=odd, call=call),
                Entry(tree=tree, node=tree, number=2, kind="x", body="{}", question=question),
                Entry(tree=tree, node=tree, number=3, kind="x", body="", texts={odd: odd}),
                Entry(tree=tree, node=tree, number=4, kind="x", body="", settled=f"0-{odd}"),
            ]
            store.append([Batch(ownership=Ownership(tree, tree, 1), entries=entries)])
            found = store.entries(tree)
            assert (found[0].kind, found[0].body, found[0].call) == (odd, odd, call)
            assert (found[1].question, found[3].settled) == (question, f"0-{odd}")
            assert store.texts(tree) == {odd: odd}
            assert store.text(odd) == store.text(odd, tree=tree) == odd
            assert store.find_key(odd) == tree
            assert store.post(odd, question=question.id)
        assert [message.body for message in store.inbox()] == ODD
        assert [row.function for row in store.trees()] == ODD
        sessions = store.sessions
        sessions.open("trip", model="\0", preview="\0")
        assert [(one.model, one.preview) for one in sessions.list()] == [("\0", "\0")]


def test_large_texts_are_written_apart_from_their_entries(postgres_url: str):
    with PostgresStore(postgres_url) as store:
        store.join(info(), lease=LEASE)
        assert store.largest >= 100_000_000
        tree = TreeWriter(store, 1)
        large = ["a" * 20_000_000, "b" * 20_000_000, "é" * 5_000_000]
        for text in large:
            tree.note(text)
        tree.note("short")
        assert tree.write() == 5
        assert sorted(map(len, store.texts(1).values())) == [5, 5_000_000, 20_000_000, 20_000_000]
        assert store.text(f"{4:032x}") == large[2]
        tree.note("c" * 1000)
        assert tree.write() == 6


def test_a_text_that_was_written_is_not_sent_again(journal_url: str):
    schema = journal_url.rpartition("=")[2]
    with PostgresStore(journal_url) as store:
        store.join(info(), lease=LEASE)
        tree = TreeWriter(store, 1)
        tree.entries.append(noted(1, 2, "long", hash="aa"))
        tree.write()
        tree.entries.append(noted(1, 3, "long", hash="aa"))
        tree.write()
        assert store.texts(1) == {"aa": "long"}
        with psycopg.connect(shared_url(), autocommit=True) as connection:
            kept = connection.execute(f"SELECT count(*) FROM {schema}.texts".encode()).fetchone()
            assert kept == (1,)


@pytest.mark.parametrize("count", [1, 199, 200, 201, 450])
def test_any_number_of_drives_is_written_at_once(journal_url: str, count: int):
    with PostgresStore(journal_url) as store:
        store.join(info(), lease=LEASE)
        trees = [TreeWriter(store, tree) for tree in range(1, count + 1)]
        assert store.append([tree.batch() for tree in trees]) == [1] * count
        assert len(store.trees()) == count
