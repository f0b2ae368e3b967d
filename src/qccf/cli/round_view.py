"""The progress of a run: a live panel on a terminal, plain lines elsewhere."""

import math

from rich.console import Console
from rich.live import Live
from rich.table import Table

from qccf.cli.tables import clock, number
from qccf.runtimes.simulator import Progress

PLAIN_LINES = 20
"""Maximum number of lines that a run prints without a terminal, not counting the first and the last round."""


class LiveView:
    """A panel that is redrawn after every round."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._seconds: list[float] = []

    def __enter__(self) -> "LiveView":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def update(self, progress: Progress) -> None:
        self._seconds.append(progress.round_seconds)
        last, total = progress.ledger.last, progress.scenario.federation.rounds
        table = Table.grid(padding=(0, 2))
        rows = {
            "round": f"{last['round'] + 1} of {total}, {clock(self._eta(progress))} left",
            "test accuracy": number(last["test_accuracy"], ".1%"),
            "training loss": number(last["train_loss"]),
            "energy so far": f"{last['cumulative_energy_j']:.4g} J",
            "bits": number(last["mean_bits"]),
            "participants": f"{last['participants']}, {last['missed']} missed the deadline",
            "queues λ1, λ2": f"{number(last['participation_queue'])}, {number(last['quantization_queue'])}",
        }
        name = f"[bold]{progress.policy}[/], codec {progress.scenario.codec.name}, seed {progress.seed}"
        table.add_row("[bold]policy", name)
        for label, value in rows.items():
            table.add_row(label, value)
        self._live.update(table)

    def _eta(self, progress: Progress) -> float:
        recent = self._seconds[-5:]
        return (progress.scenario.federation.rounds - len(progress.ledger)) * sum(recent) / len(recent)


class PlainView:
    """One line for every few rounds."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> "PlainView":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, progress: Progress) -> None:
        last, total = progress.ledger.last, progress.scenario.federation.rounds
        done = int(last["round"]) + 1
        if done not in (1, total) and done % math.ceil(total / PLAIN_LINES):
            return
        line = (
            f"{progress.policy}, codec {progress.scenario.codec.name}, seed {progress.seed}: round {done}/{total}, "
            f"accuracy {number(last['test_accuracy'], '.1%')}, loss {number(last['train_loss'])}, "
            f"{last['cumulative_energy_j']:.4g} J, bits {number(last['mean_bits'])}, "
            f"{last['participants']} participants, {last['missed']} missed the deadline, {progress.round_seconds:.2f} s"
        )
        self._console.print(line, soft_wrap=True, highlight=False)


def round_view(console: Console) -> LiveView | PlainView:
    return LiveView(console) if console.is_terminal else PlainView(console)
