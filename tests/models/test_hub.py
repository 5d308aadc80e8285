"""Weights from a Hugging Face hub: resumed, verified, or refused in words."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hub_server import BLOCK, COMMIT, CONTENT, Hub, serving_hub
from treefold.core.errors import UsageError
from treefold.models import LocalModel, fetch_weights
from treefold.models.local.weights import WeightsUnavailableError, cached_weights, find_verified


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving_hub() as hub:
        yield hub


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_a_file_is_fetched_once_with_progress(hub: Hub, tmp_path: Path):
    seen: list[tuple[int, int]] = []
    path = fetch_weights(hub.weights(), folder=tmp_path, on_progress=lambda *at: seen.append(at))
    assert (path, path.read_bytes()) == (tmp_path / "tiny.gguf", CONTENT)
    size = len(CONTENT)
    assert seen == [(0, size), (BLOCK, size), (size, size)]
    assert left_in(tmp_path) == ["tiny.gguf"]
    asked = len(hub.requests)
    assert fetch_weights(hub.weights(), folder=tmp_path) == path
    assert len(hub.requests) == asked


def test_a_download_that_breaks_off_is_continued_where_it_was(hub: Hub, tmp_path: Path):
    hub.cuts = 1
    assert fetch_weights(hub.weights(), folder=tmp_path).read_bytes() == CONTENT
    assert hub.ranges == ["", f"bytes={BLOCK}-"]


def test_a_fetch_that_is_interrupted_is_resumed_by_the_next(hub: Hub, tmp_path: Path):
    def stop(done: int, total: int) -> None:
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_weights(hub.weights(), folder=tmp_path, on_progress=stop)
    assert cached_weights(hub.weights(), folder=tmp_path) is None
    assert (tmp_path / ".tiny.gguf.partial").stat().st_size == BLOCK
    seen: list[int] = []
    path = fetch_weights(
        hub.weights(), folder=tmp_path, on_progress=lambda done, _: seen.append(done)
    )
    assert (path.read_bytes(), seen[0], hub.ranges[-1]) == (CONTENT, BLOCK, f"bytes={BLOCK}-")
    assert left_in(tmp_path) == ["tiny.gguf"]


def test_never_more_than_the_file_is_written(hub: Hub, tmp_path: Path):
    hub.endless = True
    weights, sizes = hub.weights(), list[int]()

    def measure(done: int, total: int) -> None:
        sizes.append((tmp_path / ".tiny.gguf.partial").stat().st_size)

    with pytest.raises(WeightsUnavailableError, match=rf"more than the {weights.size} bytes of"):
        fetch_weights(weights, folder=tmp_path, on_progress=measure)
    assert max(sizes) <= weights.size
    assert (tmp_path / ".tiny.gguf.partial").stat().st_size == 0
    hub.endless = False
    assert fetch_weights(weights, folder=tmp_path).read_bytes() == CONTENT


def test_other_bytes_of_the_right_size_are_removed(hub: Hub, tmp_path: Path):
    hub.content = CONTENT[::-1]
    weights = hub.weights()
    with pytest.raises(WeightsUnavailableError, match=f"instead of {weights.sha256}; it was remov"):
        fetch_weights(weights, folder=tmp_path)
    assert left_in(tmp_path) == []


def test_another_file_is_refused_before_it_is_downloaded(hub: Hub, tmp_path: Path):
    hub.etag = "0" * 64
    with pytest.raises(WeightsUnavailableError, match="another file of that name .*SHA-256 0000"):
        fetch_weights(hub.weights(), folder=tmp_path)
    assert (hub.ranges, left_in(tmp_path)) == ([], [])


@pytest.mark.parametrize("why", ["missing", "no hub", "full disk", "no file"])
def test_the_error_says_why_and_what_to_do(hub: Hub, tmp_path: Path, why: str):
    weights = hub.weights()
    if why == "missing":
        hub.missing = True
        words = f"{hub.url} answered with HTTP 404 for someone/Tiny-GGUF/tiny.gguf"
    elif why == "no hub":
        with serving_hub() as gone:
            weights = gone.weights()
        words = f"{gone.url} cannot be reached (ConnectError: "
    elif why == "full disk":
        hub.size = 10**18
        weights = replace(weights, size=hub.size)
        words = f"{tmp_path} has "
    else:
        (tmp_path / ".tiny.gguf.partial").mkdir()
        words = f"Is a directory ({tmp_path / '.tiny.gguf.partial'})"
    with pytest.raises(UsageError) as caught:
        fetch_weights(weights, folder=tmp_path)
    assert f"tiny.gguf could not be fetched: {words}" in str(caught.value)
    for advice in ("run 'treefold local fetch tiny'", "LocalModel(", "set TREEFOLD_CACHE"):
        assert advice in str(caught.value)


def in_hub_cache(home: Path, content: bytes = CONTENT) -> Path:
    """Put a file where the hub's library keeps those that it downloads."""
    repository = home / "hub" / "models--someone--Tiny-GGUF"
    for path, data in [
        (repository / "refs" / "main", COMMIT.encode()),
        (repository / "snapshots" / COMMIT / "tiny.gguf", content),
    ]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return path


