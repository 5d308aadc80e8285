"""``treefold completion``: have a shell complete commands and their options."""

import argparse
from collections.abc import Callable, Iterator

from treefold.cli.commands import COMMANDS
from treefold.cli.exit_codes import DONE
from treefold.cli.shells import SCRIPTS, Completed, Option


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "completion",
        description="Print a script that has a shell complete commands and their options.",
        epilog=(
            "example: treefold completion bash\n\n"
            'bash: treefold completion bash > ~/.treefold.bash, and "source ~/.treefold.bash" in\n'
            "  ~/.bashrc\n"
            'zsh: treefold completion zsh > ~/.treefold.zsh, and "source ~/.treefold.zsh" into\n'
            "  ~/.zshrc, after compinit\n"
            "fish: treefold completion fish > ~/.config/fish/completions/treefold.fish\n\n"
            "exit codes: 0 it was printed, 2 there is none for that shell"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=sorted(SCRIPTS), help="which shell")
    parser.set_defaults(command=completion)


def completion(options: argparse.Namespace) -> int:
    """Print the script for the shell that *options* name."""
    print(SCRIPTS[options.shell](list(_completed())), end="")
    return DONE


def _completed() -> Iterator[Completed]:
    from treefold.cli import parser_of  # noqa: PLC0415 - which knows of this module

    for command in COMMANDS.values():
        actions = parser_of(command)._actions  # pyright: ignore[reportPrivateUsage]
        arguments = [action for action in actions if not action.option_strings]
        yield Completed(
            command.name,
            command.help,
            options=tuple(_option(action) for action in actions if action.option_strings),
            words=tuple(word for action in arguments for word in _words(action)),
            takes_more=bool(arguments),
        )


def _option(action: argparse.Action) -> Option:
    return Option(
        names=tuple(action.option_strings),
        help=(action.help or "") % vars(action),
        value=None if action.nargs == 0 else str(action.metavar or action.dest).upper(),
        words=_words(action),
    )


def _words(action: argparse.Action) -> tuple[str, ...]:
    return tuple(map(str, action.choices or ([action.default] if action.nargs == "?" else ())))
