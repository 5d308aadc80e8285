"""Versions of functions: what changes them, and what does not."""

import functools
import importlib.util
import json
import linecache
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

from treefold import (
    AgentFunction,
    CodeFunction,
    Ensemble,
    FromFile,
    Function,
    FunctionArg,
    RunContext,
    ThinkMore,
    agent,
    registries,
    tool,
)
from treefold.core.model import ModelSettings
from treefold.mcp import McpFunction, McpServer
from treefold.mcp.function import McpTool
from treefold.runtime.durable.function_version import changed_parts, version_of
from treefold.toolbox import ApplyDiffPatch, Bash, TextEditor, human_in_loop

Define = Callable[[str], Any]


@pytest.fixture
def define(tmp_path: Path) -> Define:
    """Return what runs a module with this source, and returns its ``work``."""
    counter = iter(range(1000))

    def run(source: str) -> Any:
        path = tmp_path / f"module_{next(counter)}.py"
        path.write_text(dedent(source), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with registries():
            spec.loader.exec_module(module)
        return module.work

    return run


def code(callable: Callable[..., Any], **options: Any) -> CodeFunction:
    return CodeFunction(callable=callable, name="work", **options)


def changes(before: Function, now: Function) -> list[str]:
    return changed_parts(version_of(before), version_of(now))


PLAIN = """
async def work(ctx, n: int) -> str:
    total = n + 1
    return f"{total:>{n}} of {n!r}"
"""


@pytest.mark.parametrize(
    "other",
    [
        PLAIN.replace("total = n + 1", "total = n + 1  # one more\n    # and that is all"),
        PLAIN.replace("    total", '    "Say how many."\n    total'),
        PLAIN.replace("total = n + 1", "total = (\n        n\n        + 1\n    )"),
        PLAIN.replace('f"', "f'").replace('{n!r}"', "{n!r}'"),
        "import os\n\n\n" + PLAIN + "\n\ndef more(): ...\n",
        "if True:\n" + indent(PLAIN, "        "),
    ],
    ids=["comments", "docstring", "layout", "quotes", "other code in the file", "indentation"],
)
def test_how_code_is_written_is_no_change(define: Define, other: str):
    assert version_of(code(define(PLAIN))) == version_of(code(define(other)))


@pytest.mark.parametrize(
    "other",
    [
        PLAIN.replace("n + 1", "n + 2"),
        PLAIN.replace("n: int", "n: int = 3"),
        PLAIN.replace("async def", "def"),
        PLAIN.replace("!r}", "!s}"),
        PLAIN.replace("total", "count"),
        PLAIN.replace("    total", "    print(n)\n    total"),
    ],
    ids=["expression", "default", "async", "conversion", "name", "statement"],
)
def test_what_code_does_is_a_change(define: Define, other: str):
    assert changes(code(define(PLAIN)), code(define(other))) == ["code"]


def test_a_version_stays_the_same_in_later_releases(define: Define):
    """A new way to compute it would make every open call look changed."""
    plain = AgentFunction("greet", "Greet.", system_prompt="Be kind.", user_prompt_template="Hi!")
    assert version_of(code(define(PLAIN))) == "c601327"
    assert version_of(plain) == "pdab5ea-t4a29ea-sd0c9ac"


NESTED = '''
def make():
    async def inner(ctx) -> str:
        return """first
    second
third"""
    return inner

work = make()
'''


def test_what_the_compiler_warned_about_is_not_warned_about_again(define: Define):
    fn = code(define(PLAIN.replace("    total", "    pattern = '\\d'\n    total")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert version_of(fn).startswith("c")


def test_texts_of_several_lines_in_nested_code_count_as_they_are(define: Define):
    first = code(define(NESTED))
    assert version_of(first) == version_of(code(define(NESTED + "\n# the end\n")))
    assert changes(first, code(define(NESTED.replace("third", "other")))) == ["code"]
    assert changes(first, code(define(NESTED.replace("    second", "second")))) == ["code"]


def test_a_lambda_in_the_middle_of_a_statement_has_its_own_source(define: Define):
    source = """
    from treefold import CodeFunction
    work = CodeFunction(
        name="work",
        callable=lambda ctx: 3,
        desc="three",
    )
    """
    first: Function = define(source)
    assert version_of(first) == version_of(define(source.replace('"three"', '"a number"')))
    assert changes(first, define(source.replace("ctx: 3", "ctx: 4"))) == ["code"]


class Adder:
    async def __call__(self, ctx: RunContext, n: int) -> int:
        return n + 1

    async def method(self, ctx: RunContext, n: int) -> int:
        return n + 2


async def plus_one(ctx: RunContext, n: int, by: int = 1) -> int:
    return n + by


def test_methods_partials_and_callable_objects_have_the_source_of_their_function():
    functions = [
        code(Adder()),
        code(Adder().method),
        code(plus_one),
        code(functools.partial(plus_one, by=1)),
    ]
    versions = [version_of(one) for one in functions]
    assert versions[2] == versions[3]
    assert len(set(versions)) == 3
    assert all(version.startswith("c") for version in versions)
    assert versions[0] == version_of(code(Adder()))


def without_source(body: str, name: str = "work") -> CodeFunction:
    namespace: dict[str, Any] = {}
    exec(f"def {name}(ctx): {body}", namespace)
    return code(namespace[name])


def test_code_without_a_source_goes_by_its_name_and_is_not_compared_with_its_source(define: Define):
    assert version_of(without_source("return 1")).startswith("C")
    assert changes(without_source("return 1"), without_source("return 2")) == []
    assert changes(without_source("return 1"), without_source("return 1", "other")) == ["code"]
    assert changes(without_source("return 1"), code(define(PLAIN))) == []
    assert changes(code(define(PLAIN)), without_source("return 1")) == []


def test_a_file_that_was_changed_after_it_was_loaded_is_not_taken_for_the_source(define: Define):
    loaded = define(PLAIN)
    first = code(loaded)
    path = Path(loaded.__code__.co_filename)
    path.write_text(PLAIN.replace("+ 1", "+ 2"))
    later = first.made_at + 10
    os.utime(path, (later, later))
    assert version_of(first).startswith("C")
    assert changes(first, code(define(PLAIN))) == []


def test_a_cell_that_is_run_again_unchanged_has_the_same_version():
    def run(number: int, source: str) -> CodeFunction:
        file, namespace = f"<ipython-input-{number}-0>", dict[str, Any]()
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        exec(compile(source, file, "exec"), namespace)
        return code(namespace["work"])

    assert version_of(run(1, PLAIN)) == version_of(run(2, PLAIN))
    assert changes(run(1, PLAIN), run(3, PLAIN.replace("+ 1", "+ 2"))) == ["code"]


# Agents


def searching(description: str = "Search.", **types: Any) -> Function:
    async def search(ctx: RunContext, **kwargs: Any) -> str:
        return ""

    args = [FunctionArg(name, kind) for name, kind in ({"text": str} | types).items()]
    return CodeFunction(callable=search, desc=description, args=args)


def asking(**options: Any) -> AgentFunction:
    given: dict[str, Any] = {
        "system_prompt": "Be brief.",
        "user_prompt_template": "Answer: {question}",
        "args": [FunctionArg("question", str)],
        "uses": [searching()],
    }
    return AgentFunction("ask", "Answer.", **(given | options))


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({"system_prompt": "Be long."}, ["prompt"]),
        ({"user_prompt_template": "Answer this: {question}"}, ["prompt"]),
        ({"args": [FunctionArg("question", int)]}, ["prompt"]),
        ({"uses": [searching("Search well.")]}, ["tools"]),
        ({"uses": [searching(count=int)]}, ["tools"]),
        ({"uses": []}, ["tools"]),
        ({"model_tools": {"local": [human_in_loop]}}, ["tools"]),
        ({"settings": ModelSettings(temperature=0.5)}, ["settings"]),
        ({"settings": ModelSettings(extra={"seed": 1})}, ["settings"]),
        ({"default_model": "local"}, ["settings"]),
        ({"max_steps": 3}, ["settings"]),
        ({"parallel_tools": True}, ["settings"]),
        ({"returns": int}, ["settings"]),
        ({"system_prompt": "No.", "uses": [], "returns": int}, ["prompt", "tools", "settings"]),
        ({"tags": ["new"], "description": None}, []),
    ],
)  # fmt: skip
def test_two_versions_of_an_agent_say_what_has_changed(options: dict[str, Any], changed: list[str]):
    assert changes(asking(), asking(**options)) == changed


def test_the_code_that_builds_a_prompt_is_a_part_of_the_prompt(define: Define):
    source = """
    from treefold import agent
    @agent(system="Be brief.")
    def work(name: str) -> str:
        return f"Greet {name}."
    """
    first = define(source)
    assert version_of(first) == version_of(define(source.replace('."\n', '."  # so\n')))
    assert changes(first, define(source.replace("Greet", "Salute"))) == ["prompt"]


class Greeter(AgentFunction):
    @property
    def system_prompt(self) -> str:
        return "Be kind."

    @property
    def user_prompt_template(self) -> str:
        return "Greet."


class Politer(Greeter):
    @property
    def system_prompt(self) -> str:
        return "Be very kind."


class Builder(Greeter):
    async def prompt(self, ctx: RunContext, args: Any) -> str:
        return "Greet them all."


def test_what_a_subclass_overrides_counts():
    first = Greeter("greeter")
    assert changes(first, Greeter("greeter")) == []
    assert changes(first, Politer("greeter")) == ["prompt"]
    assert changes(first, Builder("greeter")) == ["prompt"]


class Own(Function):
    @property
    def parameters(self) -> Any:
        return human_in_loop.parameters

    async def run_call(self, ctx: RunContext, args: Any) -> Any:
        return 1


class Other(Own):
    async def run_call(self, ctx: RunContext, args: Any) -> Any:
        return 2


def test_a_function_of_a_class_of_ones_own_has_the_source_of_what_runs_a_call():
    assert changes(Own("own", ""), Own("own", "Something else.")) == []
    assert changes(Own("own", ""), Other("own", "")) == ["code"]


def test_a_definition_that_raises_is_logged_and_does_not_count(caplog: pytest.LogCaptureFixture):
    class Broken(Own):
        def definition(self) -> Any:
            raise ZeroDivisionError

    broken = Broken("broken", "")
    assert version_of(broken) == ""
    assert changes(broken, Own("broken", "")) == []
    assert "the version of broken is not known: ZeroDivisionError()" in caplog.text


def test_ensembles_and_mcp_tools_have_versions_of_their_own():
    plain = asking()
    first = Ensemble(plain, {"a": 2, "b": 1})
    assert changes(first, Ensemble(plain, {"b": 1, "a": 2}, reconcile_by="a")) == []
    assert changes(first, Ensemble(plain, {"a": 3, "b": 1})) == ["settings"]
    assert changes(first, Ensemble(asking(system_prompt="Be long."), {"a": 2, "b": 1})) == []
    assert changes(ThinkMore(plain), ThinkMore(plain, 2)) == ["settings"]

    def remote(**properties: Any) -> Function:
        schema = {"type": "object", "properties": properties}
        tool = McpTool(name="read", description="Read.", input_schema=schema)
        return McpFunction("files_read", tool, McpServer(["file-server"]))

    assert changes(remote(path={"type": "string"}), remote(path={"type": "string"})) == []
    assert changes(remote(path={"type": "string"}), remote()) == ["arguments"]


# What differs between machines and processes


def test_a_file_goes_by_its_name_and_not_by_its_folder_or_its_text(tmp_path: Path):
    (tmp_path / "other").mkdir()
    for folder, text in (tmp_path, "Be brief."), (tmp_path / "other", "Be long."):
        (folder / "system.md").write_text(text)
    first = asking(system_prompt=FromFile(tmp_path / "system.md"))
    moved = asking(system_prompt=FromFile(str(tmp_path / "other" / "system.md")))
    assert version_of(first) == version_of(moved)
    assert changes(first, asking(system_prompt=FromFile("rules.md"))) == ["prompt"]


@pytest.mark.parametrize("kind", [TextEditor, ApplyDiffPatch])
def test_the_folder_of_a_tool_does_not_count(kind: Any, tmp_path: Path):
    (tmp_path / "other").mkdir()
    first = asking(uses=[kind(root=tmp_path)])
    assert version_of(first) == version_of(asking(uses=[kind(root=tmp_path / "other")]))
    assert changes(first, asking(uses=[kind()])) == ["tools"]
    assert changes(asking(uses=[Bash()]), asking(uses=[Bash(timeout=3)])) == ["tools"]


PROGRAM = """
import json, sys
if "--late" in sys.argv:
    import treefold.toolbox, pydantic
from pathlib import Path
from treefold import AgentFunction, agent, tool
from treefold.runtime.durable.function_version import version_of

HERE = str(Path(__file__).parent)

@tool
async def read(path: str, root: str = HERE, kinds: set[str] = {"a", "b", "c", "d"}) -> str:
    return path if path in {"x", "y", "z"} else root

@tool
async def write(path: str, text: str) -> None: ...

@agent(uses={read, write}, model_tools={"b": [read], "a": [write]}, returns=dict[str, int])
def count(what: str) -> str:
    return f"Count {what}."

class Reader(AgentFunction):
    "Read."
    user_prompt_template = "Read."
    uses = (write, read)

made = [count, Reader(), read, write]
if "--late" in sys.argv:
    made.reverse()
print(json.dumps({one.name: version_of(one) for one in made}, sort_keys=True))
"""


def test_versions_are_the_same_in_every_process_folder_and_order(tmp_path: Path):
    found: list[str] = []
    for number, options in enumerate([[], ["--late"], []]):
        path = tmp_path.joinpath(*"x" * number, f"folder {number}", "program.py")
        path.parent.mkdir(parents=True)
        path.write_text(PROGRAM)
        env = os.environ | {"PYTHONHASHSEED": str(number)}
        command = [sys.executable, *(["-O"] if number == 2 else []), str(path), *options]
        ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        found.append(ran.stdout)
    assert found[0] == found[1] == found[2]
    assert len(set(json.loads(found[0]).values())) == 4


@agent
def greet(name: str) -> str:
    return f"Greet {name}."


with registries():

    @tool(uses=[greet])
    async def greet_all(ctx: RunContext, names: list[str]) -> list[str]:
        return [await ctx.invoke(greet, {"name": name}) for name in names]


def test_versions_of_another_form_are_compared_as_they_are():
    assert changed_parts("", version_of(greet)) == []
    assert changed_parts(version_of(greet_all), "") == []
    assert changed_parts("c000001", "c000001-z000002") == []
    assert changed_parts("c000001-z000001", "c000001-z000002") == ["definition"]
    assert changed_parts("something else", version_of(greet)) == ["definition"]
