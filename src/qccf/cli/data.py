"""`qccf data list | fetch NAME | check NAME`."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from qccf.cli import choices, completers
from qccf.cli.options import Subparsers, add_data_dir
from qccf.core.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from qccf.learning.datasets import DatasetSource


def add_parser(commands: Subparsers) -> None:
    data = commands.add_parser("data", help="list, fetch and check datasets")
    data.description = "List the datasets, download one, or check that its files are complete."
    data.usage = "qccf data list|fetch|check [NAME] [options]"
    data.examples = {"qccf data list": "what is here", "qccf data fetch femnist": "download a dataset and check it"}
    data.lists["Datasets (--set data.dataset=NAME)"] = choices.DATASETS
    data.add_argument("action", choices=("list", "fetch", "check"), metavar="ACTION", help="list, fetch or check")
    name = data.add_argument("name", nargs="?", metavar="NAME", help="the dataset, for fetch and check")
    completers.attach(name, completers.datasets)
    add_data_dir(data)
    data.set_defaults(run=data_command)


def data_command(options: argparse.Namespace) -> int:
    from rich.table import Table

    from qccf.cli.screen import messages, output
    from qccf.learning.datasets import DATASETS, data_folder, dataset_source

    folder = data_folder(options.data_dir)
    console = output()
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
    if options.name is None:
        raise ConfigError(f"qccf data {options.action} needs the name of a dataset: {', '.join(DATASETS)}.")
    source = dataset_source(options.name)
    if options.action == "fetch":
        with fetch_view(messages()) as show:
            paths = source.fetch(folder, show)
        for path in paths:
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


@contextmanager
def fetch_view(console: "Console") -> Iterator[Callable[[str, int, int | None], None]]:
    """Shows a download: a bar with the remaining time for each file on a terminal, one line per file elsewhere."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    def print_name(what: str, done: int, _total: int | None) -> None:
        if done == 0:
            console.print(what, soft_wrap=True, highlight=False)

    if not console.is_terminal:
        yield print_name
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console) as bars:

        def update(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield update
