"""Commands in a folder whose Python packages belong to somebody else, as in a cloned repository."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = str(Path(sys.executable).with_name("treefold"))
NO_REGISTRY = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
TRAP = """
from pathlib import Path
with Path(__file__).parents[1].joinpath("was_imported").open("a") as file:
    file.write(__name__ + " ")
"""

SUBPROCESSES = """
import asyncio, sys
from pathlib import Path
from treefold import Runtime
from treefold.core.errors import InvalidValueError
from treefold.models.local.llama import LlamaServer
from treefold.toolbox import bash

async def main() -> None:
    with Runtime() as runtime:
        await runtime.invoke(bash, {"command": "true"})

asyncio.run(main())
try:
    LlamaServer.start(Path(sys.argv[1]))
except InvalidValueError as error:
    print(error)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with modules of the names that treefold and its subprocesses import."""
    found = tmp_path / "cloned"
    names = ("pip", "xllamacpp", "json", "subprocess", "treefold", "signal", "encodings", "site")
    for name in (*names, "sitecustomize", "usercustomize"):
        for module in ("__init__.py", "__main__.py"):
            path = found / name / module
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(TRAP)
    return found


def run(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def imported(folder: Path) -> str:
    mark = folder / "was_imported"
    return mark.read_text() if mark.exists() else ""


def test_fetching_a_model_runs_the_pip_that_is_installed(folder: Path, tmp_path: Path):
    cache = str(tmp_path / "cache")
    done = run(folder, SCRIPT, "local", "fetch", TREEFOLD_CACHE=cache, **NO_REGISTRY)
    assert imported(folder) == ""
    assert (done.returncode, "pip reported: ERROR: No matching" in done.stderr) == (1, True), done


def test_the_shell_and_a_model_that_cannot_be_loaded_import_nothing_from_there(
    folder: Path, tmp_path: Path, smollm2: Path
):
    program, cut = tmp_path / "program.py", tmp_path / "cut.gguf"
    program.write_text(SUBPROCESSES)
    with smollm2.open("rb") as file:
        cut.write_bytes(file.read(5_000_000))
    done = run(folder, sys.executable, str(program), str(cut))
    assert imported(folder) == ""
    assert "data is not within the file bounds" in done.stdout, done


def test_doctor_imports_nothing_from_the_current_folder(folder: Path, tmp_path: Path):
    run(folder, SCRIPT, "doctor", TREEFOLD_CACHE=str(tmp_path / "cache"))
    assert imported(folder) == ""


def test_a_program_that_is_named_may_import_what_is_beside_it(tmp_path: Path):
    (tmp_path / "parts.py").write_text("GREETING = 'hello'\n")
    (tmp_path / "app.py").write_text(
        "from parts import GREETING\nfrom treefold import tool\n"
        "@tool\nasync def greet() -> str:\n    '''Greet.'''\n    return GREETING\n"
    )
    for target in ("app.py:greet", "app:greet"):
        done = run(tmp_path, SCRIPT, "run", target, "--store", str(tmp_path / "run.db"))
        assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
