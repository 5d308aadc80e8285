"""One life of a process that starts or continues a guarded run, in the nursery of the crash tests.

``main([WAY, FOLDER, GUARD, KILL])``: WAY is one of ``STARTS``, which have the guard, or of
``WAYS``, most of which have the functions and know nothing of it. KILL is ``before:N`` or
``after:N``, the N-th commit of this process, or empty. A person denies whatever is asked.
"""

import faulthandler
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from crash.program import die
from guards.guarded import model_for, options_of, other, plan
from treefold import Edit, QuestionKind, Runtime, attach
from treefold.cli import main as treefold
from treefold.errors import StoreError, TreefoldError, UnknownQuestionError
from treefold.stores import SqliteStore
from treefold.testing import replay

HERE: Final = Path(__file__).parent
PROGRAM: Final = str(HERE / "guarded.py")
APP: Final = str(HERE / "app.py")
KEY: Final = "plan"
PATIENCE: Final = 60  # seconds until a life that hangs says where, and ends

Way = Callable[[str], Any]  # takes the name of a guard


def main(arguments: Sequence[str]) -> None:
    """Live once."""
    way, folder, guard, kill = arguments
    faulthandler.enable()  # a process that crashes says where
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    os.environ["GUARDED"] = folder
    os.chdir(folder)
    die_at(SqliteStore, "append", kill)
    try:
        {**STARTS, **WAYS}[way](guard)
    except TreefoldError as error:  # it was refused, in words
        print(error, file=sys.stderr)  # noqa: T201
    faulthandler.cancel_dump_traceback_later()


def die_at(store: type[Any], method: str, kill: str) -> None:
    """Have the process killed just before or just after a commit of any store of this class."""
    moment, _, number = kill.partition(":")
    write, left, one_at_a_time = getattr(store, method), int(number or 0), threading.Lock()

    def fatal(self: Any, *args: Any) -> Any:
        nonlocal left
        with one_at_a_time:  # so that no other commit gets in between
            left -= 1
            if not left and moment == "before":
                die()
            place = write(self, *args)
            if not left and moment == "after":
                die()
            return place

    if kill:
        setattr(store, method, fatal)


# In a program


def open_runtime(guard: str, **options: Any) -> Runtime:
    """Open the journal with the functions, and with no guard unless *options* have one."""
    return Runtime([plan, other], models=model_for(guard), store="run.db", **options)


def deny(board: Any) -> None:
    """Say no to all that is asked; *board* is a runtime or an observer."""
    for question in board.questions():
        with suppress(UnknownQuestionError):  # its call has ended meanwhile
            if question.kind is not QuestionKind.Paused:
                board.answer(
                    question.id, "fail" if question.kind is QuestionKind.InDoubt else "deny"
                )