def run(code: str, **environment: str) -> str:
    """Run *code* in a process that reads *environment*, as the hub's library does at its start."""
    begin = (
        "from pathlib import Path\n"
        "from treefold.models.local.catalogue import HubFile, Weights\n"
        "from treefold.models.local.weights import fetch_weights, find_verified\n"
    )
    command = [sys.executable, "-c", begin + code]
    env = os.environ | environment
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def test_a_file_in_the_cache_of_the_hub_is_verified_once_and_used(hub: Hub, tmp_path: Path):
    path, ours = in_hub_cache(tmp_path / "home"), tmp_path / "ours"
    weights = hub.weights()
    found = run(
        f"print(find_verified({weights!r}, folder=Path({str(ours)!r})))",
        HF_HOME=str(tmp_path / "home"),
    )
    assert found == f"{ours / 'tiny.gguf'}\n"
    # From now on the link is enough.
    assert cached_weights(weights, folder=ours) == ours / "tiny.gguf"
    assert (ours / "tiny.gguf").resolve() == path
    assert hub.requests == []
    path.unlink()
    assert find_verified(weights, folder=ours) is None


def test_the_token_of_the_user_is_sent_to_the_hub_and_nowhere_else(hub: Hub, tmp_path: Path):
    run(f"fetch_weights({hub.weights()!r}, folder=Path({str(tmp_path)!r}))", HF_TOKEN="hf_secret")
    assert left_in(tmp_path) == ["tiny.gguf"]
    assert hub.tokens == {
        "/someone/Tiny-GGUF/resolve/main/tiny.gguf": "Bearer hf_secret",
        "/cdn/tiny": "",
    }


def test_offline_and_with_another_file_in_its_cache_nothing_is_used(hub: Hub, tmp_path: Path):
    in_hub_cache(tmp_path / "home", CONTENT[::-1])
    said = run(
        f"fetch_weights({hub.weights()!r}, folder=Path({str(tmp_path / 'ours')!r}))",
        HF_HOME=str(tmp_path / "home"),
        HF_HUB_OFFLINE="1",
    )
    assert "tiny.gguf could not be fetched: HF_HUB_OFFLINE is set, so nothing is" in said
    assert hub.requests == []


def test_without_the_library_it_says_what_to_install(hub: Hub, tmp_path: Path):
    said = run(
        "import sys; sys.modules['huggingface_hub'] = None\n"
        f"fetch_weights({hub.weights()!r}, folder=Path({str(tmp_path)!r}))"
    )
    assert "a package is missing: pip install 'huggingface-hub>=2.4'" in said


def test_a_model_that_is_not_there_says_how_to_get_it(tmp_path: Path):
    said = run(
        "from treefold.models import LocalModel; LocalModel('qwen2.5-coder-1.5b').open()",
        TREEFOLD_CACHE=str(tmp_path),
        HF_HOME=str(tmp_path),
    )
    assert "fetch it once (1117 MB) with 'treefold local fetch qwen2.5-coder-1.5b'" in said
    with pytest.raises(UsageError, match="no local model is called 'qwen-coder'; did you mean"):
        LocalModel("qwen-coder").open()
