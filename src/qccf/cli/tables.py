"""Tables for the terminal. A table that is too wide folds its labels, then hides columns and says so."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from qccf.core.numbers import Spread, column, number, with_spread
from qccf.core.words import counted

if TYPE_CHECKING:
    from qccf.rounds.run import Run

PAPERS_CHARGES = "computing, uploading"
LABEL_WIDTH = 24
"""Labels are folded to this width before a column is hidden."""


@dataclass(frozen=True)
class Column:
    """`heading` may have a second line with the unit; columns with a high `rank` are hidden first."""

    heading: str
    cells: Sequence[str]
    rank: int = 0

    @property
    def name(self) -> str:
        return self.heading.strip().replace("\n", " ")


@dataclass(frozen=True)
class FittedTable:
    """One row per label; as many columns as fit the console."""

    title: str
    labels: Sequence[str]
    columns: Sequence[Column]
    first: str = ""
    caption: str | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown, label_width = list(self.columns), max(len(label) for label in [self.first, *self.labels])
        table = self._table(shown, label_width)
        if self._width(console, options, table) > options.max_width:
            label_width = min(label_width, LABEL_WIDTH)
            table = self._table(shown, label_width)
        while self._width(console, options, table) > options.max_width and len(shown) > 1:
            shown.remove(max(reversed(shown), key=lambda one: one.rank))
            table = self._table(shown, label_width)
        yield Text(self.title, style="bold")  # a title of the table itself would be folded to the table's width
        yield table
        if hidden := [one.name for one in self.columns if one not in shown]:
            text = f"{counted(len(hidden), 'column')} hidden at this width: {', '.join(hidden)}; "
            yield Text(text + "widen the terminal or use --json.\n", style="dim")
        if self.caption:
            yield Text(f"{self.caption}\n", style="dim")

    def _table(self, shown: Sequence[Column], label_width: int) -> Table:
        table = Table(box=SIMPLE_HEAD, padding=(0, 0), pad_edge=False)
        table.add_column(self.first, overflow="fold", min_width=min(label_width, LABEL_WIDTH), max_width=label_width)
        for one in shown:
            table.add_column(one.heading, justify="right", no_wrap=True)
        for label, *cells in zip(self.labels, *(one.cells for one in shown), strict=True):
            table.add_row(Text(label), *cells)
        return table

    def _width(self, console: Console, options: ConsoleOptions, table: Table) -> int:
        return Measurement.get(console, options.update(width=10_000), table).maximum


def results_table(title: str, labels: Sequence[str], summaries: Sequence[dict[str, Any]]) -> FittedTable:
    """One row per label: means ± standard deviations over seeds, and the difference to the first row."""
    rows = _by_label(labels, summaries)
    first = rows[labels[0]]
    accuracies = [_over_seeds(100.0 * value for value in _present(mine, "test_accuracy")) for mine in rows.values()]
    unit, energies = column([_over_seeds(_present(mine, "energy_j")) for mine in rows.values()], "J")
    columns = [
        Column("accuracy\n%", [with_spread(one, 1) for one in accuracies]),
        Column(f"energy\n{unit}", energies),
    ]
    if len(rows) > 1:
        pairs = [("", "") if mine is first else _differences(mine, first) for mine in rows.values()]
        columns.append(Column("Δ energy\n%", [energy for energy, _ in pairs], 1))
        columns.append(Column("Δ accuracy\npoints", [points for _, points in pairs], 2))
    bits = [number(_mean(_present(mine, "mean_bits")), ".1f") for mine in rows.values()]
    columns.append(Column("bits", bits, 3))
    rounds = [number(_mean(_present(mine, "rounds")), ".0f") for mine in rows.values()]
    if len(set(rounds)) > 1:
        columns.append(Column("rounds", rounds, 4))
    notes = ["Δ: difference from the first row, paired by seed."] * (len(rows) > 1)
    notes += ["Accuracy: of all test samples, after the last round.", *_charges(summaries)]
    return FittedTable(title, list(rows), columns, caption=" ".join(notes))


def _charges(summaries: Iterable[dict[str, Any]]) -> list[str]:
    """What the energies of a table contain, where that is more than computing and uploading."""
    summaries = list(summaries)
    charged = dict.fromkeys(summary.get("charged", PAPERS_CHARGES) for summary in summaries)
    devices = dict.fromkeys(summary["devices"] for summary in summaries if "devices" in summary)
    told = [] if set(charged) == {PAPERS_CHARGES} else [f"Energy: {' | '.join(charged)}."]
    return told + ([f"Joules are those of {' | '.join(devices)}."] if devices else [])


def _differences(mine: list[dict[str, Any]], first: list[dict[str, Any]]) -> tuple[str, str]:
    """Energy in per cent and accuracy in percentage points against the first row, paired by seed."""
    pairs = [(a, b) for a in mine for b in first if a["seed"] == b["seed"]]
    energy = [100.0 * (a["energy_j"] / b["energy_j"] - 1.0) for a, b in pairs if b["energy_j"]]
    known = [(a, b) for a, b in pairs if a["test_accuracy"] is not None and b["test_accuracy"] is not None]
    points = [100.0 * (a["test_accuracy"] - b["test_accuracy"]) for a, b in known]
    return with_spread(_over_seeds(energy), 1, "+", most=1), with_spread(_over_seeds(points), 2, "+", most=2)


def plan_table(title: str, rows: list[dict[str, Any]]) -> FittedTable:
    """One row per policy; ± is the standard deviation over cells, uploads or rounds."""
    energy_unit, energies = column([_spread(row["energy_j"]) for row in rows], "J")
    upload_unit, uploads = column([_spread(row["energy_per_upload_j"]) for row in rows], "J")
    round_unit, rounds = column([_spread(row["round_latency_s"]) for row in rows], "s")
    ends = ["→".join(number(row[f"bits_{part}_tenth"], ".1f") for part in ("first", "last")) for row in rows]
    correlations = [row["bits_size_correlation"] for row in rows]
    columns = (
        Column(f"energy\n{energy_unit}", energies),
        Column(f"upload\n{upload_unit}", uploads, 2),
        Column(f"round\n{round_unit}", rounds, 1),
        Column("bits", [with_spread(_spread(row["bits"]), 1) for row in rows]),
        Column("bits\nfirst→last", ends, 3),
        Column("bits\nvs size", [number(one and one["mean"], "+.2f") for one in correlations], 4),
    )
    return FittedTable(title, plan_labels(rows), columns, first="policy", caption="\n".join(_charges(rows)) or None)


def plan_labels(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The policy of each row, and its codec where codecs differ and the policy uses one."""
    from qccf.policies.registry import codes

    several = len({row.get("codec") for row in rows}) > 1
    return [f"{row['policy']}, {row['codec']}" if several and codes(row["policy"]) else row["policy"] for row in rows]


