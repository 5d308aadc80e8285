"""Wrong usage, help, exit codes and completion of the command."""

import ctypes
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import survey_journals
import warm_python
from command_results import PATIENCE, Done, environment, treefold
from support import heed_interrupts, wait
from survey_journals import SURVEY, Journal, has_begun

COMMANDS = [
    "run", "chat", "ps", "tree", "stack", "transcript", "flame", "say", "pause", "resume", "cancel",
    "questions", "answer", "fork", "replay", "diff", "check", "export", "view", "local", "mcp",
    "doctor", "completion", "import", "delete", "vacuum", "store", "init", "worker", "workers",
]  # fmt: skip

READING = {
    "ps": [], "tree": ["1"], "stack": ["1"], "transcript": ["1"], "flame": ["1"], "questions": [],
    "diff": ["1", "1"],
}  # fmt: skip

ACTING = {"pause": ["1"], "resume": ["1"], "cancel": ["1"], "answer": ["1-1", "yes"], "fork": ["1"]}

ALL = {**READING, **ACTING, "view": []}


def on(command: str, file: object) -> Done:
    return treefold(command, *ALL[command], "--store", file)


# --- help


def test_help_lists_every_command():
    done = treefold("--help")
    assert done.code == 0
    listed = re.findall(r"^ {2,4}(\w+) {2,}\S", done.out, re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_the_exit_codes(command: str):
    done = treefold(command, "--help")
    assert (done.code, done.err) == (0, "")
    assert re.search(rf"^examples?:\s+(\$ )?treefold {command}\b", done.out, re.MULTILINE), done.out
    assert re.search(r"^exit codes?:", done.out, re.MULTILINE), done.out


def test_a_command_that_is_not_there_is_wrong_usage():
    treefold("trea").refused("trea")


def test_no_command_is_not_a_crash():
    done = treefold()
    assert done.code in {0, 2}
    assert "Traceback" not in done.err


# --- no store, unknown things


@pytest.mark.parametrize("command", ALL)
def test_no_store_is_a_clear_error(tmp_path: Path, command: str):
    treefold(command, *ALL[command], cwd=tmp_path).refused("run.db", "--store")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ALL)
def test_a_store_that_is_not_there_is_not_made(tmp_path: Path, command: str):
    on(command, tmp_path / "no.db").refused("no.db")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Journal:
    return survey_journals.finished(tmp_path_factory.mktemp("finished"))


@pytest.mark.parametrize(
    "command", ["tree", "stack", "transcript", "flame", "pause", "resume", "cancel", "fork"]
)
def test_an_unknown_run_or_node_is_not_found(finished: Journal, command: str):
    treefold(command, "4711", "--store", finished.file).refused("4711")


@pytest.mark.parametrize("name", ["1.9.9", "weekly", "-3", "", "1.", "9" * 30])
def test_whatever_the_name_is_it_is_not_found_in_words(finished: Journal, name: str):
    treefold("tree", "--store", finished.file, "--", name).refused(name)


def test_an_unknown_question_is_not_found(finished: Journal):
    treefold("answer", "9-9", "yes", "--store", finished.file).refused("9-9")


# --- damaged and unreadable journals


def _empty(file: Path) -> None:
    file.touch()


def _garbage(file: Path) -> None:
    file.write_bytes(os.urandom(10_000))


def _text(file: Path) -> None:
    file.write_text("not a database\n" * 1000)


def _of_others(file: Path) -> None:
    with sqlite3.connect(file) as database:
        database.execute("create table stamps (id, price)")
    database.close()


