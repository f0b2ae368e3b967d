"""The chart of a plan: the cell, the energy of each policy, and the bits."""

from collections.abc import Sequence

from qccf.reports.figures.builders import band_caption, bits_panels, cell_map, energy_bars, grouped
from qccf.reports.figures.chart import Chart, Panel
from qccf.reports.figures.style import Styles
from qccf.rounds.run import Run


def plan_chart(runs: Sequence[Run]) -> Chart:
    """Four panels; the bits of the policy qccf, or of the first one without it, colour the cell."""
    groups, styles = grouped(runs), Styles(runs)
    energy = Panel(
        "Energy per policy (hatched: computing)",
        "",
        "energy of the whole run (J)",
        energy_bars(groups, styles),
        categories=tuple(groups),
    )
    shown = next((run for run in runs if run.scenario.policy.name == "qccf"), runs[0])
    panels = (cell_map(shown), energy, *bits_panels(groups, styles))
    caption = (
        f"Decisions without training. {band_caption(groups)} Error bars are the same intervals. 32-bit floats are left "
        "out of (a) and (b). (b) One point per client and seed, its bits averaged over its uploads."
    )
    return Chart("plan", "Plan", caption, panels, panel_size_inch=(5.0, 3.9))
