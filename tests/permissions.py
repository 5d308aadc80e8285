"""Being somebody who may not write everywhere."""

import os
from collections.abc import Generator
from contextlib import contextmanager

UNPRIVILEGED = 65534


@contextmanager
def without_privileges() -> Generator[None]:
    """To root no file is read-only, so be somebody else for a while."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(UNPRIVILEGED)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
