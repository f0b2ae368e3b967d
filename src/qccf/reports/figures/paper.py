"""The figures of the paper's experiments, as far as the given runs allow.

Paper: Figs. 2 to 5.
"""

from collections.abc import Sequence

from qccf.core.contracts import FloatArray
from qccf.core.intervals import estimate
from qccf.paper.families import Family, Setting
from qccf.reports.figures.builders import (
    BAND,
    FEW_SEEDS,
    INTERVALS,
    NO_BAND,
    accuracy_over_energy,
    accuracy_over_time,
    bits_panels,
    curves,
    estimated,
    quantizing,
)
from qccf.reports.figures.chart import Chart, Panel, Series
from qccf.reports.figures.style import Style, Styles
from qccf.rounds.run import Run

SHARE = (0.0, 1.02)
PAPERS_FIGURES = {"femnist": "Fig. 3", "cifar10": "Fig. 4"}


def family_charts(family: Family, suffix: str, styles: Styles) -> list[Chart]:
    """Every figure that these runs allow; `suffix` distinguishes the keys of several families."""
    settings = family.comparisons()
    charts = []
    if len(family.weights()) > 1:
        charts.append(_weights(family, suffix, styles))
    charts.append(_policies(family, settings, suffix, styles))
    charts += [_efficiency(family, settings, suffix, styles), _time(family, settings, suffix, styles)]
    if any(quantizing(_groups(family, setting)) for setting in settings):
        charts.append(_bits(family, settings, suffix, styles))
    if any(_misses([run]) for run in family.records):
        charts.append(_lost(family, settings, suffix, styles))
    return charts


def _groups(family: Family, setting: Setting) -> dict[str, list[Run]]:
    return {label: family.of(setting, label) for label in family.labels(setting)}


def _weights(family: Family, suffix: str, styles: Styles) -> Chart:
    settings = family.weights()
    weights = [s.energy_weight for s in settings]
    name, axis = ("V", "V (1/J)") if family.papers_form else ("the energy weight", "energy weight")
    panels = []
    for title, label, of, percent in (
        ("(a) Accuracy", "final test accuracy", Run.final_accuracy, True),
        ("(b) Energy", "energy of the whole run (J)", _total_energy_j, False),
    ):
        estimates = [estimate(of(run) for run in family.of(s, "qccf")) for s in settings]
        series = estimated("qccf", weights, estimates, styles.policies["qccf"])
        panels.append(Panel(title, axis, label, (series,), x_log=True, percent=percent))
    caption = f"QCCF with {settings[0].beta_label}. {_band(family)}{_papers(family, 'Fig. 2')}"
    title = f"Accuracy and energy of QCCF against {name}, {family.title}"
    return Chart(f"weights{suffix}", title, caption, tuple(panels))


def _policies(family: Family, settings: list[Setting], suffix: str, styles: Styles) -> Chart:
    panels = []
    several = len({setting.energy_weight for setting in settings}) > 1
    for k, setting in enumerate(settings):
        first, second = (chr(ord("a") + 2 * k + j) for j in (0, 1))
        where = setting.beta_label + (f", {family.weight_label(setting)}" if several else "")
        groups = _groups(family, setting)
        accuracy = curves(groups, lambda run: run.accuracy, styles, highest=1.0)
        energy = curves(groups, lambda run: run.energy_j, styles)
        panels += [
            Panel(f"({first}) Accuracy, {where}", "round", "test accuracy", accuracy, percent=True, integers=True),
            Panel(f"({second}) Energy, {where}", "round", "accumulated energy (J)", energy, integers=True),
        ]
    caption = f"{_band(family)}{_papers(family, PAPERS_FIGURES[family.task])}"
    title = f"Accuracy and energy over rounds, {family.title}"
    return Chart(f"policies{suffix}", title, caption, tuple(panels))


