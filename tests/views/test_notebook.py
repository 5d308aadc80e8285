"""Nodes and views as HTML and for rich; and in a notebook, executed by a real kernel."""

import os
from collections.abc import Iterator
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_notebook
from rich.console import Console

from support import double
from treefold import CodeFunction, RunContext, Runtime, show

EXAMPLE = Path(__file__).parents[2] / "examples" / "notebook.ipynb"
HOSTILE = "</pre></details><script>alert(1)</script>\x1b[31m\u202e\n<img src=x onerror=alert(2)>"
TAGS = {"div", "style", "details", "summary", "span", "b", "i", "code", "pre", "br"}
ATTRIBUTES = {"class", "open", "title"}


class Checker(HTMLParser):
    """Collects the text of HTML, which may have harmless elements only, each of them closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.deepest = 0
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        assert {name for name, _ in attrs} <= ATTRIBUTES
        if tag != "br":
            self._open.append(tag)
        self.deepest = max(self.deepest, len(self._open))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.text += data


def html_of(shown: Any) -> str:
    return shown._repr_html_()


async def echo(ctx: RunContext, text: str, how: str = "return") -> dict[str, str]:
    if how == "raise":
        raise ValueError(text)
    return {text: text}


async def both(ctx: RunContext, text: str) -> str:
    try:
        await ctx.invoke(echoes, {"text": text, "how": "raise"})
    except ValueError:
        await ctx.invoke(echoes, {"text": text})
    await ctx.ask(text, [text])
    return text


echoes = CodeFunction(callable=echo)
asks = CodeFunction(callable=both, uses=[echoes])


def test_whatever_functions_say_stays_text():
    with Runtime([asks]) as runtime:
        node = runtime.invoke(asks, {"text": HOSTILE})
        for _ in runtime.watch(node):
            if runtime.questions():
                break
        asking = Checker(html_of(node)).text
        runtime.answer("1-1", HOSTILE)
        node.result()
        ended = Checker(html_of(runtime.get_view(node.id))).text
    assert "runtime.answer('1-1', TEXT)" in asking
    for text in (asking, ended):
        assert "<script>alert(1)</script>\\x1b[31m\\u202e" in text
        assert not {"\x1b", "\u202e"} & set(text)
        assert "ValueError" in text


async def count_down(ctx: RunContext, n: int) -> int:
    return n if n == 0 else await ctx.invoke(ctx.node.function, {"n": n - 1})


def test_a_deep_tree_does_not_nest_deeper_than_browsers_can():
    down = CodeFunction(callable=count_down, uses_recursion=True, max_depth=1000)
    with Runtime([down]) as runtime:
        node = runtime.invoke(down, {"n": 600})
        assert node.result() == 0
        checked = Checker(html_of(node))
        assert 100 < checked.deepest < 250


def test_the_text_that_a_notebook_keeps_is_bounded():
    async def many(ctx: RunContext) -> None:
        for n in range(200):
            await ctx.invoke(double, {"n": n})

    with Runtime() as runtime:
        node: Any = runtime.invoke(CodeFunction(callable=many, uses=[double]))
        node.result()
    lines = node._repr_mimebundle_()["text/plain"].split("\n")
    assert (len(lines), lines[-1]) == (201, "… more calls are not shown")


def test_rich_prints_a_node_and_a_view_as_a_tree():
    with Runtime() as runtime:
        node = runtime.invoke(double, {"n": 21})
        node.result()
        for shown in (node, runtime.get_view(node.id)):
            output = StringIO()
            Console(file=output, width=60).print(shown)
            first, second = output.getvalue().splitlines()
            assert first.startswith("✓ 1 double(n=21) → 42")
            assert second.startswith("✓ 1 of 1 done")


def test_show_waits_where_no_loop_runs_and_prints_the_tree(capsys: pytest.CaptureFixture[str]):
    with Runtime() as runtime:
        assert show(runtime.invoke(double, {"n": 21})).result(timeout=60) == 42
    assert capsys.readouterr().err.startswith("✓ 1 double(n=21) → 42")


def test_show_raises_what_the_call_raised_and_takes_only_a_node():
    with Runtime([echoes]) as runtime:
        with pytest.raises(ValueError, match="oops"):
            show(runtime.invoke(echoes, {"text": "oops", "how": "raise"})).result()
        with pytest.raises(ValueError, match="show"):
            show(runtime)  # pyright: ignore[reportArgumentType]


# In a kernel


class Kernel:
    """Runs cells in one kernel."""

    def __init__(self, client: NotebookClient) -> None:
        self._client = client

    def run(self, source: str) -> list[Any]:
        """Run a cell, and return its outputs."""
        cell = new_code_cell(source)
        self._client.nb.cells.append(cell)
        self._client.execute_cell(cell, len(self._client.nb.cells) - 1)
        return cell.outputs

    def value(self, source: str) -> str:
        """Run a cell, and return its value as text."""
        *_, last = self.run(source)
        assert last.output_type == "execute_result"
        return last.data["text/plain"]


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel that does not see the settings of this user."""
    folder = tmp_path_factory.mktemp("jupyter")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PLATFORM_DIRS", "1")
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
            patch.setenv(name, str(folder / name))
        client = NotebookClient(new_notebook(), kernel_name="python3", timeout=60)
        with client.setup_kernel(cwd=str(folder), env=dict(os.environ)):
            yield Kernel(client)


