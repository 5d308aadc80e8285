"""The arguments of a function as options of ``treefold run``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from command_results import treefold
from treefold import CodeFunction
from treefold.cli.function_options import read_options
from treefold.cli.run import run
from treefold.core.errors import InvalidValueError

MODULE = '''
from treefold import tool

@tool
async def pack(what: str, model: str = "", max_count: int = 3, loud: bool = False) -> str:
    """Pack something.

    Args:
        what: the thing to pack.
    """
    return f"{what!r} {model!r} {max_count!r} {loud!r}"
'''


async def pack(
    ctx: Any,
    what: str,
    note: str | None = None,
    max_count: int = 3,
    *,
    loud: bool = False,
    more: Any = 0,
    names: list[str] | None = None,
    places: Sequence[str] = (),
) -> None: ...


PACK = CodeFunction(callable=pack)


@pytest.mark.parametrize(
    ("words", "args"),
    [
        ([], {}),
        (["--what", "a box"], {"what": "a box"}),
        (["--what=a=b"], {"what": "a=b"}),
        (["--what", "5", "--note", "7"], {"what": "5", "note": "7"}),
        (["--max-count", "-2"], {"max_count": -2}),
        (["--max_count=2"], {"max_count": 2}),
        (["--loud"], {"loud": True}),
        (["--loud", "--what", "x"], {"loud": True, "what": "x"}),
        (["--loud", "false"], {"loud": False}),
        (["--more", '["a", 1]'], {"more": ["a", 1]}),
        (["--more", "[a"], {"more": "[a"}),
        (["--names", '["a"]', "--places", '["b"]'], {"names": ["a"], "places": ["b"]}),
        (["--what", "--loud"], {"what": "--loud"}),
    ],
)
def test_options_are_read_by_the_types_of_the_parameters(words: list[str], args: dict[str, Any]):
    assert read_options(run, PACK, words) == args


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--waht", "x"], "there is no option --waht; did you mean '--what'? pack takes --what,"),
        (["--modle", "x"], "there is no option --modle; did you mean '--model'? pack takes"),
        (["--what"], "--what needs a value"),
        (["box"], "'box' is neither an option nor the value of one; write --name value"),
    ],
)
def test_what_is_no_argument_is_refused_with_a_hint(words: list[str], said: str):
    with pytest.raises(InvalidValueError) as raised:
        read_options(run, PACK, words)
    assert str(raised.value).startswith(said)


def test_a_function_is_called_with_its_own_options_and_those_of_the_command(tmp_path: Path):
    (tmp_path / "pack.py").write_text(MODULE)
    options = ["--what", "1", "--model", "local", "--arg", "model=mine", "--max-count=4", "--loud"]
    done = treefold("run", "pack.py:pack", *options, cwd=tmp_path)
    assert (done.code, done.out) == (0, "'1' 'mine' 4 True\n")
    done = treefold("run", "pack.py:pack", "--what", "1", "--maxcount", "4", cwd=tmp_path)
    done.refused("there is no option --maxcount; did you mean '--max-count'?")


def test_the_help_of_a_function_shows_its_arguments(tmp_path: Path):
    (tmp_path / "pack.py").write_text(MODULE)
    done = treefold("run", "pack.py:pack", "--help", cwd=tmp_path)
    assert done.code == 0
    assert (
        "arguments of pack:\n"
        "  --what str       the thing to pack; required\n"
        "  --model str      by default ''\n"
        "  --max-count int  by default 3\n"
        "  --loud bool      by default False\n"
    ) in done.out
    done = treefold("run", "pack.py:unpack", "--help", cwd=tmp_path)
    assert (done.code, "pack.py has no function 'unpack'; it has pack" in done.out) == (0, True)
