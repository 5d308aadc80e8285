"""Commands in one shell: what they share, what they print, and what they cannot break."""

import os
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from treefold import CodeFunction, Function, RunContext, Runtime, tool
from treefold.core.errors import InvalidArgumentsError, InvalidValueError, UsageError
from treefold.core.provider import Provider
from treefold.models import profile_of
from treefold.toolbox import Bash, bash

NEW_SHELL = "[this is a new shell, without what was set in the last: "


async def run(*calls: str | Mapping[str, Any], function: Function = bash) -> list[str]:
    """Have one caller run *calls* in turn; return what each of them gave."""

    async def caller(ctx: RunContext) -> list[str]:
        asked = [{"command": call} if isinstance(call, str) else call for call in calls]
        return [await ctx.invoke(function, args) for args in asked]

    async with Runtime() as runtime:
        made = CodeFunction(callable=caller, uses=[function])
        return await runtime.invoke(made, timeout=60)


async def test_every_byte_of_a_command_but_nul_arrives(tmp_path: Path):
    every = "".join(map(chr, range(1, 128))) + "é漢"
    commands = [
        f"cat > heredoc <<'END'\n{every}\nEND",
        "printf %s '" + every.replace("'", "'\\''") + "' > quoted",
        "cat > Makefile <<'END'\nall:\n\t@echo made\r\nEND",
        f"cat > long <<'END'\n{every * 2000}\nEND",
    ]
    assert await run(*commands, function=Bash(cwd=tmp_path)) == ["[no output]"] * 4
    assert (tmp_path / "heredoc").read_bytes() == every.encode() + b"\n"
    assert (tmp_path / "quoted").read_bytes() == every.encode()
    assert (tmp_path / "Makefile").read_bytes() == b"all:\n\t@echo made\r\n"
    assert (tmp_path / "long").read_bytes() == every.encode() * 2000 + b"\n"


async def test_job_numbers_and_the_farewell_of_an_interactive_shell_are_not_printed():
    started, ended = await run("sleep 60 & sleep 60 & echo started", "printf exit; exit 3")
    assert started == "started"
    assert ended.startswith("exit\n[the shell has ended (exit code 3)")


async def test_settings_of_another_shell_are_not_inherited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHELLOPTS", "errexit:noglob:nounset")
    monkeypatch.setenv("BASHOPTS", "failglob")
    monkeypatch.setenv("BASH_FUNC_ls%%", "() {  echo shadowed; }")
    monkeypatch.setenv("BASH_ENV", "/nowhere")
    monkeypatch.setenv("ENV", "/nowhere")
    copied = Bash(env=dict(os.environ))
    for function in [bash, copied]:
        told = await run(
            "false; echo *.none $unset; type -t ls; env | grep -c -e '^BASH_ENV=' -e '^ENV='",
            "echo ${-//[^efu]/}",
            function=function,
        )
        assert told == ["*.none\nfile\n0\n[exit code 1]", "[no output]"]


async def test_errexit_of_one_command_does_not_end_the_next():
    told = await run("set -euo pipefail; x=kept", "false; echo $unset; false | true; echo $x")
    assert told == ["[no output]", "\nkept"]


SECRETS = {
    "ANTHROPIC_API_KEY": "s3cret",
    "AWS_SECRET_ACCESS_KEY": "s3cret",
    "DATABASE_URL": "postgresql://me:s3cret@db/app",
    "GITHUB_TOKEN": "s3cret",
    "GOOGLE_APPLICATION_CREDENTIALS": "/home/me/s3cret.json",
    "HTTPS_PROXY": "http://me:s3cret@proxy:3128",
    "PGPASSWORD": "s3cret",
    "SOMETHING_NEW": "s3cret",
    "TREEFOLD_MCP_TOKEN": "s3cret-s3cret-s3cret",
    "TREEFOLD_STORE": "postgresql://me:s3cret@db/runs",
    "http_proxy": "http://s3cret@proxy:3128",
}
NEEDED = {
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "LC_TIME": "C",
    "NO_PROXY": "localhost",
    "PATH": os.environ["PATH"],
    "SSL_CERT_FILE": "/etc/ca.pem",
    "TMPDIR": "/tmp",
    "TZ": "Europe/Berlin",
    "VIRTUAL_ENV": "/srv/venv",
    "XDG_CACHE_HOME": "/tmp/cache",
    "https_proxy": "http://proxy:3128",
}


async def test_the_shell_has_what_programs_need_and_no_secrets(monkeypatch: pytest.MonkeyPatch):
    for name, value in (SECRETS | NEEDED).items():
        monkeypatch.setenv(name, value)
    [told] = await run("env; cat /proc/$PPID/environ | tr '\\0' '\\n'")
    assert {f"{name}={value}" for name, value in NEEDED.items()} <= set(told.splitlines())
    assert "s3cret" not in told