@pytest.mark.slow
def test_every_cell_of_the_example_can_be_run_twice(kernel: Kernel):
    example = nbformat.read(EXAMPLE, 4)
    shown: list[str] = []
    for cell in example.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []  # a notebook with outputs changes with every run
            kernel.run(cell.source)
            for output in kernel.run(cell.source):
                data = output.get("data", {})
                shown += [data[kind] for kind in ("text/html", "text/plain") if kind in data]
    watched, _, answer, ended, _, asking, _, *_ = shown
    # The tree was updated in place: there is one, and it shows the end.
    assert "It divides by zero in line 7." in Checker(watched).text
    assert answer == "'It divides by zero in line 7.'"
    assert Checker(ended).text == Checker(watched).text
    assert "runtime.answer('2-1', TEXT)" in Checker(asking).text
    assert shown[-1] == "'Version 2 divides by zero.'"


@pytest.mark.slow
def test_a_runtime_uses_what_was_defined_last(kernel: Kernel):
    define_tool = "@tool\nasync def weigh(x: int) -> int:\n    return {} * x"
    define_agent = "@tool(uses=[weigh])\nasync def sort_out(ctx: RunContext) -> int:\n"
    define_agent += "    return await ctx.invoke(weigh, {'x': 1})"
    kernel.run("from treefold import RunContext, Runtime, tool")
    kernel.run(define_tool.format(1))
    kernel.run(define_agent)
    kernel.run("keeper = Runtime([sort_out])")
    assert kernel.value("await keeper.invoke(sort_out)") == "1"
    kernel.run(define_tool.format(2))
    [warning] = kernel.run("Runtime([sort_out]).close()")
    assert warning.text == (
        "sort_out uses an earlier definition of weigh; run the cell that defines sort_out again,"
        " too\n"
    )
    with pytest.raises(CellExecutionError, match="the definition was run again"):
        kernel.run("Runtime([sort_out, weigh])")
    with pytest.raises(CellExecutionError, match="run that of sort_out again, too"):
        kernel.run("await keeper.invoke(sort_out)")
    kernel.run(define_agent)
    assert kernel.value("await keeper.invoke(sort_out)") == "2"
    assert kernel.value("keeper.invocable_functions['sort_out'] is sort_out") == "True"
    kernel.run("keeper.close()")


@pytest.mark.slow
@pytest.mark.parametrize("reload", ["importlib.reload(scales)", "%autoreload 1\n%aimport scales"])
def test_a_module_that_is_reloaded_replaces_its_tools(kernel: Kernel, reload: str):
    write = (
        "import importlib, os, pathlib\n%load_ext autoreload\n"
        "def write(n, second):\n"
        "    file = pathlib.Path('scales.py')\n"
        "    file.write_text('from treefold import tool\\n@tool(uses=[])\\n'\n"
        "        f'async def weigh_module() -> int:\\n    return {n}\\n')\n"
        "    os.utime(file, (second, second))\n"
        "    importlib.invalidate_caches()"
    )
    kernel.run(write)
    kernel.run("write(1, 1_000_000_000)\nimport sys; sys.dont_write_bytecode = True")
    kernel.run("import scales\nimportlib.reload(scales)")
    kernel.run("keeper = Runtime([scales.weigh_module])")
    assert kernel.value("await keeper.invoke(scales.weigh_module)") == "1"
    kernel.run("write(2, 1_100_000_000)")
    kernel.run(reload)
    assert kernel.value("await keeper.invoke(scales.weigh_module)") == "2"
    assert (
        kernel.value("keeper.invocable_functions['weigh_module'] is scales.weigh_module") == "True"
    )
    kernel.run("%autoreload 0\nkeeper.close()")


@pytest.mark.slow
def test_interrupting_a_cell_ends_the_call_that_it_shows(kernel: Kernel):
    kernel.run(
        "import asyncio, os, signal\nfrom treefold import Runtime, show, tool\n"
        "@tool\nasync def interrupt() -> None:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    await asyncio.Event().wait()\n"
        "timers = lambda: len([t for t in asyncio.get_running_loop()._scheduled"
        " if not t.cancelled() and 'Showing' in repr(t)])\n"
        "keeper = Runtime()"
    )
    with pytest.raises(CellExecutionError):
        kernel.run("lost = keeper.invoke(interrupt)\nawait show(lost)")
    kernel.run("try:\n    await lost\nexcept Exception:\n    pass")
    assert kernel.value("str(lost.state), timers()") == "('canceled', 0)"
    kernel.run("keeper.close()")
