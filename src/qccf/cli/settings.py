"""`qccf settings`."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from qccf.cli import completers
from qccf.cli.options import Subparsers
from qccf.core.errors import ConfigError
from qccf.core.suggest import closest

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from qccf.settings.reference import SettingInfo


TABLE_WIDTH = 110
"""In narrower terminals a table would break words, so settings are listed one below the other."""


def add_parser(commands: Subparsers) -> None:
    settings = commands.add_parser("settings", help="list every setting with its meaning, unit, default and limits")
    settings.description = "List every setting with its meaning, unit, default and limits."
    settings.usage = "qccf settings [SECTION|WORD]"
    settings.examples = {
        "qccf settings radio": "the settings of one section",
        "qccf settings bandwidth": "all settings with that word in their name",
    }
    wanted = settings.add_argument(
        "wanted", nargs="?", metavar="SECTION|WORD", help="a section, such as radio, or a part of a setting's name"
    )
    completers.attach(wanted, completers.sections)
    settings.set_defaults(run=settings_command)


def settings_command(options: argparse.Namespace) -> int:
    from qccf.cli.screen import output
    from qccf.settings.reference import section_descriptions, settings_reference

    console = output()
    chosen = _chosen(options.wanted, settings_reference())
    for name, description in section_descriptions().items():
        if infos := [info for info in chosen if info.section == name]:
            section = _section_table if console.width >= TABLE_WIDTH else _section_list
            console.print(section(name, description, infos))
    return 0


def _chosen(wanted: str | None, infos: "Sequence[SettingInfo]") -> "Sequence[SettingInfo]":
    """The settings of a section with its subsections, or else those with `wanted` in their name."""
    if wanted is None:
        return infos
    section = [info for info in infos if f"{info.section}.".startswith(f"{wanted}.")]
    found = section or [info for info in infos if wanted.lower() in info.path.lower()]
    if not found:
        sections = list(dict.fromkeys(info.section for info in infos))
        likely = closest(wanted, [*sections, *(info.key for info in infos)])
        remedy = f"did you mean {likely}?" if likely else f"choose one of {', '.join(sections)}."
        raise ConfigError(f"{wanted!r} is neither a section of the settings nor a part of a name: {remedy}")
    return found


def _section_table(name: str, description: str, infos: "Sequence[SettingInfo]") -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    title = Text.assemble((name, "bold"), f": {description}")
    table = Table(title=title, title_justify="left", title_style="", box=SIMPLE_HEAD, expand=True)
    table.add_column("setting", overflow="fold")
    table.add_column("meaning", overflow="fold", min_width=24, ratio=1)
    table.add_column("unit", overflow="fold")
    table.add_column("default", overflow="fold", max_width=14)
    table.add_column("limits", overflow="fold", max_width=18)
    for info in infos:
        table.add_row(info.key, info.description, info.unit, info.default, info.limits or info.choices)
    return table


def _section_list(name: str, description: str, infos: "Sequence[SettingInfo]") -> "Group":
    from rich.console import Group, RenderableType
    from rich.padding import Padding
    from rich.text import Text

    found: list[RenderableType] = [Text.assemble((name, "bold"), f": {description}\n")]
    for info in infos:
        limits = info.limits or info.choices
        value = f" = {info.default} {info.unit}".rstrip()
        found.append(Padding(Text.assemble((info.key, "bold"), value, f"  ({limits})" if limits else ""), (0, 0, 0, 2)))
        found.append(Padding(info.description, (0, 0, 0, 6)))
    return Group(*found, "")