def _efficiency(family: Family, settings: list[Setting], suffix: str, styles: Styles) -> Chart:
    panels = []
    for setting in settings:
        series = (*accuracy_over_energy(_groups(family, setting), styles), *_other_weights(family, setting, styles))
        panels.append(Panel(setting.beta_label, "accumulated energy (J)", "test accuracy", series, percent=True))
    caption = (
        f"Means over seeds after each round. Bands are {INTERVALS}, of the accuracy. Further up and to the left is "
        "better."
    )
    if family.weights():
        caption += " Points are the last round of QCCF with another energy weight."
    return Chart(f"efficiency{suffix}", f"Accuracy against energy, {family.title}", caption, tuple(panels))


def _time(family: Family, settings: list[Setting], suffix: str, styles: Styles) -> Chart:
    panels = [
        Panel(
            setting.beta_label,
            "simulated time (s)",
            "test accuracy",
            accuracy_over_time(_groups(family, setting), styles),
            percent=True,
        )
        for setting in settings
    ]
    caption = f"Means over seeds after each round. Bands are {INTERVALS}, of the accuracy."
    return Chart(f"time{suffix}", f"Accuracy against simulated time, {family.title}", caption, tuple(panels))


def _other_weights(family: Family, setting: Setting, styles: Styles) -> list[Series]:
    """The last round of QCCF with each other V at the same β."""
    others = [s for s in family.weights() if s.beta == setting.beta and s != setting]
    if not others:
        return []
    energies, accuracies = (
        [estimate(of(run) for run in family.of(s, "qccf")) for s in others]
        for of in (_total_energy_j, Run.final_accuracy)
    )
    style = Style(styles.policies["qccf"].colour, "+")
    return [estimated("qccf, other V", [e.mean for e in energies], accuracies, style, kind="points")]


def _bits(family: Family, settings: list[Setting], suffix: str, styles: Styles) -> Chart:
    panels: list[Panel] = []
    for setting in settings:
        panels += bits_panels(_groups(family, setting), styles, f", {setting.beta_label}")
    caption = (
        f"32-bit floats are left out. (a) {_band(family)} (b) One point per client and seed, its bits averaged over "
        f"its uploads.{_papers(family, 'Fig. 5')}"
    )
    title = f"Bits against rounds and dataset sizes, {family.title}"
    return Chart(f"bits{suffix}", title, caption, tuple(panels))


def _lost(family: Family, settings: list[Setting], suffix: str, styles: Styles) -> Chart:
    panels = []
    for setting in settings:
        groups = {label: runs for label, runs in _groups(family, setting).items() if _misses(runs)}
        series = curves(groups, _missed_by_round, styles, highest=1.0)
        label = "uploads after the deadline"
        panels.append(Panel(setting.beta_label, "round", label, series, percent=True, integers=True, y_range=SHARE))
    caption = (
        "Share of the uploads that miss the deadline; policies that never miss one are left out. "
        "No-quantization is exempt from the deadline: its late uploads count. Principle's late uploads are lost. "
        f"{_band(family)}"
    )
    return Chart(f"lost{suffix}", f"Missed deadlines, {family.title}", caption, tuple(panels))


def _band(family: Family) -> str:
    """What lines and bands mean; few seeds have no interval."""
    return BAND if len({run.seed for run in family.records}) >= FEW_SEEDS else NO_BAND


def _papers(family: Family, figure: str) -> str:
    """Which figure of the paper shows the same; only its own form of the controller is comparable."""
    return f" Compare {figure} of the paper." if family.papers_form else ""


def _total_energy_j(run: Run) -> float:
    return float(run.energy_j[-1])


def _misses(runs: Sequence[Run]) -> bool:
    return any(run.round_columns["missed"].any() for run in runs)


def _missed_by_round(run: Run) -> FloatArray:
    """The share of a round's uploads that are late; NaN in a round without uploads."""
    participants = run.round_columns["participants"].astype(float)
    participants[participants == 0] = float("nan")
    return run.round_columns["missed"] / participants
