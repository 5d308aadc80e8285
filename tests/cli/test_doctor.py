"""``treefold doctor``, on machines that have much or little."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from command_line import environment, treefold
from permissions import without_privileges
from terminal import Terminal
from treefold.cli.doctor import examine
from treefold.cli.packages import Extra, Package, extras_of
from wire.replies import failure
from wire.server import ModelServer

KEY = "sk-QjWvKzXbYqPfHgNwRkTs"


def parts(secret: str) -> set[str]:
    return {secret[at : at + 4] for at in range(len(secret) - 3)}


def lines(shown: str) -> dict[str, list[str]]:
    """Return the lines below each heading."""
    found: dict[str, list[str]] = {}
    heading = ""
    for line in shown.splitlines():
        if line.startswith("  "):
            found[heading].append(" ".join(line.split()))
        else:
            heading = line
            found[heading] = []
    return found


def test_keys_are_named_and_no_part_of_them_is_shown(tmp_path: Path):
    env = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": "  ", "GOOGLE_API_KEY": "schlüssel"}
    env |= {
        "TREEFOLD_CACHE": str(tmp_path),
        "ANTHROPIC_BASE_URL": f"https://user:{KEY}@example.org",
    }
    for args in ["doctor"], ["doctor", "--json"]:
        done = treefold(*args, env=env)
        assert (done.returncode, done.stderr) == (0, "")
        assert not [part for part in parts(KEY) if part in done.stdout]
        assert "schl" not in done.stdout
    shown = treefold("doctor", env=env).stdout
    assert lines(shown)["keys"] == [
        "✗ ANTHROPIC_API_KEY it is empty",
        "· GEMINI_API_KEY is not set: gemini needs it",
        "✗ GOOGLE_API_KEY it has characters that no key has; was it copied whole?",
        "✓ OPENAI_API_KEY is set",
        "✓ TREEFOLD_CACHE is set",
        "✓ ANTHROPIC_BASE_URL is set",
    ]
    assert shown.splitlines()[-1].startswith("usable models: openai (OPENAI_API_KEY)")


def test_where_no_model_can_be_asked_it_says_how_to_get_one(tmp_path: Path):
    env = {"TREEFOLD_CACHE": str(tmp_path)}
    done = treefold("doctor", "--json", env=env)
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["usable"] else 1)  # a server may run on this machine
    assert [(one["model"], one["path"]) for one in found["weights"]] == [
        ("local", None),
        ("local:qwen2.5-coder-0.5b", None),
        ("local:qwen2.5-coder-1.5b", None),
    ]
    shown = lines(treefold("doctor", env=env).stdout)["local models"]
    assert shown[0] == "· local not fetched: treefold local fetch"
    assert "not fetched: treefold local fetch qwen2.5-coder-1.5b" in shown[2]


def test_nothing_usable_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in set(os.environ) - set(environment()):
        monkeypatch.delenv(name)
    monkeypatch.setenv("TREEFOLD_CACHE", str(tmp_path))
    found = examine({})
    assert (found["usable"], found["servers"]) == ([], {"fault": None, "asked": []})


async def test_a_server_that_answers_is_found_with_its_models_and_cannot_write_on_the_screen():
    models = [{"id": f"m{n}\x1b[2J"} for n in range(7)]
    reply = failure(200, {"object": "list", "data": models})
    async with asyncio.timeout(60), ModelServer([reply, reply]) as server:
        env = {"TREEFOLD_BASE_URL": f"{server.url}/v1"}
        done = await asyncio.to_thread(treefold, "doctor", env=env)
        told = json.loads((await asyncio.to_thread(treefold, "doctor", "--json", env=env)).stdout)
    assert done.returncode == 0
    named = ", ".join(f"m{n}\\x1b[2J" for n in range(5))
    assert lines(done.stdout)["servers"][-1] == (
        f"✓ TREEFOLD_BASE_URL the address in it has {named} and 2 more"
    )
    assert "TREEFOLD_BASE_URL" in done.stdout.splitlines()[-1]
    assert told["servers"]["asked"][-1] == {
        "name": "TREEFOLD_BASE_URL",
        "base_url": None,
        "models": [one["id"] for one in models],
    }
    assert [one["name"] for one in told["servers"]["asked"][:-1]] == [
        "llamacpp",
        "lmstudio",
        "ollama",
        "vllm",
    ]


def test_a_journal_is_tried_in_the_folder_and_nothing_is_left_of_it(tmp_path: Path):
    done = treefold("doctor", "--json", cwd=tmp_path)
    journal = json.loads(done.stdout)["journal"]
    assert (journal["folder"], journal["fault"]) == (str(tmp_path), None)
    assert journal["sqlite"].startswith("3.")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_may_not_be_written_holds_no_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o555)
    monkeypatch.chdir(folder)
    examine({})  # loads packages, which may be in a folder that only root can read
    with without_privileges():
        found = examine({})
    assert found["journal"]["fault"] == (
        "Permission denied; go to a folder that you may write to, or give --store"
    )


@pytest.mark.parametrize(("env", "colours"), [({}, "colours"), ({"NO_COLOR": "1"}, "no colours")])
async def test_the_abilities_of_the_terminal_are_shown(env: dict[str, str], colours: str):
    env = environment(env) | {"COLUMNS": "", "LINES": ""}  # whatever runs the tests may set them
    async with Terminal("-m", "treefold", "doctor", env=env, columns=120) as terminal:
        await terminal.see("terminal\n")
        await terminal.see(f"✓ xterm              120 x 40, {colours}\n")
        await terminal.see("✓ utf-8 ")


def test_a_terminal_without_unicode_gets_a_warning():
    done = treefold("doctor", env={"PYTHONIOENCODING": "ascii"})
    assert "lacks characters of trees" in done.stdout


# Packages


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Install made-up distributions: their name, version, requirements and extras."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(name: str, version: str, needs: tuple[str, ...] = (), extras: str = "") -> None:
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        text = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
        text += [f"Provides-Extra: {extra}" for extra in extras.split()]
        text += [f"Requires-Dist: {need}" for need in needs]
        (folder / "METADATA").write_text("\n".join(text) + "\n")

    return install


def test_an_extra_lists_what_it_needs_and_what_that_needs_for_it(site: Any):
    needs = (
        "made-base>=1",
        "made-http[fast] >=2,<3 ; extra == 'net'",
        'made-gone>=5; extra == "lost"',
        "made-up[net]; extra == 'both'",
        "made-up[both]; extra == 'all'",
        "made-other; sys_platform == 'plan9' and extra == 'net'",
    )
    site("made-up", "0.1", needs, "net lost both all")
    site("made-base", "1.0")
    site(
        "made-http",
        "2.10.1",
        ("made-wire (>=1.2) ; extra == 'fast'", "made-http[fast]; extra == 'fast'"),
        "fast",
    )
    site("made-wire", "1.1.9")
    http = Package("made-http", ">=2,<3", "2.10.1")
    wire = Package("made-wire", ">=1.2", "1.1.9")
    assert extras_of("made-up") == [
        Extra("", (Package("made-base", ">=1", "1.0"),)),
        Extra("net", (http, wire)),
        Extra("lost", (Package("made-gone", ">=5", None),)),
        Extra("both", (http, wire)),
    ]
    assert [one.ready for one in extras_of("made-up")] == [True, False, False, False]
    assert extras_of("made-by-nobody") == []


@pytest.mark.parametrize(
    ("version", "wanted", "will_do"),
    [
        ("3.0", ">=3", True),
        ("3", ">=3.0.1", False),
        ("2.9.9", ">=3", False),
        ("10.1", ">=9,<11", True),
        ("4.0.0", ">=3,<4", False),
        ("4.0.0rc1", "<4", False),
        ("2026.10.2", ">=2026.10", True),
        ("0.1.1", "==0.1.1", True),
        ("odd", ">=1", True),
        ("1.0", "~=7.0", False),
        (None, "", False),
    ],
)
def test_versions_are_compared_as_numbers(version: str | None, wanted: str, *, will_do: bool):
    assert Package("one", wanted, version).will_do is will_do
