"""Several processes on one file, and processes that are killed while they write."""

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

import warm_python
from saved_exchanges import entries, reached, said, save
from treefold import SessionConflictError, SessionStore

TALK = """
import sys
from saved_exchanges import exchange
from treefold import SessionConflictError, SessionStore

path, who, often = sys.argv[1:]
sys.stdin.readline()
conflicts = 0
with SessionStore(path) as store:
    head = store.open("talk").head
    for n in range(int(often)):
        while True:
            try:
                head = store.append("talk", exchange(f"{who} {n}"), after=head)
                break
            except SessionConflictError:
                conflicts += 1
                head = store.open("talk").head
        print(head, flush=True)
print("conflicts", conflicts)
"""


def talk(path: Path, who: str, often: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        warm_python.command("-c", TALK, str(path), who, str(often)),
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_processes_that_make_the_file_and_go_on_with_one_session_lose_nothing(tmp_path: Path):
    path = tmp_path / "chats.db"
    talkers = [talk(path, f"process {n}", 25) for n in range(4)]
    for talker in talkers:  # all at once
        assert talker.stdin
        talker.stdin.write("\n")
        talker.stdin.flush()
    for talker in talkers:
        out, err = talker.communicate(timeout=60)
        assert (talker.returncode, err) == (0, ""), out
    with SessionStore(path) as store:
        texts = said(store.open("talk").exchanges)
        assert Counter(text.rpartition(" ")[0] for text in texts) == {
            f"process {n}": 25 for n in range(4)
        }
        for n in range(4):
            own = [text for text in texts if text.startswith(f"process {n}")]
            assert own == [f"process {n} {k}" for k in range(25)]
    assert entries(path) == reached(path)


def test_a_second_process_that_goes_on_with_a_session_is_noticed_by_the_first(tmp_path: Path):
    path = tmp_path / "chats.db"
    with SessionStore(path) as store:
        head = save(store, "talk", "a")
        out, err = talk(path, "other", 1).communicate("\n", timeout=60)
        assert err == "", out
        with pytest.raises(SessionConflictError):
            store.keep("talk", [], after=head)
        assert said(store.open("talk").exchanges) == ["a", "other 0"]


def test_whatever_a_killed_process_reported_as_saved_is_there(tmp_path: Path):
    path = tmp_path / "chats.db"
    expected = 0
    for life in range(5):
        talker = talk(path, f"life {life}", 100_000)
        assert talker.stdin
        assert talker.stdout
        talker.stdin.write("\n")
        talker.stdin.flush()
        for _ in range(20 + 13 * life):
            talker.stdout.readline()
        talker.kill()
        rest, _ = talker.communicate(timeout=60)
        reported = 20 + 13 * life + rest.count("\n")
        with SessionStore(path) as store:
            texts = said(store.open("talk").exchanges)
            assert store.list()[0].exchanges == len(texts)
        own = texts[expected:]
        assert own == [f"life {life} {n}" for n in range(len(own))]
        assert reported <= len(own)  # what it said last may still be in the pipe
        expected = len(texts)
    assert entries(path) == reached(path)


MAKE = """
import sys
from treefold import SessionStore

for line in sys.stdin:
    with SessionStore(line.rstrip("\\n")) as store:
        print(len(store.list()), flush=True)
"""


def test_processes_that_make_a_file_at_the_same_moment_all_get_it(tmp_path: Path):
    makers = [
        subprocess.Popen(
            warm_python.command("-c", MAKE),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(4)
    ]  # fmt: skip
    for n in range(30):
        for maker in makers:
            assert maker.stdin
            maker.stdin.write(f"{tmp_path}/{n}.db\n")
            maker.stdin.flush()
        for maker in makers:
            assert maker.stdout
            assert maker.stdout.readline() == "0\n", maker.communicate(timeout=60)
    for maker in makers:
        assert maker.communicate(timeout=60) == ("", "")
