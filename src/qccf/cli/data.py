"""`qccf data list | fetch NAME | check NAME`."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from qccf.cli.options import Subparsers, add_data_dir

if TYPE_CHECKING:
    from qccf.learning.datasets import DatasetSource


def add_parser(commands: Subparsers) -> None:
    data = commands.add_parser("data", help="list, fetch and check datasets")
    data.description = "List the datasets, download one, or check that its files are complete."
    data.add_argument("action", choices=("list", "fetch", "check"), help="what to do")
    data.add_argument("name", nargs="?", default="", help="the dataset, for fetch and check")
    add_data_dir(data)
    data.set_defaults(run=data_command)


def data_command(options: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    from qccf.learning.datasets import DATASETS, data_folder, dataset_source

    folder = data_folder(options.data_dir)
    console = Console()
    if options.action == "list":
        table = Table(title=f"Datasets in {folder}")
        table.add_column("name", no_wrap=True)
        table.add_column("description")
        table.add_column("present", no_wrap=True)
        for name in DATASETS:
            source = dataset_source(name)
            table.add_row(name, source.description, "yes" if _present(source, folder) else "no")
        console.print(table)
        return 0
    source = dataset_source(options.name)
    if options.action == "fetch":
        for path in source.fetch(folder, _show_progress):
            console.print(f"{path}", soft_wrap=True, highlight=False)
    for line in source.check(folder):
        console.print(line, soft_wrap=True, highlight=False)
    return 0


def _present(source: "DatasetSource", folder: Path) -> bool:
    from qccf.learning.datasets import DataError

    try:
        return bool(source.check(folder))
    except DataError:
        return False


def _show_progress(what: str, done: int, total: int | None) -> None:
    """On standard error: one line that is rewritten on a terminal, one line per file elsewhere."""
    if sys.stderr.isatty():
        share = f"{done / total:.0%}" if total else f"{done / 1e6:.1f} MB"
        print(f"\r{what}: {share}    ", end="" if total is None or done < total else "\n", file=sys.stderr, flush=True)
    elif done == 0:
        print(what, file=sys.stderr)
