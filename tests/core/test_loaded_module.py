"""Modules that are used only if the program has imported them."""

import sys
import threading
from pathlib import Path

import pytest

from treefold.core.loaded_module import loaded_module

PATIENCE = 60.0  # seconds
SLOW = """
import sys
import threading
begun, may_end = sys.modules["threading"].slow_import
begun.set()
assert may_end.wait(60)
ready = True
"""


def test_a_module_counts_as_loaded_when_its_import_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    name = "imported_slowly"
    (tmp_path / f"{name}.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    begun, may_end = threading.Event(), threading.Event()
    monkeypatch.setattr(threading, "slow_import", (begun, may_end), raising=False)
    thread = threading.Thread(target=__import__, args=(name,), daemon=True)
    try:
        assert loaded_module(name) is None
        thread.start()
        assert begun.wait(PATIENCE)
        assert name in sys.modules
        assert loaded_module(name) is None

        may_end.set()
        thread.join(PATIENCE)

        found = loaded_module(name)
        assert found is not None
        assert found.ready is True
    finally:
        may_end.set()
        sys.modules.pop(name, None)
