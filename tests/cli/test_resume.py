"""``treefold resume`` of runs that failed, as a person uses it."""

from pathlib import Path

import warm_python
from treefold import attach

PROGRAM = """
from treefold import Budget, Runtime, ToolUse, agent, tool
from treefold.testing import ScriptedModel

@tool
async def look(n: int) -> str:
    with open("looked", "a") as file:
        file.write(f"{n} ")
    return "nothing"

@agent(uses=[look])
def find() -> str:
    return "Find."

def reply(request):
    made = sum(isinstance(part, ToolUse) for part in request.transcript)
    return "found" if made == 3 else ToolUse(str(made), "look", {"n": made})

model = ScriptedModel(reply)

if __name__ == "__main__":
    with Runtime([find], models=model, store="run.db") as runtime:
        print(runtime.invoke(find, key="nightly", budget=Budget(calls=1)).result())
"""


def test_a_run_without_money_goes_on_with_more(tmp_path: Path):
    (tmp_path / "job.py").write_text(PROGRAM)

    def treefold(*args: str) -> tuple[int, str, str]:
        done = warm_python.run("-m", "treefold", *args, cwd=tmp_path)
        return done.returncode, done.stdout, done.stderr

    failed = warm_python.run("job.py", cwd=tmp_path)
    assert "invoke the key 'nightly' again, or 'treefold resume 1 --budget" in failed.stderr
    here = ["--with", "job.py", "--default-model", "job.py:model"]
    code, _, told = treefold("resume", "nightly", *here)
    assert (code, "1 of 1 requests" in told) == (1, True)
    code, _, told = treefold("resume", "nightly", "--budget", "calls=2", *here)
    assert (code, "2 of 2 requests" in told) == (1, True)
    # The number of the first run leads to what became of it, too.
    code, printed, told = treefold("resume", "1", "--budget", "calls=4", *here)
    assert (code, printed) == (0, "found\n"), told
    assert (tmp_path / "looked").read_text() == "0 1 2 "
    with attach(tmp_path / "run.db") as observer:
        assert [tree.key for tree in observer.trees()] == ["nightly"] * 4
    code, _, told = treefold("resume", "1")
    assert (code, "has ended (success)" in told) == (2, True)
