"""Keep watch over a chat with hooks: forbid, redirect, record, clean up, ask a person.

TREEFOLD_MODEL=qwen3 TREEFOLD_BASE_URL=http://localhost:11434/v1 python examples/chat_hooks.py
python examples/chat_hooks.py --model qwen3 gate layers

What it shows, one pattern after the other, or those that are named: ``gate``, a security gate;
``audit``, a log of all calls; ``sanitize``, prompts that are cleaned up or refused; ``layers``, all
of them together; ``approval``, a person who is asked. The files are in memory: nothing is deleted.

``TREEFOLD_BASE_URL`` is the address of any OpenAI-compatible server; the default is LM Studio's.
"""

import argparse
import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from posixpath import normpath
from typing import Any

from treefold import (
    HOOK_POST_TOOL_USE,
    HOOK_PRE_TOOL_USE,
    HOOK_USER_PROMPT_SUBMIT,
    AgentOptions,
    BlockedError,
    Client,
    Function,
    HookDecision,
    Node,
    PostToolUseEvent,
    PreToolUseEvent,
    Question,
    Runtime,
    TextBlock,
    ToolUseError,
    TreefoldError,
    UserPromptSubmitEvent,
    get_base_url,
    get_model,
    tool,
)

SANDBOX = "/sandbox"
CARD_NUMBER = re.compile(r"\b\d(?:[ -]?\d){12,18}\b")


def file_tools(files: dict[str, str]) -> list[Function]:
    """Return tools that write and delete *files*, which are not on any disk."""

    @tool("write_file", "Write a text file.", {"path": str, "text": str})
    async def write_file(args: dict[str, Any]) -> str:
        files[args["path"]] = args["text"]
        return f"wrote {args['path']}"

    @tool("delete_file", "Delete a file.", {"path": str})
    async def delete_file(args: dict[str, Any]) -> str:
        del files[args["path"]]
        return f"deleted {args['path']}"

    return [write_file, delete_file]


async def security_gate(event: PreToolUseEvent) -> HookDecision | None:
    """Forbid what belongs to the system; have everything else written into the sandbox."""
    given = event.tool_input.get("path")
    if not isinstance(given, str):  # arguments are checked when the hooks have had their say
        return HookDecision(continue_=False, reason="there is no path")
    path = normpath(given)  # /tmp/../etc is /etc
    if path.startswith(("/etc/", "/sys/")):
        return HookDecision(continue_=False, reason=f"{path} belongs to the system")
    if event.tool_name == "write_file" and not path.startswith(f"{SANDBOX}/"):
        moved = {**event.tool_input, "path": SANDBOX + normpath(f"/{path}")}
        return HookDecision(modified_input=moved, reason="moved into the sandbox")
    return None  # nothing to say: the next hook is asked


def audit_to(log: list[str]) -> Callable[[PostToolUseEvent], Awaitable[None]]:
    """Return a hook that appends a line to *log* for each call, the forbidden ones included."""

    async def audit(event: PostToolUseEvent) -> None:
        log.append(f"{event.tool_name} {dict(event.tool_input)} -> {event.tool_result}")

    return audit


async def sanitize(event: UserPromptSubmitEvent) -> HookDecision | None:
    """Refuse prompts about passwords, and send no card number to anybody."""
    if "password" in event.prompt.casefold():
        return HookDecision(continue_=False, reason="no passwords, please")
    cleaned = CARD_NUMBER.sub("[card number]", event.prompt)
    return HookDecision(modified_prompt=cleaned) if cleaned != event.prompt else None


async def ask_before_deleting(event: PreToolUseEvent) -> HookDecision | None:
    """Have a person decide about each file that is to be deleted."""
    if event.tool_name != "delete_file":
        return None
    return HookDecision(ask=f"An agent wants to delete {dict(event.tool_input)}")


async def talk(client: Client, prompt: str) -> None:
    """Say *prompt*, and print what comes of it."""
    print(f"> {prompt}")
    try:
        await client.query(prompt)
    except BlockedError as error:
        print(f"[{error}]")
    else:
        await listen(client)


async def listen(client: Client) -> None:
    """Print the answer, and what went wrong with calls."""
    async for block in client.receive_messages():
        match block:
            case TextBlock(text):
                print(text, end="", flush=True)
            case ToolUseError(error):
                print(f"[{error}]")
            case _:
                pass
    print()


