"""What a user sees while a run goes on: a live panel on a terminal, plain lines elsewhere, a table at the end."""

import math
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table

from qccf.runtimes.simulator import Progress

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
        name = f"[bold]{progress.policy}[/], codec {progress.scenario.codec.name}, seed {progress.seed}"
        table.add_row("[bold]policy", name)
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
            f"{progress.policy}, codec {progress.scenario.codec.name}, seed {progress.seed}: round {done}/{total}, "
            f"accuracy {_percent(last['test_accuracy'])}, loss {_number(last['train_loss'])}, "
            f"{last['cumulative_energy_j']:.4g} J, bits {_number(last['mean_bits'])}, "
            f"{last['participants']} take part, {last['missed']} late, {progress.round_seconds:.2f} s"
        )
        self._console.print(line, soft_wrap=True, highlight=False)


def results_table(title: str, summaries: list[dict[str, Any]]) -> Table:
    """One row a policy or codec, means ± standard deviations over seeds; the rest is compared with the first row."""
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 0), pad_edge=False)
    table.add_column("", no_wrap=True)
    labels = list(dict.fromkeys(summary["label"] for summary in summaries))
    against = ("energy\n±%", "accuracy\n±points") if len(labels) > 1 else ()
    for heading in ("accuracy\n%", "energy\nJ", *against, "bits", "part\n%", "late\n%"):
        table.add_column(heading, justify="right", no_wrap=True)
    first = [summary for summary in summaries if summary["label"] == labels[0]]
    for label in labels:
        mine = [summary for summary in summaries if summary["label"] == label]
        compared = () if not against else ("", "") if label == labels[0] else _compared(mine, first)
        bits = [s["mean_bits"] for s in mine if s["mean_bits"] is not None]
        table.add_row(
            label,
            _over_seeds([100.0 * s["test_accuracy"] for s in mine if s["test_accuracy"] is not None], 1),
            _over_seeds([s["energy_j"] for s in mine], 3),
            *compared,
            f"{sum(bits) / len(bits):.1f}" if bits else "–",
            f"{100.0 * sum(s['participation'] for s in mine) / len(mine):.0f}",
            f"{100.0 * sum(s['missed'] for s in mine) / len(mine):.0f}",
        )
    return table


def _compared(mine: list[dict[str, Any]], first: list[dict[str, Any]]) -> tuple[str, str]:
    """Energy in per cent and accuracy in points against the first, seed by seed."""
    pairs = [(a, b) for a in mine for b in first if a["seed"] == b["seed"]]
    energy = [100.0 * (a["energy_j"] / b["energy_j"] - 1.0) for a, b in pairs if b["energy_j"]]
    known = [(a, b) for a, b in pairs if a["test_accuracy"] is not None and b["test_accuracy"] is not None]
    points = [100.0 * (a["test_accuracy"] - b["test_accuracy"]) for a, b in known]
    return _over_seeds(energy, 1, "+"), _over_seeds(points, 2, "+")


def _over_seeds(values: list[float], decimals: int, sign: str = "") -> str:
    if not values:
        return "–"
    mean = sum(values) / len(values)
    if len(values) == 1:
        return f"{mean:{sign}.{decimals}f}"
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return f"{mean:{sign}.{decimals}f}±{spread:.{decimals}f}"


def _percent(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.1%}"


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3g}"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
