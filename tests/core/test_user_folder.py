"""Where files of the user are kept: users have chats and weights in these places."""

import sys
from pathlib import Path

import pytest

from treefold.core.user_folder import cache_folder, data_folder


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TREEFOLD_HOME", "TREEFOLD_CACHE", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.skipif(sys.platform != "linux", reason="each system has its own")
def test_on_linux_they_are_where_the_xdg_specification_says(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    assert data_folder() == home / ".local" / "share" / "treefold"
    assert cache_folder() == home / ".cache" / "treefold"
    monkeypatch.setenv("XDG_DATA_HOME", "/srv/data")
    monkeypatch.setenv("XDG_CACHE_HOME", "/srv/cache")
    assert data_folder() == Path("/srv/data/treefold")
    assert cache_folder() == Path("/srv/cache/treefold")


def test_our_own_variables_come_first(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_DATA_HOME", "/srv/data")
    monkeypatch.setenv("TREEFOLD_HOME", "~/mine")
    monkeypatch.setenv("TREEFOLD_CACHE", "~/cache")
    assert data_folder() == home / "mine"
    assert cache_folder() == home / "cache"
