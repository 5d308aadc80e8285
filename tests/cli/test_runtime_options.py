"""What decides about a run, on the command line: budgets, prices, hooks, a Runtime of a program."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from command_line import treefold
from treefold import Budget, TokenUsage
from treefold.cli.runtime_options import RuntimeOptions, load_runtime, priced, read_budget
from treefold.testing import ScriptedModel


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("usd=2", Budget(usd=2)),
        ("usd=0.5,tokens=1000", Budget(usd=0.5, tokens=1000)),
        ("seconds=1.5, calls=3", Budget(seconds=1.5, calls=3)),
    ],
)
def test_a_budget_is_a_list_of_limits(text: str, budget: Budget):
    assert read_budget(text) == budget


@pytest.mark.parametrize("text", ["", "2", "usd", "usd=much", "euros=2", "tokens=1.5", "usd=-1"])
def test_what_is_no_budget_is_refused_with_an_example(text: str):
    with pytest.raises(ValueError, match="(give limits such as usd=2|give 0 or more)"):
        read_budget(text)


def test_a_price_is_for_a_million_tokens_of_input_and_of_output():
    model = priced(ScriptedModel(), "0.5/2")
    usage = TokenUsage(input=1_000_000, cache_read=1_000_000, output=500_000, reasoning=500_000)
    assert model.price(usage) == Decimal(3)


@pytest.mark.parametrize("text", ["", "1", "1/2/3", "a/b"])
def test_what_is_no_price_is_refused_with_an_example(text: str):
    with pytest.raises(ValueError, match="such as 0.5/2"):
        priced(ScriptedModel(), text)


def program(folder: Path, more: str = "") -> str:
    file = folder / "app.py"
    file.write_text(
        "from treefold import CodeFunction, Runtime\n"
        "def add(ctx, a: int, b: int) -> int:\n"
        "    return a + b\n"
        "add = CodeFunction(callable=add)\n"
        "async def guard(event):\n"
        "    return None\n"
        f"hooks = {{'pre_tool_use': [guard]}}\n{more}"
    )
    return str(file)


def test_hooks_of_several_modules_are_joined(tmp_path: Path):
    file = program(tmp_path)
    options = RuntimeOptions(hooks=(file, f"{file}:guard"))
    runtime = options.make([], None)
    assert len(runtime.rules.hooks["pre_tool_use"]) == 2
    runtime.close()


def test_a_runtime_is_named_itself_or_by_what_makes_it(tmp_path: Path):
    file = program(
        tmp_path,
        "runtime = Runtime([add])\n"
        "def make() -> Runtime:\n"
        "    return Runtime([add])\n"
        "def other() -> int:\n"
        "    return 1\n",
    )
    for name in "runtime", "make":
        found = load_runtime(f"{file}:{name}")
        assert found is not None
        assert set(found.invocable_functions) == {"add"}
        found.close()
    assert [load_runtime(f"{file}:{name}") for name in ("add", "other", "nothing")] == [None] * 3


def test_a_function_of_a_runtime_is_run_by_its_name(tmp_path: Path):
    file = program(tmp_path, "runtime = Runtime([add])\n")
    done = treefold("run", f"{file}:runtime", "add", "--a", "1", "--b", "2", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "3\n")


@pytest.mark.parametrize("command", ["resume", "fork"])
def test_what_needs_a_process_of_its_own_says_so(tmp_path: Path, command: str):
    file = program(tmp_path)
    treefold("run", f"{file}:add", "--a", "1", "--b", "2", "--store", "run.db", cwd=tmp_path)
    refused: Any = treefold(command, "1", "--hooks", file, cwd=tmp_path)
    assert refused.returncode == 2
    assert "--hooks: give --with MODULE, too" in refused.stderr