def until_it_rests(runtime: Runtime) -> None:
    """Wait until each run has ended, is held back, or waits for a person."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        held = {node.id for node in runtime.held_back()}
        waits = {question.node_id for question in runtime.questions()}
        moving = [
            node
            for node in runtime.list_toplevel()
            if not node.state.final
            and node.id not in held
            and not waits & {one.id for one in runtime.get_subtree(node.id)}
        ]
        if not moving:
            return
        time.sleep(0.01)
    raise AssertionError("a run neither ends nor waits")


def settle(runtime: Runtime) -> None:
    """Deny what is asked until each run has ended or is held back."""
    until_it_rests(runtime)
    while runtime.questions() and not all(node.state.final for node in runtime.list_toplevel()):
        held = len(runtime.held_back())
        deny(runtime)
        until_it_rests(runtime)
        if len(runtime.held_back()) > held:
            return


def begin(guard: str) -> None:
    """Start a guarded run."""
    with open_runtime(guard, **options_of(guard)) as runtime:
        runtime.invoke(plan, key=KEY)
        settle(runtime)


def go_on(guard: str, act: Callable[[Runtime], Any] = Runtime.recover, **options: Any) -> None:
    """Open the journal, do something with its first run, and let it come to rest."""
    with open_runtime(guard, **options) as runtime:
        runtime.recover()
        with suppress(TreefoldError):  # it is held back, or has gone on and cannot be resumed
            act(runtime)
        settle(runtime)


def fork_the_write(runtime: Runtime) -> None:
    """Fork the call that was to be decided about, if the run has come so far."""
    calls = [view for view in runtime.get_view(1).children if "write" in view.fn]
    runtime.fork(calls[0].id if calls else 1)


def post(guard: str, command: Callable[[Any], Any]) -> None:
    """Post a command to the journal as an observer does, and have a program execute it."""
    with attach("run.db") as observer:
        if observer.trees():
            with suppress(TreefoldError):  # it cannot be done to what has not been paused, say
                command(observer)
    go_on(guard)


def replay_here(guard: str) -> None:
    """Replay the run with the functions."""
    replay([plan, other], "run.db")


# On the command line


def command(*args: str, model: str = "", guard: str = "") -> None:
    """Run a command, with a person at its standard input who denies."""
    reading, writing = os.pipe()
    os.write(writing, b"deny\n" * 9)
    os.close(writing)
    os.dup2(reading, 0)
    os.close(reading)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - it ends with the process
    models = [model, f"scripted:{HERE / 'models.py'}:{guard}"] if model else []
    treefold([*args, *models])


def resume_or_fork(*args: str) -> Way:
    """Return what runs ``treefold resume`` or ``fork`` with the functions."""
    words = (*args, "--with", PROGRAM, "--store", "run.db")
    return lambda guard: command(*words, model="--default-model", guard=guard)


def run_function(name: str) -> Way:
    """Return what runs a function on the journal."""
    words = ("run", f"{PROGRAM}:{name}", "--store", "run.db", "--key", name)
    return lambda guard: command(*words, model="--model", guard=guard)


def serve(guard: str, *words: str, tool: str, args: Mapping[str, Any]) -> None:
    """Run ``treefold mcp`` with a client that makes one call, and disconnects after all rests."""
    (theirs, speaking), (hearing, ours) = os.pipe(), os.pipe()
    for file, number in (theirs, 0), (ours, 1):
        os.dup2(file, number)
        os.close(file)
    client = threading.Thread(target=_talk, args=(speaking, hearing, tool, args), daemon=True)
    client.start()
    treefold(["mcp", *words])
    client.join()


def _talk(speaking: int, hearing: int, tool: str, args: Mapping[str, Any]) -> None:
    with open(speaking, "w", encoding="utf-8") as mouth, open(hearing, encoding="utf-8") as ear:

        def say(method: str, id: int | None, **params: Any) -> None:
            said = {"jsonrpc": "2.0", "method": method, "params": params}
            mouth.write(json.dumps(said if id is None else {**said, "id": id}) + "\n")
            mouth.flush()

        me = {"name": "client", "version": "1"}
        say("initialize", 1, protocolVersion="2025-06-18", capabilities={}, clientInfo=me)
        ear.readline()
        say("notifications/initialized", None)
        denying = threading.Thread(target=_deny_until, args=(rests := threading.Event(),))
        denying.start()
        say("tools/call", 2, name=tool, arguments=args)
        answered = ear.readline()
        assert '"id":2' in answered.replace(" ", ""), answered
        rests.set()
        denying.join()


def _deny_until(over: threading.Event) -> None:
    """Deny what is asked in the journal, until the call is over and no run goes on."""
    while not _rests() or not over.wait(0.005):
        if Path("run.db").exists():
            with suppress(StoreError), attach("run.db") as observer:
                deny(observer)


def _rests() -> bool:
    with suppress(StoreError), attach("run.db") as observer:
        views = [observer.get_view(row.id) for row in observer.trees()]
        return not any(not view.state.final and not view.held_back for view in views)
    return False


def serve_guarded(guard: str) -> None:
    """Have a client call what is guarded."""
    tool = {"function": "guarded_write", "budget": "plan"}.get(guard, "write")
    args = {} if tool == "plan" else {"text": "!"}
    serve(guard, f"{APP}:{guard}", tool=tool, args=args)


def serve_journal(guard: str) -> None:
    """Serve a journal without the guard; a client calls something else."""
    model = f"scripted:{HERE / 'models.py'}:{guard}"
    serve(guard, PROGRAM, "--model", model, "--store", "run.db", tool="other", args={})


STARTS: Final[Mapping[str, Way]] = {
    "a program": begin,
    "treefold run": lambda guard: command("run", f"{APP}:{guard}", "plan", "--key", KEY),
    "treefold mcp": serve_guarded,
}
WAYS: Final[Mapping[str, Way]] = {
    "the same program": lambda guard: go_on(guard, **options_of(guard)),
    "another program": go_on,
    "its key": lambda guard: go_on(guard, lambda runtime: runtime.invoke(plan, key=KEY)),
    "resume": lambda guard: go_on(guard, lambda runtime: runtime.resume(1)),
    "fork": lambda guard: go_on(guard, lambda runtime: runtime.fork(1, edit=Edit(system="Again."))),
    "fork of the call": lambda guard: go_on(guard, fork_the_write),
    "replay": replay_here,
    "resume by an observer": lambda guard: post(guard, lambda observer: observer.resume(1)),
    "fork by an observer": lambda guard: post(guard, lambda observer: observer.fork(1)),
    "treefold run of its function": run_function("plan"),
    "treefold run of something else": run_function("other"),
    "treefold resume": resume_or_fork("resume", "last"),
    "treefold fork": resume_or_fork("fork", "last"),
    "treefold fork of the call": resume_or_fork("fork", "1.2"),
    "treefold replay": lambda guard: command("replay", "1", "--with", PROGRAM, "--store", "run.db"),
    "treefold run of the program": lambda guard: command(
        "run", f"{APP}:{guard}", "plan", "--key", KEY
    ),
    "treefold mcp of its functions": serve_journal,
}
# They start a run of their own if none has the key, and the calls of MCP clients have none.
BY_KEY: Final = ("its key", "treefold run of its function", "treefold run of the program")


def ways_after(start: str) -> list[str]:
    """Return the ways that continue a run which was started so."""
    return [way for way in WAYS if start != "treefold mcp" or way not in BY_KEY]