def common_parts(runs: "Sequence[Run]") -> str:
    """What all runs share and no row label says, for a title: the codec, or the policy where only codecs differ."""
    codecs, policies = {run.codec for run in runs}, {run.policy for run in runs}
    shared = [f"policy {next(iter(policies))}"] * (len(policies) == 1 and len(codecs) > 1)
    return "".join(f", {part}" for part in [*shared, *[f"codec {codec}" for codec in codecs if len(codecs) == 1]])


MAX_ROWS = 40
"""A longer table of a sweep is cut; its file has the rest."""

_SWEPT = ("policy", "codec", "seed")


def sweep_table(title: str, rows: Sequence[dict[str, Any]]) -> FittedTable:
    """One row per run: the settings that differ between runs, and the main results."""
    varied = [key for key in rows[0] if key in _SWEPT or "." in key]
    varied = [key for key in varied if len({str(row.get(key)) for row in rows}) > 1] or ["policy"]
    shown = rows[:MAX_ROWS]
    unit, energies = column([_known(row, "energy_j") for row in shown], "J")
    accuracies = [with_spread(_known(row, "test_accuracy", 100.0), 1) for row in shown]
    columns = [
        *([Column("accuracy\n%", accuracies)] if any(row.get("test_accuracy") is not None for row in rows) else []),
        Column(f"energy\n{unit}", energies),
        Column("bits", [number(row.get("mean_bits"), ".1f") for row in shown], 1),
        Column("active\n%", [with_spread(_known(row, "participation", 100.0), 0) for row in shown], 2),
        Column("late\n%", [with_spread(_known(row, "missed", 100.0), 0) for row in shown], 3),
    ]
    more = f"{len(rows) - MAX_ROWS:,} more in the file below" if len(rows) > MAX_ROWS else None
    labels = [", ".join(_setting(row.get(key)) for key in varied) for row in shown]
    return FittedTable(title, labels, columns, first=", ".join(key.rpartition(".")[2] for key in varied), caption=more)


