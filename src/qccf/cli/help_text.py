"""The help of a parser as text: colour on a terminal, plain elsewhere and with NO_COLOR."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text
from rich_argparse import RichHelpFormatter

from qccf.cli.screen import output

if TYPE_CHECKING:
    from qccf.cli.parser import Parser


class _Formatter(RichHelpFormatter):
    group_name_formatter = str
    text_markup = False
    help_markup = False
    styles = RichHelpFormatter.styles | {"argparse.groups": "bold yellow", "argparse.prog": "bold"}


def help_text(parser: "Parser") -> str:
    """Usage, description, arguments and options, then the parser's lists and examples."""
    formatter = _Formatter(parser.prog)
    formatter.console = output()
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups, prefix="Usage: ")
    formatter.add_text(parser.description)
    lists_first = parser._subparsers is not None
    if lists_first:
        _add_lists(formatter, parser)
    for group in parser._action_groups:
        formatter.start_section(group.title)
        formatter.add_arguments([one for one in group._group_actions if one.help is not argparse.SUPPRESS])
        formatter.end_section()
    if not lists_first:
        _add_lists(formatter, parser)
    if parser.examples:
        formatter.start_section("Examples")
        formatter.add_renderable(_examples(parser.examples))
        formatter.end_section()
    formatter.add_text(parser.epilog)
    return formatter.format_help()


def _add_lists(formatter: _Formatter, parser: "Parser") -> None:
    width = max((len(name) for entries in parser.lists.values() for name in entries), default=0)
    for title, entries in parser.lists.items():
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style="argparse.args", no_wrap=True, min_width=width)
        table.add_column(style="argparse.help")
        for name, text in entries.items():
            table.add_row(Text(name), Text(text))
        formatter.start_section(title)
        formatter.add_renderable(table)
        formatter.end_section()


def _examples(examples: Mapping[str, str]) -> Text:
    text = Text(overflow="fold")
    for command, meaning in examples.items():
        text.append(f"{command}\n", style="argparse.args").append(f"  {meaning}\n", style="dim")
    text.rstrip()
    return text
