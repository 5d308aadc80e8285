"""``treefold completion``: print a script with which a shell completes commands and options."""

import click

from treefold.cli.commands import COMPLETION_VARIABLE, treefold
from treefold.cli.exit_codes import DONE
from treefold.cli.options import command


@command("completion", exit_codes="0 it was printed, 2 there is no script for that shell")
@click.argument("shell", type=click.Choice(["bash", "fish", "zsh"]), help="which shell")
def completion(shell: str) -> int:
    """Print a script with which a shell completes commands, options and their values.

    example: treefold completion bash

    bash: treefold completion bash > ~/.treefold.bash, and "source ~/.treefold.bash" in ~/.bashrc;
      it needs bash 4.4 or newer
    zsh: treefold completion zsh > ~/.treefold.zsh, and "source ~/.treefold.zsh" in ~/.zshrc, after
      compinit
    fish: treefold completion fish > ~/.config/fish/completions/treefold.fish
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - --help needs none

    script = get_completion_class(shell)
    assert script is not None  # click has one for each of the choices
    print(script(treefold, {}, "treefold", COMPLETION_VARIABLE).source(), end="")
    return DONE