def _cut(file: Path) -> None:
    whole = survey_journals.finished(file.parent).file.read_bytes()
    for left in file.parent.iterdir():
        left.unlink()
    file.write_bytes(whole[: len(whole) // 2])


def _overwritten(file: Path) -> None:
    whole = bytearray(survey_journals.finished(file.parent).file.read_bytes())
    for left in file.parent.iterdir():
        left.unlink()
    whole[4096:] = b"\xa5" * (len(whole) - 4096)
    file.write_bytes(whole)


DAMAGE = [_empty, _garbage, _text, _of_others, _cut, _overwritten]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda made: made.__name__.strip("_"))
@pytest.mark.parametrize("command", ["ps", "tree", "view"])
def test_a_damaged_journal_is_told_in_words(tmp_path: Path, damage: object, command: str):
    assert callable(damage)
    damage(tmp_path / "run.db")
    on(command, tmp_path / "run.db").refused("run.db")


def test_a_folder_is_no_journal(tmp_path: Path):
    on("ps", tmp_path).refused(str(tmp_path))


def _without_privileges() -> None:
    """Have root, too, bound by the modes of files in the program that is started next."""
    libc = ctypes.CDLL(None)
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


@pytest.mark.skipif(sys.platform != "linux", reason="privileges are given up by a call of Linux")
@pytest.mark.parametrize("command", ["ps", "tree", "view"])
def test_an_unreadable_file_is_told_in_words(tmp_path: Path, command: str):
    file = survey_journals.finished(tmp_path).file
    file.chmod(0)
    done = subprocess.run(
        [sys.executable, "-m", "treefold", command, "--store", str(file)],
        env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False,
        stdin=subprocess.DEVNULL, preexec_fn=_without_privileges,
    )  # fmt: skip
    Done(done.returncode, done.stdout, done.stderr).refused("run.db")


# --- pipes


def shell(line: str) -> Done:
    line = line.replace("TREEFOLD", f"{sys.executable} -m treefold")
    done = subprocess.run(
        ["bash", "-c", line], env=environment(), capture_output=True, text=True,
        timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Journal:
    return survey_journals.large(tmp_path_factory.mktemp("wide"), branches=20)


@pytest.mark.parametrize("command", ["tree", "tree --json", "flame", "ps"])
def test_a_reader_who_leaves_is_no_error_to_tell(wide: Journal, command: str):
    done = shell(f"TREEFOLD {command} --store {wide.file} | head -1")
    assert done.err == ""
    assert len(done.out.splitlines()) == 1


@pytest.mark.parametrize("command", ["tree", "ps"])
def test_a_disk_that_is_full_is_told_without_a_traceback(wide: Journal, command: str):
    done = shell(f"TREEFOLD {command} --store {wide.file} > /dev/full")
    assert done.code != 0
    assert "Traceback" not in done.err
    assert "Exception ignored" not in done.err


def test_a_closed_stdout_is_no_traceback(wide: Journal):
    assert "Traceback" not in shell(f"TREEFOLD ps --store {wide.file} >&-").err


# --- run, check, doctor: exit codes


def test_run_that_returns_is_0_and_prints_its_result():
    done = treefold("run", f"{SURVEY}:counting", "--arg", "text=moss")
    assert (done.code, done.out.splitlines()[-1]) == (0, "4")


def test_run_that_raises_is_1():
    done = treefold("run", f"{SURVEY}:exploding", "--arg", "text=moss")
    assert done.code == 1
    assert "cannot digest moss" in done.err + done.out


@pytest.mark.parametrize("name", ["no_such_module:f", "{stage}:nothing", "{stage}", ""])
def test_run_of_what_is_not_there_is_2(name: str):
    treefold("run", name.format(stage=SURVEY)).refused()


def test_run_with_a_wrong_argument_is_2():
    treefold("run", f"{SURVEY}:counting", "--arg", "nonsense=1").refused("nonsense")


def test_run_that_is_interrupted_is_130(tmp_path: Path):
    store = tmp_path / "run.db"
    with subprocess.Popen(
        warm_python.command("-m", "treefold", "run", f"{SURVEY}:gating",
            "--arg", f"file={tmp_path / 'never'}", "--store", str(store)),
        env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts,
    ) as process:  # fmt: skip
        try:
            wait(lambda: has_begun(store))
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err


def test_check_of_sound_functions_is_0():
    done = treefold("check", f"{SURVEY}:watched")
    assert (done.code, "Traceback" in done.err) == (0, False), done


def faulty(folder: Path) -> Path:
    (folder / "faulty.py").write_text(
        "from treefold import agent\n"
        "@agent\ndef one(a: str) -> str:\n    return 'x'\n"
        "from treefold import AgentFunction, FunctionArg\n"
        "two = AgentFunction('two', 'Two.', args=[FunctionArg('a', str, 'A')],\n"
        "    system_prompt='', user_prompt_template='{a} {nobody}')\n"
    )
    return folder / "faulty.py"


def test_check_of_faulty_functions_is_1_and_names_the_fault(tmp_path: Path):
    done = treefold("check", faulty(tmp_path))
    assert done.code == 1, done
    assert "nobody" in done.out + done.err
    assert "Traceback" not in done.err


def test_check_as_json_is_one_value(tmp_path: Path):
    done = treefold("check", faulty(tmp_path), "--json")
    assert done.code == 1
    assert "nobody" in str(done.json)


def test_check_of_nothing_is_2(tmp_path: Path):
    treefold("check", tmp_path / "none.py").refused("none.py")


def test_doctor_says_what_is_installed_and_which_keys_are_found():
    done = treefold("doctor", "--json", env={"ANTHROPIC_API_KEY": "sk-secret-value"})
    assert done.code in {0, 1}, done
    text = str(done.json)
    assert "ANTHROPIC_API_KEY" in text
    assert "starlette" in text or "web" in text
    assert "sk-secret-value" not in text


def test_doctor_never_shows_a_key():
    done = treefold("doctor", env={"OPENAI_API_KEY": "sk-secret-value"})
    assert done.code in {0, 1}, done
    assert "OPENAI_API_KEY" in done.out
    assert "secret" not in done.out + done.err


# --- completion


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_that_the_shell_understands(name: str, tmp_path: Path):
    done = treefold("completion", name)
    assert (done.code, done.err) == (0, "")
    assert "treefold" in done.out
    if shutil.which(name):
        (tmp_path / "script").write_text(done.out)
        subprocess.run([name, "-n", str(tmp_path / "script")], check=True, timeout=PATIENCE)


def test_completion_of_bash_knows_every_command():
    script = treefold("completion", "bash").out
    line = (
        'source /dev/stdin; COMP_WORDS=(treefold ""); COMP_CWORD=1; COMP_LINE="treefold "; '
        "COMP_POINT=7; f=$(complete -p treefold | sed 's/.*-F \\([^ ]*\\).*/\\1/'); "
        '$f treefold "" treefold; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    bin = str(Path(sys.executable).parent)
    done = subprocess.run(
        ["bash", "-c", line], input=script, capture_output=True, text=True, timeout=PATIENCE,
        check=True, env=environment(PATH=f"{bin}:{os.environ['PATH']}"),
    )  # fmt: skip
    assert {word.strip() for word in done.stdout.split()} >= set(COMMANDS)


def test_completion_of_an_unknown_shell_is_2():
    treefold("completion", "nosuchshell").refused("nosuchshell")
