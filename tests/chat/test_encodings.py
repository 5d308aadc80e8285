"""Tokens are counted with the data that tiktoken has here, and nothing is fetched for it."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import warm_python
from treefold.chat.encodings import ADDRESS, FILES

KEY = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"  # what tiktoken calls the file of cl100k_base

# Refuses every connection, and tells of each that was wanted.
SCRIPT = """
import json, socket, sys

wanted = []

def refuse(*args, **kwargs):
    wanted.append(str(args))
    raise OSError("no network in this test")

socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
arguments = json.loads(sys.argv[1])
if arguments["hide"]:
    sys.modules["tiktoken"] = None
from treefold import estimate_tokens

try:
    counts = [estimate_tokens(arguments["messages"], model) for model in arguments["models"]]
    if arguments["ask"]:
        import tiktoken
        tiktoken.get_encoding("cl100k_base")
except OSError as error:
    counts = str(error)
print(json.dumps({"counts": counts, "wanted": len(wanted)}))
"""

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "tiktoken is great!"},  # 6 tokens
    {"role": "user", "content": "hello world"},  # 2 tokens
]
COUNTED = (4 + 6) + (4 + 2)
GUESSED = (6 + 18 + 4 + 11) // 4


@dataclass(frozen=True)
class Told:
    counts: Any
    wanted: int
    warnings: list[str]


def told(
    *models: str,
    messages: list[dict[str, Any]] = MESSAGES,
    hide: bool = False,
    ask: bool = False,
    **env: str,
) -> Told:
    """Count *messages* in a process that has no network."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in {"TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"}
    }
    arguments = {"models": models, "messages": messages, "hide": hide, "ask": ask}
    ran = subprocess.run(
        warm_python.command("-c", SCRIPT, json.dumps(arguments)),
        env=clean | env,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return Told(**json.loads(ran.stdout), warnings=ran.stderr.splitlines())


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as tiktoken fills it, with the real data of one encoding."""
    spec = find_spec("tiktoken_ext")
    assert spec is not None
    [data] = [
        found
        for place in spec.submodule_search_locations or ()
        for found in Path(place).glob("data/cl100k_base.tiktoken")
    ]
    folder = tmp_path_factory.mktemp("cache")
    shutil.copyfile(data, folder / KEY)
    return folder


@pytest.mark.parametrize("variable", ["TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"])
def test_tokens_are_counted_with_what_is_in_the_cache(cache: Path, variable: str):
    place: Any = {variable: str(cache)}

    assert told("gpt-3.5-turbo", "gpt-4", **place) == Told(
        counts=[COUNTED, COUNTED], wanted=0, warnings=[]
    )


def test_the_usual_cache_is_in_the_folder_for_temporary_files(cache: Path, tmp_path: Path):
    shutil.copytree(cache, tmp_path / "data-gym-cache")

    assert told("gpt-4", TMPDIR=str(tmp_path)).counts == [COUNTED]


def test_a_model_that_nobody_knows_is_counted_with_the_usual_encoding(cache: Path):
    found = told("qwen2.5-32b-instruct", "gpt2", TIKTOKEN_CACHE_DIR=str(cache))

    assert (found.counts, found.wanted) == ([COUNTED, COUNTED], 0)


def test_content_of_any_shape_and_calls_are_counted(cache: Path):
    call = {
        "id": "1",
        "type": "function",
        "function": {"name": "hello", "arguments": "hello world"},
    }
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "hello world"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "name": "hello", "content": "hello"},
    ]
    assert told("gpt-4", messages=messages, TIKTOKEN_CACHE_DIR=str(cache)).counts == [
        (4 + 2) + (4 + 1 + 2) + (4 + 1)
    ]


def test_what_looks_like_a_mark_of_the_encoding_is_counted_as_text(cache: Path):
    messages = [{"role": "user", "content": "<|endoftext|>"}]  # would be one token

    [count] = told("gpt-4", messages=messages, TIKTOKEN_CACHE_DIR=str(cache)).counts
    assert count > 4 + 1


def test_without_data_characters_are_counted_and_one_warning_says_how_to_get_it(tmp_path: Path):
    found = told("gpt-4", "gpt-4", "gpt-4o", TIKTOKEN_CACHE_DIR=str(tmp_path))

    assert (found.counts, found.wanted) == ([GUESSED] * 3, 0)
    [warning] = found.warnings
    assert "no data for cl100k_base" in warning
    assert "python -c \"import tiktoken; tiktoken.get_encoding('cl100k_base')\"" in warning


def test_data_of_another_encoding_does_not_count(cache: Path):
    found = told("gpt-4o", "gpt-4", TIKTOKEN_CACHE_DIR=str(cache))

    assert (found.counts, found.wanted) == ([GUESSED, COUNTED], 0)


def test_a_damaged_file_is_left_alone(cache: Path, tmp_path: Path):
    damaged = (cache / KEY).read_bytes()[:-100]
    (tmp_path / KEY).write_bytes(damaged)

    found = told("gpt-4", TIKTOKEN_CACHE_DIR=str(tmp_path))

    assert (found.counts, found.wanted) == ([GUESSED], 0)
    assert (tmp_path / KEY).read_bytes() == damaged


def test_a_cache_that_is_switched_off_holds_nothing():
    found = told("gpt-4", TIKTOKEN_CACHE_DIR="")

    assert (found.counts, found.wanted) == ([GUESSED], 0)


def test_without_tiktoken_characters_are_counted_and_nobody_is_warned():
    assert told("gpt-4", hide=True) == Told(counts=[GUESSED], wanted=0, warnings=[])


def test_this_test_would_see_a_connection(tmp_path: Path):
    assert told(ask=True, TIKTOKEN_CACHE_DIR=str(tmp_path)).wanted > 0


def test_tiktoken_itself_is_content_with_the_cache(cache: Path):
    assert told(ask=True, TIKTOKEN_CACHE_DIR=str(cache)) == Told(counts=[], wanted=0, warnings=[])


@pytest.mark.parametrize("name", FILES)
def test_tiktoken_reads_the_files_that_we_look_for(name: str):
    openai_public: Any = import_module("tiktoken_ext.openai_public")
    asked: list[tuple[str, str]] = []

    def note(address: str, expected_hash: str) -> dict[bytes, int]:
        asked.append((address, expected_hash))
        return {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_public, "load_tiktoken_bpe", note)
        openai_public.ENCODING_CONSTRUCTORS[name]()
    assert asked == [(f"{ADDRESS}/{FILES[name].name}", FILES[name].sha256)]
