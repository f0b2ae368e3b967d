"""`qccf completion`."""

import argparse

from qccf.cli.options import Subparsers

USE = {
    "bash": 'eval "$(qccf completion bash)"   in ~/.bashrc',
    "zsh": 'eval "$(qccf completion zsh)"    in ~/.zshrc, after compinit',
    "fish": "qccf completion fish | source    in ~/.config/fish/config.fish",
}


def add_parser(commands: Subparsers) -> None:
    completion = commands.add_parser("completion", help="print the completion script of a shell")
    completion.description = (
        "Print a script that completes commands, options, presets, policies, codecs, datasets and settings with the "
        "Tab key. Put the line of your shell into its start-up file."
    )
    completion.usage = "qccf completion SHELL"
    completion.lists["Shells"] = USE
    completion.add_argument("shell", choices=tuple(USE), metavar="SHELL", help="bash, zsh or fish")
    completion.set_defaults(run=completion_command)


def completion_command(options: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    shell = "bash" if options.shell == "zsh" else options.shell  # that script serves both
    print(shellcode(["qccf"], shell=shell))
    return 0
