"""The commands of a chat: lines that begin with a slash and are not sent to the model."""

import re
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from treefold.chat.client import Client
from treefold.chat.context import estimate_tokens
from treefold.cli.chat_file import default_name, read_chat, spoken, write_chat
from treefold.cli.chat_screen import Screen
from treefold.core.errors import TreefoldError
from treefold.core.suggestions import did_you_mean
from treefold.core.truncation import truncate
from treefold.views.text import printable

QUIT: Final = "/quit"

_COMMAND: Final = re.compile(r"(/[A-Za-z]+!?)(?:\s+(.*))?", re.DOTALL)
_LONGEST_IN_HISTORY: Final = 100  # characters of a message


class ChatCommands:
    """Runs the commands of a chat on its client."""

    def __init__(self, client: Client, screen: Screen, model: str) -> None:
        self._client = client
        self._screen = screen
        self._model = model
        self._commands: dict[str, Callable[[str], str | None]] = {
            "/help": self._help,
            "/save": partial(self._save, overwrite=False),
            "/save!": partial(self._save, overwrite=True),
            "/load": self._load,
            "/tokens": self._tokens,
            "/clear": self._clear,
            "/history": self._history,
            "/model": self._show_model,
            "/retry": self._retry,
        }

    def run(self, line: str) -> str | None:
        """Run *line* if it is a command; return the prompt to send to the model, if any.

        A line that only looks like a command, such as a path, is sent. /retry returns the prompt
        to send again.
        """
        match = _COMMAND.fullmatch(line.strip())
        if match is None:
            return line.removeprefix("/") if line.startswith("//") else line
        name, argument = match.groups("")
        command = self._commands.get(name.lower())
        if command is None:
            hint = did_you_mean(name, [*self._commands, QUIT])
            self._screen.note(f"there is no command {name}; {hint or '/help lists them'}")
            return None
        try:
            return command(argument.strip())
        except TreefoldError as error:
            self._screen.note(str(error))
        except OSError as error:
            self._screen.note(f"{error.filename}: {error.strerror}")
        return None

    def _help(self, _argument: str) -> None:
        self._screen.note(HELP)

    def _save(self, argument: str, *, overwrite: bool) -> None:
        path = Path(argument or default_name(datetime.now().astimezone())).expanduser()
        try:
            write_chat(path, self._client.history, model=self._model, overwrite=overwrite)
        except FileExistsError:
            self._screen.note(f"{path} already exists; '/save! {path}' overwrites it")
        else:
            self._screen.note(f"saved as {path}")

    def _load(self, argument: str) -> None:
        if not argument:
            self._screen.note("the file is missing: /load FILE")
            return
        self._client.message_history = read_chat(Path(argument).expanduser())
        self._screen.note(
            f"loaded {len(self._client.message_history)} messages; the next prompt follows them"
        )

    def _tokens(self, _argument: str) -> None:
        system = {"role": "system", "content": self._client.options.system_prompt}
        estimate = estimate_tokens([system, *self._client.history], self._model)
        used = self._client.usage
        read = used.total - used.output - used.reasoning
        self._screen.note(
            f"the next request has about {estimate:,} tokens; so far {read:,} were read and "
            f"{used.output + used.reasoning:,} written"
        )

    def _clear(self, _argument: str) -> None:
        self._client.message_history = []
        self._screen.note("the model has forgotten everything")

    def _history(self, _argument: str) -> None:
        for speaker, text in spoken(self._client.history):
            self._screen.note(f"{speaker}: {truncate(printable(text), _LONGEST_IN_HISTORY)}")

    def _show_model(self, _argument: str) -> None:
        self._screen.note(self._model)

    def _retry(self, _argument: str) -> str | None:
        history: list[dict[str, Any]] = self._client.history
        asked = [at for at, message in enumerate(history) if message["role"] == "user"]
        if not asked:
            self._screen.note("there is no prompt yet")
            return None
        self._client.message_history = history[: asked[-1]]
        return history[asked[-1]]["content"]


HELP: Final = """\
/help            this list
/save [FILE]     write the conversation as .json or .md; /save! overwrites
/load FILE       continue a conversation saved as .json
/tokens          the tokens of the next request, and those used so far
/clear           forget the conversation
/history         the conversation, with each message shortened
/model           the model that you talk to
/retry           send the last prompt again
/quit            end, as Ctrl-D does
A line that ends in a backslash continues in the next. Ctrl-C interrupts an answer.
Begin with // to send a line that begins with a slash."""
