"""The tables of results: one at the top of the page, and one per setting with more columns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from qccf.core.intervals import Estimate, estimate
from qccf.paper.families import Family, Setting
from qccf.reports.page.numbers import energies_shown, percent_shown, shown
from qccf.rounds.run import Run
from qccf.rounds.targets import default_targets, target_cells

OVERVIEW_HEADS = ("codec", "accuracy", "energy", "bits", "participation", "missed")
EPSILON_HEAD = "ε against the server"
DETAIL_HEADS = (
    "codec", "final accuracy", "energy", "for computing", "bits, all rounds", "bits, last tenth", "participation",
    "missed", "empty rounds", "Jain's index", "error / budget",
)  # fmt: skip
TARGET_HEADS = ("codec", "accuracy", "rounds", "seconds, simulated", "energy")
MOST_ROWS = 12
"""A table at the top with more rows shows one setting per family."""
MOST_GROUPS = 4

Group = tuple[Family, Setting]


@dataclass(frozen=True)
class Row:
    policy: str
    cells: list[str]


@dataclass(frozen=True)
class ResultTable:
    title: str
    rows: list[Row]


def overview_groups(families: Sequence[Family]) -> list[Group]:
    """What the top of the page shows: all settings where they are few, else the main one of each family."""
    groups = [(family, setting) for family in families for setting in family.comparisons()]
    rows = sum(len(family.labels(setting)) for family, setting in groups)
    if rows > MOST_ROWS or len(groups) > MOST_GROUPS:
        groups = [(family, family.main_setting()) for family in families]
    return groups[:MOST_GROUPS]


def overview_table(group: Group, *, titled: bool, private: bool = False) -> ResultTable:
    """Accuracy, energy, bits, participation and missed deadlines; the title only where there are several tables.

    If a run of the page is `private` there is a column for ε.
    """
    family, setting = group
    kinds = _kinds(family, setting)
    energies = energies_shown([_over(runs, total_energy_j) for runs in kinds])
    rows = [
        Row(
            runs[0].policy,
            [
                runs[0].codec,
                percent_shown(_over(runs, Run.final_accuracy)),
                energy,
                shown(_over(runs, Run.mean_upload_bits), 2),
                percent_shown(_over(runs, participation), 0),
                percent_shown(_over(runs, Run.missed_share)),
                *([epsilon_shown(runs)] if private else []),
            ],
        )
        for runs, energy in zip(kinds, energies, strict=True)
    ]
    return ResultTable(family.setting_title(setting) if titled else "", rows)


def detail_tables(family: Family) -> list[ResultTable]:
    tables = []
    for setting in family.settings():
        kinds = _kinds(family, setting)
        energies = energies_shown([_over(runs, total_energy_j) for runs in kinds])
        rows = [Row(runs[0].policy, _detail_cells(runs, energy)) for runs, energy in zip(kinds, energies, strict=True)]
        tables.append(ResultTable(family.setting_title(setting), rows))
    return tables


def results_data(families: Sequence[Family]) -> list[dict[str, Any]]:
    """The main numbers of every kind of run as plain values: a mean, the half-width of its interval, and the seeds."""
    measures: dict[str, Callable[[Run], float]] = {
        "accuracy": Run.final_accuracy, "energy_j": total_energy_j, "bits": Run.mean_upload_bits,
        "participation": participation, "missed": Run.missed_share,
    }  # fmt: skip
    return [
        {"setting": family.setting_title(setting), "policy": runs[0].policy, "codec": runs[0].codec}
        | {name: vars(_over(runs, of)) for name, of in measures.items()}
        for family in families
        for setting in family.settings()
        for runs in _kinds(family, setting)
    ]


def target_tables(family: Family, wanted: Sequence[float]) -> list[ResultTable]:
    """Rounds, simulated seconds and energy until each target is reached; without targets, the highest reached ones."""
    tables = []
    for setting in family.settings():
        kinds = _kinds(family, setting)
        targets = wanted or default_targets([run for runs in kinds for run in runs])
        rows = [
            Row(runs[0].policy, [runs[0].codec, f"{100 * target:g} %", *target_cells(runs, target)])
            for target in targets
            for runs in kinds
        ]
        if rows:
            tables.append(ResultTable(family.setting_title(setting), rows))
    return tables


def epsilon_shown(runs: Sequence[Run]) -> str:
    """The largest ε of these runs against the server, with its δ; a dash where privacy is off or ε is not finite."""
    known = [one for one in (run.summary.get("privacy") for run in runs) if one and one["epsilon_server"] is not None]
    if not known:
        return "–"
    worst = max(known, key=lambda one: one["epsilon_server"])
    return f"{worst['epsilon_server']:.3g} (δ = {worst['delta']:g})"


def total_energy_j(run: Run) -> float:
    return float(run.energy_j[-1])


def participation(run: Run) -> float:
    return float(run.client_columns["participated"].mean())


def _kinds(family: Family, setting: Setting) -> list[list[Run]]:
    return [family.of(setting, label) for label in family.labels(setting)]


def _over(runs: Sequence[Run], of: Callable[[Run], float]) -> Estimate:
    return estimate(of(run) for run in runs)


def _detail_cells(runs: Sequence[Run], energy: str) -> list[str]:
    """The cells below `DETAIL_HEADS`."""
    return [
        runs[0].codec,
        percent_shown(_over(runs, Run.final_accuracy)),
        energy,
        percent_shown(_over(runs, Run.computing_share), 0),
        shown(_over(runs, Run.mean_upload_bits), 2),
        shown(_over(runs, Run.final_bits), 2),
        percent_shown(_over(runs, participation), 0),
        percent_shown(_over(runs, Run.missed_share)),
        *(_mean_shown(runs, name) for name in ("empty_rounds", "jain", "error_ratio")),
    ]


def _mean_shown(runs: Sequence[Run], name: str) -> str:
    """The mean of a number in the summaries; a dash where no run has it, as in runs of older versions."""
    known = [float(run.summary[name]) for run in runs if run.summary.get(name) is not None]
    return f"{sum(known) / len(known):.3g}" if known else "–"
