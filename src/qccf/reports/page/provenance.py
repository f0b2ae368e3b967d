"""Where the numbers of the page come from, and how the runs differ from the paper's experiments."""

import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata

from qccf._version import __version__
from qccf.core.errors import InfeasibleError
from qccf.paper.families import PAPERS_MEAN_SIZE, Family, Setting, setting_of
from qccf.reports.page.render import plural
from qccf.rounds.run import Run
from qccf.rounds.world import build_world
from qccf.settings.loading import load_scenario, scenario_to_toml

PACKAGES = ("numpy", "scipy", "torch", "numba", "pandas", "matplotlib")
Difference = tuple[str, str, str, str]
"""A setting, its value in the paper, its value here, and the reason."""


@dataclass(frozen=True)
class Provenance:
    """How the runs of one family were made."""

    family: Family
    first: Run
    seeds: list[int]
    precision: str
    differences: list[Difference]
    runs: list[str]
    settings: str
    scaled: list[Setting]
    """The settings whose β was chosen in proportion to one of the paper's."""


def provenance(family: Family) -> Provenance:
    first = family.records[0]
    summary = first.summary
    return Provenance(
        family=family,
        first=first,
        seeds=sorted({run.seed for run in family.records}),
        precision=f"{summary.get('precision', '?')} on {summary.get('device', '?')}",
        differences=_differences(family) if family.papers_form else [],
        runs=[
            f"{run_name(run)}: {run.policy}, {run.codec}, β {setting_of(run).beta:g}, "
            f"{run.scenario.weight_label}, seed {run.seed}"
            for run in sorted(family.records, key=lambda run: (setting_of(run), run.policy, run.seed))
        ],
        settings=scenario_to_toml(first.scenario),
        scaled=[setting for setting in family.settings() if family.papers_form and setting.papers_beta],
    )


def run_name(run: Run) -> str:
    return run.folder.name if run.folder else "?"


def literal_table() -> str:
    """The refusal of Table I as printed."""
    scenario = load_scenario("paper-table")
    try:
        build_world(scenario, scenario.federation.seed)
    except InfeasibleError as error:
        return str(error)
    return "it runs."


def page_versions() -> list[str]:
    versions = [f"qccf {__version__}", f"Python {platform.python_version()}"]
    for name in PACKAGES:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return versions


def run_versions(runs: Sequence[Run]) -> list[str]:
    """The versions that the runs' summaries state, with the number of runs."""
    counts = Counter(", ".join(f"{name} {version}" for name, version in _versions(run.summary).items()) for run in runs)
    return [f"{versions} ({plural(count, 'run')})" for versions, count in counts.items()]


def _versions(summary: dict[str, object]) -> dict[str, object]:
    packages = summary.get("packages")
    return {"qccf": summary.get("version", "?"), **(packages if isinstance(packages, dict) else {})}


def _differences(family: Family) -> list[Difference]:
    ours, papers = family.scenario, load_scenario("paper-table" if family.task == "femnist" else family.task)
    dirichlet = f"by Dirichlet draws with α = {ours.data.dirichlet_alpha:g}"
    partition = {"dirichlet": dirichlet, "writer": "by writer", "iid": "all alike"}[ours.data.partition]
    fewer = "to save time: fewer samples with more cycles each, so that computing costs as much as in the paper"
    rows = [
        ("data", "FEMNIST" if family.task == "femnist" else "CIFAR-10", family.dataset_title, "the data available"),
        ("samples per client", f"{PAPERS_MEAN_SIZE:g}", f"{ours.data.dataset_size_mean:g}", fewer),
        ("cycles per sample", _shown(papers.device.cycles_per_sample), _shown(ours.device.cycles_per_sample), fewer),
        ("seeds", "5", f"{len({run.seed for run in family.records})}", "to save time"),
        ("bandwidth (MHz)", "1", f"{ours.radio.bandwidth_hz / 1e6:g}", "E1: no client can upload in 1 MHz"),
        ("classes among clients", "not in its text", partition, "from the preset"),
        ("rounds", "not in its text", f"{family.rounds}", "given by the scale"),
        ("learning rate", "not in its text", f"{ours.learning.learning_rate:g}", "from the preset, at every scale"),
    ]
    return [row for row in rows if row[1] != row[2]]


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"
