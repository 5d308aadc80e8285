"""Facts are read in many threads: a worker reads each tree in one of its own."""

import warm_python

# Each class is new to msgspec, as all are in a process that has just begun.
READERS = """
import sys, threading
from treefold.core.fact import Fact, convert, decode

sys.setswitchinterval(1e-6)
for _ in range(200):
    class Inner(Fact, frozen=True):
        n: int = 0

    class Outer(Fact, frozen=True):
        inner: Inner = Inner()
        more: tuple[Inner, ...] = ()

    begin = threading.Barrier(4)

    def read(data={"inner": {"n": 1}}, text=b'{"inner":{"n":1}}'):
        begin.wait()
        assert decode(text, Outer) == convert(data, Outer) == Outer(Inner(1))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("all were read")
"""


def test_a_class_that_several_threads_read_first_at_once_does_not_crash_the_process():
    done = warm_python.run("-c", READERS)
    assert (done.returncode, done.stdout) == (0, "all were read\n"), done.stderr
