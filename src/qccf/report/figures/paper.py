"""The figures of the paper's experiments, from whatever runs there are.

Paper: Figs. 2 to 5.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.core.intervals import band, estimate
from qccf.paper.families import Family, Setting
from qccf.report.figures.chart import Chart, Panel, Series
from qccf.report.figures.style import run_style
from qccf.rounds.run import Run

WHOLE = (0.0, 1.02)
BAND = "Lines are means over seeds, bands 95 % intervals of the mean (Student's t)."


def family_charts(family: Family, suffix: str) -> list[Chart]:
    """Every figure that these runs allow; `suffix` tells the keys of several families apart."""
    number = {"femnist": "Fig. 3", "cifar10": "Fig. 4"}[family.task]
    settings = family.comparisons()
    charts = []
    if len(family.weights()) > 1:
        charts.append(_weights(family, suffix))
    charts.append(_policies(family, settings, number, suffix))
    charts.append(_efficiency(family, settings, suffix))
    if any(_quantizing(family, setting) for setting in settings):
        charts.append(_bits(family, settings, suffix))
    if any(record.uploads["missed"].any() for record in family.records):
        charts.append(_lost(family, settings, suffix))
    return charts


def _weights(family: Family, suffix: str) -> Chart:
    settings = family.weights()
    weights = [s.energy_weight for s in settings]
    panels = []
    for title, label, of, percent in (
        ("(a) Accuracy", "final test accuracy", Run.final_accuracy, True),
        ("(b) Energy", "energy of the whole run (J)", lambda record: record.energy_j[-1], False),
    ):
        points = [estimate(of(record) for record in family.of(s, "qccf")) for s in settings]
        series = _series("qccf", 0, weights, [p.mean for p in points], points)
        panels.append(Panel(title, "V (1/J)", label, (series,), x_log=True, percent=percent))
    caption = f"QCCF on {family.title} with different V, {settings[0].beta_label}. {BAND}"
    return Chart(f"weights{suffix}", f"Fig. 2: accuracy and energy against V, {family.title}", caption, tuple(panels))


def _policies(family: Family, settings: list[Setting], number: str, suffix: str) -> Chart:
    panels = []
    several = len({setting.energy_weight for setting in settings}) > 1
    for k, setting in enumerate(settings):
        letters = [chr(ord("a") + 2 * k + j) for j in (0, 1)]
        where = setting.beta_label + (f", V = {setting.energy_weight:g}" if several else "")
        panels.append(
            Panel(
                f"({letters[0]}) Accuracy, {where}",
                "round",
                "test accuracy",
                _curves(family, setting, lambda record: record.accuracy),
                percent=True,
                integers=True,
            )
        )
        panels.append(
            Panel(
                f"({letters[1]}) Energy, {where}",
                "round",
                "accumulated energy (J)",
                _curves(family, setting, lambda record: record.energy_j),
                integers=True,
            )
        )
    caption = f"Test accuracy and accumulated energy of each policy on {family.title}. {BAND}"
    return Chart(f"policies{suffix}", f"{number}: accuracy and energy, {family.title}", caption, tuple(panels))


def _efficiency(family: Family, settings: list[Setting], suffix: str) -> Chart:
    panels = []
    for setting in settings:
        series = []
        for k, name in enumerate(family.labels(setting)):
            energy, accuracy = (_stack(family.of(setting, name), of) for of in (_energy, _accuracy))
            seen = np.isfinite(accuracy).all(axis=0)
            points = [estimate(column) for column in accuracy.T[seen]]
            series.append(_series(name, k, energy.mean(axis=0)[seen], accuracy.mean(axis=0)[seen], points))
        series += _other_weights(family, setting)
        panels.append(Panel(setting.beta_label, "accumulated energy (J)", "test accuracy", tuple(series), percent=True))
    caption = (
        f"What accuracy costs on {family.title}: means over seeds after each round, with 95 % intervals of the "
        "accuracy. Up and to the left is better. Points are where QCCF ends with another V."
    )
    return Chart(f"efficiency{suffix}", f"Accuracy against energy, {family.title}", caption, tuple(panels))


def _other_weights(family: Family, setting: Setting) -> list[Series]:
    """Where QCCF ends with each other V at the same β: the trade that V makes, beside the other policies."""
    others = [s for s in family.weights() if s.beta == setting.beta and s != setting]
    if not others:
        return []
    energies, accuracies = (
        [estimate(of(record) for record in family.of(s, "qccf")) for s in others]
        for of in (lambda record: float(record.energy_j[-1]), Run.final_accuracy)
    )
    x, y = ([point.mean for point in points] for points in (energies, accuracies))
    return [replace(_series("qccf", 0, x, y, accuracies, line=False), name="qccf, other V", marker="+")]


def _bits(family: Family, settings: list[Setting], suffix: str) -> Chart:
    panels = []
    for setting in settings:
        shown = _quantizing(family, setting)
        panels.append(
            Panel(
                f"(a) Over rounds, {setting.beta_label}",
                "round",
                "mean bits a parameter",
                _curves(family, setting, lambda record: record.mean_bits, shown),
                integers=True,
            )
        )
        clouds = []
        for k, name in enumerate(family.labels(setting)):
            if name in shown:
                clients = [r.uploads.groupby("client") for r in family.of(setting, name)]
                sizes = [float(size) for group in clients for size in group["dataset_size"].first()]
                bits = [float(mean) for group in clients for mean in group["num_bits"].mean()]
                clouds.append(_series(name, k, sizes, bits, line=False))
        title = f"(b) Over dataset sizes, {setting.beta_label}"
        panels.append(Panel(title, "samples of a client", "mean bits a parameter", tuple(clouds)))
    caption = (
        f"Bits of each policy on {family.title}; 32-bit floats are left out. (a) {BAND} (b) A point is a client of one "
        "seed, its bits averaged over its uploads."
    )
    return Chart(
        f"bits{suffix}", f"Fig. 5: bits against rounds and dataset sizes, {family.title}", caption, tuple(panels)
    )


def _lost(family: Family, settings: list[Setting], suffix: str) -> Chart:
    panels = []
    for setting in settings:
        names = [
            name for name in family.labels(setting) if any(r.uploads["missed"].any() for r in family.of(setting, name))
        ]
        curves = _curves(
            family,
            setting,
            lambda r: (r.rounds["missed"] / r.rounds["participants"].where(r.rounds["participants"] > 0)).to_numpy(
                float
            ),
            names,
        )
        panels.append(
            Panel(
                setting.beta_label,
                "round",
                "uploads past the deadline",
                curves,
                percent=True,
                integers=True,
                y_range=WHOLE,
            )
        )
    caption = (
        f"Share of the uploads that miss the deadline on {family.title}; policies that never miss one are left out. "
        f"No-quantization is exempt from the deadline: its late uploads count. Principle's are lost. {BAND}"
    )
    return Chart(f"lost{suffix}", f"Missed deadlines, {family.title}", caption, tuple(panels))


def _accuracy(record: Run) -> FloatArray:
    return record.accuracy


def _energy(record: Run) -> FloatArray:
    return record.energy_j


def _quantizing(family: Family, setting: Setting) -> list[str]:
    """The policies whose bits are a choice; 32-bit floats would only squash the axis."""
    return [
        name
        for name in family.labels(setting)
        if any((record.uploads["num_bits"] < 32).any() for record in family.of(setting, name))
    ]


def _stack(records: list[Run], of: Callable[[Run], FloatArray]) -> FloatArray:
    """[seed, round], as far as all seeds have come."""
    length = min(len(record.rounds) for record in records)
    return np.array([of(record)[:length] for record in records])


def _curves(
    family: Family, setting: Setting, of: Callable[[Run], FloatArray], names: Iterable[str] | None = None
) -> tuple[Series, ...]:
    labels = family.labels(setting)
    curves = []
    for k, name in enumerate(labels):
        if names is not None and name not in names:
            continue
        values = _stack(family.of(setting, name), of)
        mean, low, high = band(values)
        low = np.maximum(low, 0.0)  # nothing drawn here can be negative
        seen = np.isfinite(mean)
        colour, marker = run_style(name, k)
        rounds = np.arange(1.0, len(mean) + 1.0)[seen]
        ends: dict[str, Any] = (
            {"low": low[seen], "high": high[seen]} if np.isfinite(low[seen]).all() and len(values) > 1 else {}
        )
        curves.append(Series(name, rounds, mean[seen], colour, marker, **ends))
    return tuple(curves)


def _series(name: str, index: int, x: Any, y: Any, points: Any = (), *, line: bool = True) -> Series:
    colour, marker = run_style(name, index)
    known = points and all(point.known for point in points)
    ends = {"low": [p.low for p in points], "high": [p.high for p in points]} if known else {}
    return Series(name, x, y, colour, marker, line=line, **ends)
