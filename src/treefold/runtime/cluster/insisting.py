"""Repeats an operation on the store until the store can be reached."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from treefold.core.errors import FencedError, StoreError
from treefold.runtime.loops.threads import in_thread

log = logging.getLogger(__name__)

RETRY: Final = 1.0  # seconds


async def insist(work: Callable[[], bool]) -> bool:
    """Do *work* in a thread, again and again until the store can be reached.

    Returns:
        What *work* returned; True if another worker has the tree, so that nothing is left to do.
    """
    while True:
        try:
            return await in_thread(work)
        except FencedError:
            return True
        except StoreError as error:
            log.debug("the store cannot be reached, and is tried again: %s", error)
            await asyncio.sleep(RETRY)
