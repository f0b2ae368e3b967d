"""The progress of a run: a live panel on a terminal, plain lines elsewhere."""

import math

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from qccf.core.numbers import clock, number, quantity
from qccf.core.words import counted
from qccf.runtimes.simulator import RoundEvent
from qccf.settings.loading import Scenario

PREPARING = "Dealing out the data, compiling kernels and probing gradients"
PLAIN_LINES = 20
"""Maximum number of lines that a run prints without a terminal, not counting the first and the last round."""

BAR_WIDTH = 40


class LiveView:
    """A panel that is redrawn after every round."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._seconds: list[float] = []

    def __enter__(self) -> "LiveView":
        self._live.start()
        self._live.update(Spinner("dots", f"{PREPARING} …"))
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def update(self, event: RoundEvent) -> None:
        self._seconds.append(event.round_seconds)
        last, total = event.ledger.last, event.scenario.federation.rounds
        table = Table.grid(padding=(0, 2))
        rows = {
            "round": f"{last['round'] + 1} of {total}, {clock(self._eta(event))} left",
            "test accuracy": number(last["test_accuracy"], ".1%"),
            "training loss": number(last["train_loss"]),
            "energy so far": quantity(last["cumulative_energy_j"], "J"),
            "bits": number(last["mean_bits"]),
            "participants": f"{last['participants']}, {last['missed']} missed the deadline",
            "error, its budget": f"{number(last['aggregate_error'])}, {number(last['error_budget'])}",
            "queues λ1, λ2": f"{number(last['participation_queue'])}, {number(last['quantization_queue'])}",
        }
        if math.isnan(last["participation_queue"]):
            del rows["queues λ1, λ2"]
        table.add_row(Text("policy", style="bold"), _run_name(event.scenario))
        table.add_row("", ProgressBar(total, len(event.ledger), width=BAR_WIDTH))
        for label, value in rows.items():
            table.add_row(label, value)
        self._live.update(table)

    def _eta(self, event: RoundEvent) -> float:
        recent = self._seconds[-5:]
        return (event.scenario.federation.rounds - len(event.ledger)) * sum(recent) / len(recent)


class PlainView:
    """One line for every few rounds."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> "PlainView":
        self._console.print(f"{PREPARING} …", highlight=False, soft_wrap=True)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, event: RoundEvent) -> None:
        last, total = event.ledger.last, event.scenario.federation.rounds
        done = int(last["round"]) + 1
        if done not in (1, total) and done % math.ceil(total / PLAIN_LINES):
            return
        line = (
            f"{_run_name(event.scenario)}: round {done}/{total}, "
            f"accuracy {number(last['test_accuracy'], '.1%')}, loss {number(last['train_loss'])}, "
            f"{quantity(last['cumulative_energy_j'], 'J')} so far, bits {number(last['mean_bits'])}, "
            f"{counted(int(last['participants']), 'participant')}, {last['missed']} missed the deadline, "
            f"{event.round_seconds:.2f} s"
        )
        self._console.print(line, soft_wrap=True, highlight=False)


def _run_name(scenario: Scenario) -> str:
    return f"{scenario.policy.name}, codec {scenario.codec.name}, seed {scenario.federation.seed}"


def round_view(console: Console) -> LiveView | PlainView:
    return LiveView(console) if console.is_terminal else PlainView(console)
