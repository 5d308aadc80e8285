"""Ending a process that does not end by itself."""

import warm_python

PROGRAM = """
import threading, time
from treefold.cli.last_resort import LastResort
last = LastResort({seconds}, "it is ended now")
last.begin()
last.begin()
if {ends}:
    last.close()
else:
    time.sleep(60)
"""


def test_a_process_that_blocks_is_ended_and_says_where_it_was():
    done = warm_python.run("-c", PROGRAM.format(seconds=0.05, ends=False))
    assert done.returncode == 143
    assert "it is ended now" in done.stderr
    assert "time.sleep" in done.stderr or "line 10" in done.stderr


def test_a_process_that_ends_by_itself_is_left_alone():
    done = warm_python.run("-c", PROGRAM.format(seconds=30, ends=True))
    assert (done.returncode, done.stderr) == (0, "")
