"""What a user sees while a run goes on: a live panel on a terminal, plain lines elsewhere, a table at the end."""

import math
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table

from qccf.simulation.loop import Progress

PLAIN_LINES = 20
"""How many lines a run prints at most where there is no terminal, first and last round aside."""


class LiveView:
    """One panel that is redrawn after each round."""

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
            "round": f"{last['round'] + 1} of {total}, {_clock(self._eta(progress))} left",
            "test accuracy": _percent(last["test_accuracy"]),
            "training loss": _number(last["train_loss"]),
            "energy so far": f"{last['cumulative_energy_j']:.4g} J",
            "bits": _number(last["mean_bits"]),
            "participants": f"{last['participants']}, {last['missed']} late",
            "queues λ1, λ2": f"{_number(last['participation_queue'])}, {_number(last['quantization_queue'])}",
        }
        table.add_row("[bold]policy", f"[bold]{progress.policy}[/], seed {progress.seed}")
        for label, value in rows.items():
            table.add_row(label, value)
        self._live.update(table)

    def _eta(self, progress: Progress) -> float:
        recent = self._seconds[-5:]
        return (progress.scenario.federation.rounds - len(progress.ledger)) * sum(recent) / len(recent)


class PlainView:
    """A line now and then."""

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
            f"{progress.policy} seed {progress.seed}: round {done}/{total}, "
            f"accuracy {_percent(last['test_accuracy'])}, loss {_number(last['train_loss'])}, "
            f"{last['cumulative_energy_j']:.4g} J, bits {_number(last['mean_bits'])}, "
            f"{last['participants']} take part, {last['missed']} late, {progress.round_seconds:.2f} s"
        )
        self._console.print(line, soft_wrap=True, highlight=False)


def results_table(title: str, summaries: list[dict[str, Any]]) -> Table:
    """One row a policy, means over seeds."""
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 0), pad_edge=False)
    table.add_column("policy", no_wrap=True)
    for heading in ("test\naccuracy", "energy\nJ", "bits", "take\npart", "missed"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name in dict.fromkeys(summary["policy"] for summary in summaries):
        mine = [summary for summary in summaries if summary["policy"] == name]
        table.add_row(
            name,
            _over_seeds([100.0 * s["test_accuracy"] for s in mine if s["test_accuracy"] is not None], ".1f") + " %",
            _over_seeds([s["energy_j"] for s in mine], ".3g"),
            _over_seeds([s["mean_bits"] for s in mine if s["mean_bits"] is not None], ".2f"),
            _percent(sum(s["participation"] for s in mine) / len(mine)),
            _percent(sum(s["missed"] for s in mine) / len(mine)),
        )
    return table


def _over_seeds(values: list[float], form: str) -> str:
    if not values:
        return "–"
    mean = sum(values) / len(values)
    if len(values) == 1:
        return f"{mean:{form}}"
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return f"{mean:{form}}±{spread:.2g}"


def _percent(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.1%}"


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3g}"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
