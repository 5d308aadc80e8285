"""``examples/chat_hooks.py``, with a server that plays the model and a person who types."""

import pytest

from chat_helpers import Assistant, Result, Saying, User, call, failed, serving
from chat_hooks import PATTERNS, sanitize, security_gate
from example_runs import Run, calling, said, start
from treefold import HookDecision, PreToolUseEvent, UserPromptSubmitEvent
from wire import Reply, openai_wire

MOTD, LIST, CARDS = "/etc/motd", "list.txt", "cards.txt"
WRITE, DELETE = "write_file", "delete_file"
CLOSED = f"{MOTD} belongs to the system"


def writing(id: str, path: str, text: str = "Welcome!") -> tuple[str, str, str]:
    return calling(id, WRITE, path=path, text=text)


def deleting(id: str) -> tuple[str, str, str]:
    return calling(id, DELETE, path="old.txt")


async def shown(pattern: str, *script: Reply, typed: str = "") -> tuple[Run, list[object]]:
    """Return what is to be seen of a pattern, and what the last request told the model."""
    async with serving(*script) as server:
        run = await start("chat_hooks", pattern, server=server, typed=typed)
    return run, [*said(server.requests[-1])]


async def test_a_gate_forbids_one_path_and_moves_the_other_into_the_sandbox():
    run, last = await shown(
        "gate",
        openai_wire.calls([writing("call_1", "/tmp/../etc/motd")]),
        openai_wire.text("I may not."),
        openai_wire.calls([writing("call_2", "notes.txt")]),
        openai_wire.text("It is in the sandbox."),
    )
    assert run == Run(
        0,
        "== gate\n"
        "> Write 'Welcome!' into /etc/motd.\n"
        f"[Tool use blocked: {CLOSED}]\n"
        "I may not.\n"
        "> Then write it into notes.txt.\n"
        "It is in the sandbox.\n"
        "files: {'old.txt': 'old', '/etc/motd': 'Hello!', '/sandbox/notes.txt': 'Welcome!'}\n\n",
    )
    assert last == [
        User("Write 'Welcome!' into /etc/motd."),
        Assistant(calls=(call("call_1", WRITE, path="/tmp/../etc/motd", text="Welcome!"),)),
        failed("call_1", f"Tool use blocked: {CLOSED}", WRITE),
        Assistant("I may not."),
        User("Then write it into notes.txt."),
        Assistant(calls=(call("call_2", WRITE, path="notes.txt", text="Welcome!"),)),
        Result("call_2", "wrote /sandbox/notes.txt"),
    ]


async def test_the_audit_log_has_a_line_for_each_call():
    run, _ = await shown(
        "audit",
        openai_wire.calls([writing("call_1", LIST, "milk"), deleting("call_2")]),
        openai_wire.text("Done."),
    )
    assert run == Run(
        0,
        "== audit\n"
        "> Write 'milk' into list.txt, then delete old.txt.\n"
        "Done.\n"
        "audit log:\n"
        "  write_file {'path': 'list.txt', 'text': 'milk'} -> wrote list.txt\n"
        "  delete_file {'path': 'old.txt'} -> deleted old.txt\n"
        "files: {'/etc/motd': 'Hello!', 'list.txt': 'milk'}\n\n",
    )


async def test_a_prompt_is_refused_or_cleaned_up_before_anything_is_sent():
    run, last = await shown("sanitize", openai_wire.text("I would rather not."))
    assert run == Run(
        0,
        "== sanitize\n"
        "> My password is swordfish. Is it a good one?\n"
        "[Prompt blocked: no passwords, please]\n"
        "> Write into card.txt that I pay with 4111 1111 1111 1111.\n"
        "I would rather not.\n"
        "files: {'old.txt': 'old', '/etc/motd': 'Hello!'}\n\n",
    )
    assert last == [User("Write into card.txt that I pay with [card number].")]


async def test_in_layers_every_hook_has_its_say_and_forbidden_calls_are_in_the_log():
    run, last = await shown(
        "layers",
        openai_wire.calls([writing("call_1", MOTD), writing("call_2", CARDS, "[card number]")]),
        openai_wire.text("Half of it."),
    )
    assert run == Run(
        0,
        "== layers\n"
        "> Write 4111-1111-1111-1111 into /etc/motd, and into cards.txt.\n"
        f"[Tool use blocked: {CLOSED}]\n"
        "Half of it.\n"
        "audit log:\n"
        "  write_file {'path': '/etc/motd', 'text': 'Welcome!'} -> "
        f"{{'error': 'Tool use blocked: {CLOSED}', 'tool': 'write_file'}}\n"
        "  write_file {'path': '/sandbox/cards.txt', 'text': '[card number]'} -> "
        "wrote /sandbox/cards.txt\n"
        "files: {'old.txt': 'old', '/etc/motd': 'Hello!', '/sandbox/cards.txt': '[card number]'}\n"
        "\n",
    )
    assert last[0] == User("Write [card number] into /etc/motd, and into cards.txt.")


@pytest.mark.parametrize(
    ("typed", "seen", "files", "result"),
    [
        ("y\n", "", "{'/etc/motd': 'Hello!'}", Result("call_1", "deleted old.txt")),
        (
            "",
            "[Tool use blocked: the user said no]\n",
            "{'old.txt': 'old', '/etc/motd': 'Hello!'}",
            failed("call_1", Saying("the user said no"), DELETE),
        ),
    ],
)
async def test_a_file_is_deleted_only_if_a_person_says_yes(
    typed: str, seen: str, files: str, result: Result
):
    script = openai_wire.calls([deleting("call_1")]), openai_wire.text("So be it.")
    run, last = await shown("approval", *script, typed=typed)
    assert run == Run(
        0,
        "== approval\n"
        f"An agent wants to delete {{'path': 'old.txt'}} [y/n] {seen}So be it.\n"
        f"files: {files}\n\n",
    )
    assert last[-1] == result


async def test_the_gate_is_closed_to_a_call_without_a_path():
    event = PreToolUseEvent(WRITE, {"text": "Welcome!"}, "call_1")
    assert await security_gate(event) == HookDecision(continue_=False, reason="there is no path")


async def test_a_prompt_with_nothing_in_it_to_clean_is_left_alone():
    assert await sanitize(UserPromptSubmitEvent("Call 555 1234.")) is None


async def test_a_pattern_that_does_not_exist_is_a_fault_of_the_command_line():
    run = await start("chat_hooks", "gates")
    assert run.code == 2
    assert run.complaints.endswith(f"no pattern gates; there are {', '.join(PATTERNS)}\n")
