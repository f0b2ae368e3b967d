"""`qccf data list | fetch NAME | check NAME`."""

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from qccf.learning.datasets import DATASETS, data_folder
from qccf.learning.datasets.base import DataError


def data_command(options: argparse.Namespace) -> int:
    folder = data_folder(options.data_dir)
    console = Console()
    if options.action == "list":
        table = Table(title=f"Datasets; folder {folder}")
        table.add_column("name", no_wrap=True)
        table.add_column("what")
        table.add_column("here", no_wrap=True)
        for name, source in DATASETS.items():
            table.add_row(name, source.description, "yes" if _present(name, folder) else "no")
        console.print(table)
        return 0
    if options.name not in DATASETS:
        raise DataError(f"{options.name!r} is not a dataset; known: {', '.join(DATASETS)}.")
    source = DATASETS[options.name]
    if options.action == "fetch":
        for path in source.fetch(folder, _shown):
            console.print(f"{path}", soft_wrap=True, highlight=False)
    for line in source.check(folder):
        console.print(line, soft_wrap=True, highlight=False)
    return 0


def _present(name: str, folder: Path) -> bool:
    try:
        return bool(DATASETS[name].check(folder))
    except DataError:
        return False


def _shown(what: str, done: int, total: int | None) -> None:
    """Progress on standard error: one line that is rewritten on a terminal, silent elsewhere but for new names."""
    if sys.stderr.isatty():
        share = f"{done / total:.0%}" if total else f"{done / 1e6:.1f} MB"
        print(f"\r{what}: {share}    ", end="" if total is None or done < total else "\n", file=sys.stderr, flush=True)
    elif done == 0:
        print(what, file=sys.stderr)