async def test_more_variables_for_the_shell_are_given_to_the_constructor(
    monkeypatch: pytest.MonkeyPatch,
):
    for name, value in (SECRETS | NEEDED).items():
        monkeypatch.setenv(name, value)
    [told] = await run("env", function=Bash(env={"TZ": "UTC", "GITHUB_TOKEN": "s3cret"}))
    assert {"TZ=UTC", "GITHUB_TOKEN=s3cret", "HOME=/tmp"} <= set(told.splitlines())
    assert told.count("s3cret") == 1
    [told] = await run("env", function=Bash(env=os.environ))
    assert {f"{name}={value}" for name, value in SECRETS.items()} <= set(told.splitlines())


async def test_a_top_level_call_has_a_shell_of_its_own():
    async with Runtime() as runtime:
        assert await runtime.invoke(bash, {"command": "x=1; echo $x"}) == "1"
        assert await runtime.invoke(bash, {"command": "echo [$x]"}) == "[]"


async def test_folder_variables_functions_and_jobs_stay_between_calls():
    told = await run(
        "cd /usr; x='a b'; export y=c; f() { echo \"f $1\"; }; sleep 60 >/dev/null & true",
        "pwd; echo $x; sh -c 'echo $y'; f 1; jobs -r | grep -c sleep",
    )
    assert told[1].splitlines() == ["/usr", "a b", "c", "f 1", "1"]


async def test_two_callers_have_two_shells():
    assert [await run("echo $x; x=1"), await run("echo [$x]")] == [["[no output]"], ["[]"]]


async def test_output_and_errors_come_in_order_and_an_exit_code_only_if_it_is_not_zero():
    assert await run("echo one; echo two >&2; echo three", "echo no; (exit 7)", "true") == [
        "one\ntwo\nthree",
        "no\n[exit code 7]",
        "[no output]",
    ]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("echo 'it'\"'\"'s' \"$(echo deep)\"\necho second", "it's deep\nsecond"),
        ("cat <<'END'\n$x `y` \\ '\nEND", "$x `y` \\ '"),
        ('cat; read x; echo "$? end"', "1 end"),
        ("break; continue; echo on", "on"),
        ("exec >/dev/null 2>&1 </dev/zero; echo lost", "[no output]"),
        ("echo '!!' \\; '\\0' # comment", "!! ; \\0"),
        ("ls /proc/self/fd | wc -l", "4"),
        ("bash -c 'kill -9 $$'; echo $?", "137"),
        ("seq 100000 | head -n 1", "1"),
        ("printf '\\033[1;31mred\\033[0m \\033]0;title\\007\\r\\n\\0end'", "red \nend"),
        ("printf 'a\\377b'", "a\ufffdb"),
        ("echo ünï — 漢字", "ünï — 漢字"),
        ("", "[no output]"),
        ("# only a comment", "[no output]"),
    ],
)
async def test_a_command_does_what_it_says_and_the_next_one_is_not_disturbed(
    command: str, told: str
):
    first, second = await run(command, "echo still here")
    assert first.splitlines()[-len(told.splitlines()) :] == told.splitlines()
    assert second == "still here"


@pytest.mark.parametrize(
    "command",
    [
        "echo 'unbalanced",
        'echo "',
        "if true",
        "done",
        ")",
        "echo ${nope:?missing}; echo never",
        "readonly r=1; r=2; echo never",
        "echo $((1/0)); echo never",
        "set -u; echo $nope; echo never",
        "nosuchcommand",
        "echo ${bad!subst}",
    ],
)
async def test_a_command_that_is_wrong_fails_in_words_and_the_shell_goes_on(command: str):
    _, failed, after = await run("x=kept", command, "set +u; echo $x")
    assert "bash: " in failed
    assert "never\n" not in failed
    assert "[exit code " in failed
    assert after == "kept"


async def test_options_and_names_of_the_shells_own_do_not_hide_the_end_of_a_command():
    _, *rest = await run(
        "set -xvf; IFS=abc; printf() { :; }; eval() { :; }; trap 'echo debug' DEBUG",
        "trap - DEBUG; set +xvf",
        "echo plain",
        {"restart": True},
        "printf fine",
    )
    assert rest[-3:] == ["plain", "[the shell was restarted]", "fine"]


