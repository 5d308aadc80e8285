from pathlib import Path

import pytest


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Where a journal will be."""
    return tmp_path / "run.db"