def _setting(value: Any) -> str:
    return f"{value:,.0f}" if isinstance(value, float) and value.is_integer() else str(value)


def _known(row: dict[str, Any], key: str, scale: float = 1.0) -> Spread | None:
    value = row.get(key)
    return None if value is None else Spread(scale * value)


SERVICE = {
    "active\n%": ("participation", 100.0, ".0f", 0),
    "late\n%": ("missed", 100.0, ".0f", 1),
    "empty\nrounds": ("empty_rounds", 1.0, ",.4g", 3),
    "active /\nfair share": ("participation_ratio", 1.0, ".2f", 4),
    "Jain's\nindex": ("jain", 1.0, ".2f", 5),
    "error /\nbudget": ("error_ratio", 1.0, ".2f", 2),
}
"""Columns of the second table: key of the summary, scale, format, and rank."""


def service_table(labels: Sequence[str], summaries: Sequence[dict[str, Any]]) -> FittedTable:
    """One row per label: how its clients and its error budget were served, means over seeds."""
    rows = _by_label(labels, summaries)
    columns = []
    for heading, (key, scale, form, rank) in SERVICE.items():
        means = [_mean(_present(mine, key)) for mine in rows.values()]
        cells = [number(None if mean is None else scale * mean, form) for mean in means]
        columns.append(Column(heading, cells, rank))
    return FittedTable("Clients and error budget", list(rows), columns)


def targets_table(labels: Sequence[str], runs: "Sequence[Run]", targets: Sequence[float]) -> FittedTable:
    """One row per label and target: rounds, simulated seconds and energy until it is reached."""
    from qccf.rounds.targets import evaluation_shown, target_cells

    rows: dict[str, list[Run]] = {}
    for label, run in zip(labels, runs, strict=True):
        rows.setdefault(label, []).append(run)
    names, cells = [], []
    for target in targets:
        for label, mine in rows.items():
            names.append(f"{100 * target:g} %, {label}")
            cells.append(target_cells(mine, target))
    columns = [
        Column(heading, [row[place] for row in cells], rank)
        for place, (heading, rank) in enumerate((("rounds", 1), ("seconds\nsimulated", 2), ("energy", 0)))
    ]
    caption = f"{evaluation_shown(runs[0].scenario.evaluation)}; ± is a 95 % interval over seeds"
    return FittedTable("To reach an accuracy", names, columns, caption=caption)


def status_of(runs: "Sequence[Run]") -> int:
    """The exit status of a command that trained: 2 if a run never trained anybody, which is said on standard error."""
    from qccf.cli.options import warn

    idle = [run for run in runs if run.summary.get("participation") == 0.0]
    for run in idle:
        why = run.findings[0].message if run.findings else "see the table above."
        warn(
            f"{run.policy}, codec {run.codec}, seed {run.seed}: nobody took part in "
            f"{counted(run.num_rounds, 'round')}, so the model is still the initial one: {why}"
        )
    return 2 if idle else 0


def print_health(console: Console, sentences: Sequence[str]) -> None:
    """What is wrong, one sentence per line; nothing where all is well."""
    for sentence in sentences:
        console.print(Text(f"Health: {sentence}", style="yellow"), soft_wrap=True)


def print_privacy(console: Console, runs: "Sequence[Run]") -> None:
    """What each kind of run promises about privacy; nothing where privacy is off."""
    from qccf.rounds.run import privacy_sentences

    for sentence in privacy_sentences(runs):
        console.print(Text(f"Privacy: {sentence}"), soft_wrap=True)


def _by_label(labels: Sequence[str], summaries: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for label, summary in zip(labels, summaries, strict=True):
        rows.setdefault(label, []).append(summary)
    return rows


def _present(summaries: list[dict[str, Any]], key: str) -> list[float]:
    return [summary[key] for summary in summaries if summary.get(key) is not None]


def _mean(values: list[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _over_seeds(values: Iterable[float]) -> Spread | None:
    known = list(values)
    if not known:
        return None
    return Spread(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else 0.0)


def _spread(value: dict[str, float] | None) -> Spread | None:
    return None if value is None else Spread(value["mean"], value["std"])
