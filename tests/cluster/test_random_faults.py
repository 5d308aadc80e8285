"""Random trees under random faults, a few of them; and whether broken promises are found."""

from dataclasses import replace
from pathlib import Path

import pytest

from cluster.random_faults import Options, run, story

# Long before it, all trees have ended.
NEVER = 1e6


@pytest.mark.parametrize("engine", ["procrastinate", "temporal"])
def test_all_promises_are_kept_under_random_faults(tmp_path: Path, engine: str):
    record, found = run(Options(engine=engine, trees=10, seed=1, workers=2, folder=tmp_path))
    assert not found, [
        (one, *(story(record, one.tag) if one.tag is not None else ())) for one in found
    ]
    assert len(record.trees) >= 10
    assert record.effects
    assert record.requests


def test_promises_that_are_broken_on_purpose_are_found(tmp_path: Path):
    wanted, found = {"repeated", "asked again", "limit", "two accepted"}, set[str]()
    # What people say twice depends on the moment, too.
    for seed in range(2, 7):
        options = Options(engine="procrastinate", trees=16, seed=seed, workers=2, requests=1)
        (folder := tmp_path / f"{seed}").mkdir()
        _, violations = run(replace(options, calm=NEVER, planted=True, folder=folder))
        found |= {one.kind for one in violations}
        if wanted <= found:
            break
    assert wanted <= found