async def gate(options: AgentOptions) -> None:
    """Pattern 1: a security gate."""
    hooks = {HOOK_PRE_TOOL_USE: [security_gate]}
    async with Client(replace(options, hooks=hooks)) as client:
        await talk(client, "Write 'Welcome!' into /etc/motd.")
        await talk(client, "Then write it into notes.txt.")


async def audit(options: AgentOptions) -> None:
    """Pattern 2: an audit log."""
    log: list[str] = []
    async with Client(replace(options, hooks={HOOK_POST_TOOL_USE: [audit_to(log)]})) as client:
        await talk(client, "Write 'milk' into list.txt, then delete old.txt.")
    print("audit log:", *log, sep="\n  ")


async def sanitizing(options: AgentOptions) -> None:
    """Pattern 3: input sanitization."""
    async with Client(replace(options, hooks={HOOK_USER_PROMPT_SUBMIT: [sanitize]})) as client:
        await talk(client, "My password is swordfish. Is it a good one?")
        await talk(client, "Write into card.txt that I pay with 4111 1111 1111 1111.")


async def layers(options: AgentOptions) -> None:
    """Pattern 4: all of them; the first hook that decides is the last one that is asked."""
    log: list[str] = []
    options = replace(
        options,
        hooks={
            HOOK_USER_PROMPT_SUBMIT: [sanitize],
            HOOK_PRE_TOOL_USE: [security_gate],
            HOOK_POST_TOOL_USE: [audit_to(log)],
        },
    )
    async with Client(options) as client:
        await talk(client, "Write 4111-1111-1111-1111 into /etc/motd, and into cards.txt.")
    print("audit log:", *log, sep="\n  ")


async def approval(options: AgentOptions) -> None:
    """Have a person decide, who is asked through the runtime that the chat is in."""
    hooks = {HOOK_PRE_TOOL_USE: [security_gate, ask_before_deleting]}
    async with Runtime() as runtime, Client(replace(options, hooks=hooks)) as client:
        await client.query("Delete old.txt.")
        assert client.node is not None  # it is the turn that the query has begun
        async with asyncio.TaskGroup() as group:
            group.create_task(answer_questions(runtime, client.node))
            await listen(client)


async def answer_questions(runtime: Runtime, turn: Node) -> None:
    """Put to a person whatever comes up in *turn*, until that has ended."""
    async for _ in runtime.watch(turn):
        for question in runtime.questions():
            runtime.answer(question.id, await asyncio.to_thread(put, question))


def put(question: Question) -> str:
    """Put *question* to the person at the terminal; who is not there says no."""
    try:
        said = input(f"{question.text} [y/n] ")
    except EOFError:
        said = "n"
    return "allow" if said == "y" else "deny: the user said no"


PATTERNS = {
    "gate": gate, "audit": audit, "sanitize": sanitizing, "layers": layers, "approval": approval,
}  # fmt: skip


async def show(names: Iterable[str], options: AgentOptions) -> None:
    """Show some of the patterns, each with files of its own."""
    for name in names:
        print(f"== {name}")
        files = {"old.txt": "old", "/etc/motd": "Hello!"}
        await PATTERNS[name](replace(options, tools=file_tools(files)))
        print(f"files: {files}\n")


def main() -> int:
    """Show the patterns that the command line names."""
    about, _, _ = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("patterns", nargs="*", help=f"some of: {', '.join(PATTERNS)}")
    parser.add_argument("--model", help="its name on the server; otherwise TREEFOLD_MODEL")
    given = parser.parse_args()
    names: list[str] = given.patterns or list(PATTERNS)
    if unknown := set(names) - set(PATTERNS):
        parser.error(f"there is no pattern {', '.join(unknown)}; there are {', '.join(PATTERNS)}")
    try:
        options = AgentOptions(
            system_prompt="You keep the user's files with your tools, and answer in one sentence.",
            model=get_model(given.model, prefer_env=False),
            base_url=get_base_url(),
            auto_execute_tools=True,
            on_blocked="tell",  # by default a blocked call raises RuntimeError
        )
        asyncio.run(show(names, options))
    except TreefoldError as error:
        print(f"chat_hooks: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
