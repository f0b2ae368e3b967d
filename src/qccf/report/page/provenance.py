"""The end of the page: where its numbers come from, and what of that is not the paper's experiment."""

import platform
from collections import Counter, defaultdict
from collections.abc import Sequence
from html import escape
from importlib import metadata
from typing import Any

from qccf._version import __version__
from qccf.core.errors import InfeasibleError
from qccf.paper.families import PAPERS_MEAN_SIZE, Family, setting_of
from qccf.report.page.markdown import to_html
from qccf.rounds.run import Run
from qccf.rounds.world import build_world
from qccf.settings.loading import load_scenario, scenario_to_toml

PACKAGES = ("numpy", "scipy", "torch", "numba", "pandas", "matplotlib")


def literal_table() -> str:
    """What happens with Table I to the letter: the refusal itself."""
    scenario = load_scenario("paper-table")
    try:
        build_world(scenario, scenario.federation.seed)
        answer = "it runs."
    except InfeasibleError as error:
        answer = str(error)
    return (
        "<h3>The literal table</h3><p>With every value of Table I as printed (<code>qccf plan paper-table</code>) "
        f"nothing can be run, and the answer is:</p><blockquote>{escape(answer)}</blockquote>"
    )


def settings_section(groups: list[Family], varied: Sequence[Run], command: str) -> str:
    """The end of the page; `varied` are the runs with one setting changed, `command` is what made them all."""
    versions = [f"qccf {__version__}", f"Python {platform.python_version()}"]
    for name in PACKAGES:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    lines = [
        '<h2 id="settings">Settings, versions, seeds, commands</h2>',
        f"<p>This page: {escape(', '.join(versions))}. The runs: "
        f"{escape(_run_versions([record for family in groups for record in family.records]))}.</p>",
    ]
    if command:
        lines.append(f"<pre>{escape(command)}</pre>")
    for family in groups:
        seeds = ", ".join(str(seed) for seed in sorted({record.seed for record in family.records}))
        first = family.records[0]
        control = first.scenario.control
        text = scenario_to_toml(first.scenario)
        names = "\n".join(
            f"{_name(r)}: {r.policy}, {r.codec}, β {setting_of(r).beta:g}, V {setting_of(r).energy_weight:g}, "
            f"seed {r.seed}"
            for r in sorted(family.records, key=lambda r: (setting_of(r), r.policy, r.seed))
        )
        precision = "{precision} on {device}".format_map(defaultdict(lambda: "?", first.summary))
        lines.append(
            f"<h3>{escape(family.title)}</h3><p>Seeds {seeds}; codec <code>{escape(first.codec)}</code>, solver "
            f"<code>{escape(control.solver)}</code> with <code>{escape(control.inner)}</code> "
            f"bits; computed in {escape(precision)}.</p>{_differences(family)}"
            f"<details><summary>{plural(len(family.records), 'run')}</summary><pre>{escape(names)}</pre></details>"
            "<details><summary>All settings of the first run (the others differ in policy, seed, β and V)</summary>"
            f"<pre>{escape(text)}</pre></details>"
        )
    if varied:
        lines.append(
            "<h3>Runs with one setting changed</h3><p>Of these only the savings are shown, in the figure of what they "
            f"hang on.</p><details><summary>{plural(len(varied), 'run')}</summary><pre>"
            + escape("\n".join(_name(record) for record in varied))
            + "</pre></details>"
        )
    return "\n".join(lines)


def _run_versions(records: Sequence[Run]) -> str:
    """What the runs themselves say that they were computed by."""
    said = Counter(
        ", ".join(f"{name} {number}" for name, number in _versions(record.summary).items()) for record in records
    )
    return "; ".join(f"{words} ({plural(count, 'run')})" for words, count in said.items())


def _versions(summary: dict[str, Any]) -> dict[str, str]:
    return {"qccf": summary.get("version", "?"), **summary.get("packages", {})}


def _differences(family: Family) -> str:
    """What of the runs is not the paper's experiment, and why."""
    ours, papers = family.scenario, load_scenario("paper-table" if family.task == "femnist" else family.task)
    mixed = f"by Dirichlet draws with α = {ours.data.dirichlet_alpha:g}"
    partition = {"dirichlet": mixed, "writer": "by writer", "iid": "all alike"}[ours.data.partition]
    fewer = "to save time: fewer samples at as many times the cycles, so that computing costs what it does in the paper"
    rows = [
        ("data", "FEMNIST" if family.task == "femnist" else "CIFAR-10", family.dataset_title, "what is here"),
        ("samples a client", f"{PAPERS_MEAN_SIZE:g}", f"{ours.data.dataset_size_mean:g}", fewer),
        ("cycles a sample", f"{papers.device.cycles_per_sample:g}", f"{ours.device.cycles_per_sample:g}", fewer),
        ("seeds", "5", f"{len({record.seed for record in family.records})}", "to save time"),
        ("bandwidth (MHz)", "1", f"{ours.radio.bandwidth_hz / 1e6:g}", "E1: nobody can upload in 1 MHz"),
        ("classes among clients", "not in its text", partition, "the preset's"),
        ("rounds", "not in its text", f"{family.rounds}", "as many as the scale gives"),
        ("learning rate", "not in its text", f"{ours.learning.learning_rate:g}", "the preset's, at every scale"),
    ]
    body = "\n".join(f"| {' | '.join(row)} |" for row in rows if row[1] != row[2])
    return "<p>Not as in the paper:</p>" + to_html(f"| what | paper | here | why |\n|---|---|---|---|\n{body}")


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _name(run: Run) -> str:
    return "" if run.folder is None else run.folder.name