@pytest.mark.parametrize(
    ("command", "printed", "how"),
    [
        ("echo last; exit 3", "last\n", "exit code 3"),
        ("set -e; echo last; false; echo never", "last\n", "exit code 1"),
        ("exec echo last", "last\n", "exit code 0"),
        ("echo last; kill -9 $$", "last\n", "killed by SIGKILL"),
    ],
)
async def test_a_command_that_ends_the_shell_says_so_and_the_next_has_a_new_one(
    command: str, printed: str, how: str
):
    told = await run("x=1", command, "echo [$x]", "echo again")
    assert told[1:] == [
        f"{printed}[the shell has ended ({how}), and its background jobs with it; the next command"
        " gets a new one]",
        f"{NEW_SHELL}the last command ended it ({how})]\n[]",
        "again",
    ]


async def test_a_restart_forgets_everything_and_may_bring_a_command():
    assert await run("x=1", {"restart": True}, "echo [$x]; x=2") == [
        "[no output]",
        "[the shell was restarted]",
        "[]",
    ]
    both = await run("x=1", {"restart": True, "command": "echo [$x]"})
    assert both[1] == "[]"


async def test_long_output_loses_its_middle_and_the_loss_is_counted():
    [told] = await run(
        "printf 'a%.0s' {1..300}; printf 'b%.0s' {1..300}", function=Bash(max_chars=100)
    )
    assert told == f"{'a' * 50}\n[... 500 characters left out ...]\n{'b' * 50}"


async def test_hundreds_of_megabytes_of_output_are_not_kept_in_memory():
    tracemalloc.start()
    try:
        [told] = await run("echo first; head -c 300000000 /dev/zero | tr '\\0' x; echo last")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert told.startswith("first\nxxx")
    assert told.endswith("xxxlast")
    assert "[... 299,970,0" in told
    assert len(told) < 31_000
    assert peak < 20_000_000


async def test_what_a_background_job_prints_later_comes_with_the_next_command():
    told = await run("(sleep 0.2; echo late; echo > /dev/null) & true", "wait; echo now")
    assert told[1].splitlines() == ["late", "now"]


async def test_calls_at_once_wait_for_each_other():
    @tool(uses=[bash])
    async def caller(ctx: RunContext) -> list[str]:
        commands = [f"x=${{x}}{n}; sleep 0.05; echo $x" for n in range(4)]
        nodes = [ctx.invoke(bash, {"command": command}) for command in commands]
        return [await node for node in nodes]

    async with Runtime() as runtime:
        assert await runtime.invoke(caller, timeout=30) == ["0", "01", "012", "0123"]


async def test_folder_and_environment_of_the_constructor_count(tmp_path: Path):
    mine = Bash(cwd=tmp_path, env={"PATH": "/usr/bin:/bin", "COLOUR": "blue"})
    assert await run("pwd; echo $COLOUR; exit", "pwd", function=mine) == [
        f"{tmp_path}\nblue\n[the shell has ended (exit code 0), and its background jobs with it;"
        " the next command gets a new one]",
        f"{NEW_SHELL}the last command ended it (exit code 0)]\n{tmp_path}",
    ]


async def test_what_cannot_start_says_what_to_change(tmp_path: Path):
    with pytest.raises(UsageError, match="no program 'bash' in .*; install it, or set PATH"):
        await run("true", function=Bash(env={"PATH": str(tmp_path)}))
    with pytest.raises(UsageError, match="cannot start in '.*nowhere': set Bash"):
        await run("true", function=Bash(cwd=tmp_path / "nowhere"))
    with pytest.raises(InvalidValueError, match="timeout must be a positive number"):
        Bash(timeout=0)
    with pytest.raises(InvalidValueError, match="max_chars"):
        Bash(max_chars=0)


@pytest.mark.parametrize(
    ("args", "fault"),
    [
        ({}, "give 'command', or 'restart': true"),
        ({"command": "a\0b"}, "NUL"),
        ({"command": "\ud800"}, "not valid text"),
        ({"command": "true", "timeout": 0}, "'timeout' must be above 0"),
        ({"command": "true", "timeout": 1e9}, "in the background"),
        ({"command": "true", "cmd": "x"}, "cmd"),
    ],
)
async def test_arguments_that_cannot_be_are_named(args: Mapping[str, Any], fault: str):
    with pytest.raises(InvalidArgumentsError, match=fault):
        await run(args)


def test_claude_knows_it_as_its_own_tool_and_others_are_told_all():
    assert bash.name == "bash"
    claude = profile_of(Provider.Anthropic, "claude-opus-4-1")
    assert claude.trained_tools[bash.trained_as or ""]["type"] == "bash_20250124"
    assert set(bash.input_schema["properties"]) == {"command", "restart", "timeout"}
    assert "required" not in bash.input_schema
    for said in ["persistent", "background", "30,000 characters", "120 seconds", "no terminal"]:
        assert said in bash.description
