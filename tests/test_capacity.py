"""The table of the page about capacity is what bench/capacity.py computes."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_table_of_what_many_workers_cost_is_the_one_that_the_script_prints():
    script = ROOT / "bench" / "capacity.py"
    done = subprocess.run(
        [sys.executable, script], check=True, capture_output=True, text=True, timeout=300
    )
    page = (ROOT / "docs" / "operate" / "capacity.md").read_text("utf-8")
    assert len(done.stdout.splitlines()) > 5
    assert done.stdout in page
