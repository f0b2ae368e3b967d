"""`qccf settings`."""

import argparse

from qccf.cli.options import Subparsers
from qccf.core.errors import ConfigError


def add_parser(commands: Subparsers) -> None:
    settings = commands.add_parser("settings", help="list every setting with its meaning, unit, default and limits")
    settings.description = "List every setting with its meaning, unit, default and limits."
    settings.add_argument("section", nargs="?", metavar="SECTION", help="only this section, such as radio")
    settings.set_defaults(run=settings_command)


def settings_command(options: argparse.Namespace) -> int:
    import difflib

    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from qccf.settings.reference import section_descriptions, settings_reference

    sections = section_descriptions()
    if options.section is not None and options.section not in sections:
        close = difflib.get_close_matches(options.section, sections, n=1)
        hint = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(sections)}."
        raise ConfigError(f"{options.section!r} is not a section of the settings: {hint}")
    console = Console()
    for name, description in sections.items():
        if options.section not in (None, name):
            continue
        table = Table(
            title=f"[bold]{name}[/]: {description}", title_justify="left", title_style="", box=SIMPLE_HEAD, expand=True
        )
        table.add_column("setting", overflow="fold")
        table.add_column("meaning", overflow="fold", min_width=24, ratio=1)
        table.add_column("unit", overflow="fold")
        table.add_column("default", overflow="fold", max_width=14)
        table.add_column("limits", overflow="fold", max_width=18)
        for info in settings_reference():
            if info.section == name:
                table.add_row(info.key, info.description, info.unit, info.default, info.limits or info.choices)
        console.print(table)
    return 0
