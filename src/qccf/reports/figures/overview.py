"""The chart at the top of a report: accuracy against energy, one panel per setting."""

from collections.abc import Mapping, Sequence

from qccf.core.intervals import estimate
from qccf.reports.figures.builders import Groups, accuracy_over_energy, band_caption, estimated
from qccf.reports.figures.chart import Chart, Panel, Series
from qccf.reports.figures.style import Styles

KEY = "overview"
MOST_CURVES = 10
"""With more policies and codecs in a panel only the last round of each is drawn."""


def overview_chart(panels: Mapping[str, Groups], styles: Styles) -> Chart:
    """Each panel by its title."""
    ends = any(len(groups) > MOST_CURVES for groups in panels.values())
    drawn = tuple(
        Panel(
            title,
            "accumulated energy (J)",
            "test accuracy",
            _last_rounds(groups, styles) if ends else accuracy_over_energy(groups, styles),
            percent=True,
        )
        for title, groups in panels.items()
    )
    what = "Each point is a whole run" if ends else "Each curve starts with the first round and ends with the last"
    captions = dict.fromkeys(band_caption(groups) for groups in panels.values())
    caption = f"{what}; further up and to the left is better. {' '.join(captions)}"
    return Chart(KEY, "Accuracy against energy", caption, drawn)


def _last_rounds(groups: Groups, styles: Styles) -> tuple[Series, ...]:
    series: Sequence[Series] = [
        estimated(
            label,
            [estimate(float(run.energy_j[-1]) for run in runs).mean],
            [estimate(run.final_accuracy() for run in runs)],
            styles.of(label, runs[0]),
            kind="points",
            limits=(0.0, 1.0),
        )
        for label, runs in groups.items()
    ]
    return tuple(series)
