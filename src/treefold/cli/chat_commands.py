"""The commands of a chat: lines that begin with a slash and are not sent to the model."""

import re
from collections.abc import Callable
from datetime import datetime
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Final

from treefold.chat.client import Client
from treefold.chat.context import estimate_tokens
from treefold.cli.chat_file import default_name, read_chat, told, write_chat
from treefold.cli.screen import Screen
from treefold.core.errors import TreefoldError
from treefold.views.text import cut, printable

QUIT: Final = "/quit"

_COMMAND: Final = re.compile(r"(/[A-Za-z]+!?)(?:\s+(.*))?", re.DOTALL)
_SHOWN: Final = 100  # characters of each message in /history


class ChatCommands:
    """What they do to a client; those that ask the model again return the prompt."""

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
            "/model": self._tell_model,
            "/retry": self._retry,
        }

    def run(self, line: str) -> str | None:
        """Do what *line* says if it is a command; return what is to be sent to the model.

        A line that only looks like one, such as a path, is sent.
        """
        match = _COMMAND.fullmatch(line.strip())
        if match is None:
            return line.removeprefix("/") if line.startswith("//") else line
        name, argument = match.groups("")
        command = self._commands.get(name.lower())
        if command is None:
            near = get_close_matches(name, [*self._commands, QUIT], n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            self._screen.note(f"no command is called {name}; {hint}/help lists them")
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
            self._screen.note(f"{path} is there already; '/save! {path}' overwrites it")
        else:
            self._screen.note(f"saved as {path}")

    def _load(self, argument: str) -> None:
        if not argument:
            self._screen.note("say which file: /load FILE")
            return
        self._client.message_history = read_chat(Path(argument).expanduser())
        self._screen.note(
            f"{len(self._client.message_history)} messages; they are sent from now on"
        )

    def _tokens(self, _argument: str) -> None:
        system = {"role": "system", "content": self._client.options.system_prompt}
        estimate = estimate_tokens([system, *self._client.history], self._model)
        used = self._client.usage
        read = used.total - used.output - used.reasoning
        self._screen.note(
            f"about {estimate:,} tokens go with the next request; so far {read:,} were read and "
            f"{used.output + used.reasoning:,} written"
        )

    def _clear(self, _argument: str) -> None:
        self._client.message_history = []
        self._screen.note("the model has forgotten everything")

    def _history(self, _argument: str) -> None:
        for speaker, text in told(self._client.history):
            self._screen.note(f"{speaker}: {cut(printable(text), _SHOWN)}")

    def _tell_model(self, _argument: str) -> None:
        self._screen.note(self._model)

    def _retry(self, _argument: str) -> str | None:
        history: list[dict[str, Any]] = self._client.history
        asked = [at for at, message in enumerate(history) if message["role"] == "user"]
        if not asked:
            self._screen.note("nothing was asked yet")
            return None
        self._client.message_history = history[: asked[-1]]
        return history[asked[-1]]["content"]


HELP: Final = """\
/help            this list
/save [FILE]     write the conversation as .json or .md; /save! overwrites
/load FILE       go on from a conversation saved as .json
/tokens          what the next request takes, and what was used
/clear           forget the conversation
/history         what was said, shortened
/model           who you are talking to
/retry           ask the last thing again
/quit            end, as Ctrl-D does
A line that ends in a backslash goes on in the next. Ctrl-C interrupts an answer.
Begin with // to send a line that begins with a slash."""
