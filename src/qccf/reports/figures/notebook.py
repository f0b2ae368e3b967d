"""One figure of any runs, for notebooks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qccf.reports.figures.drawing import draw
from qccf.reports.figures.plan import plan_chart
from qccf.reports.figures.run import learning_chart
from qccf.rounds.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def overview(runs: Sequence[Run]) -> "Figure":
    """Accuracy and energy where every run was trained, else energy, bits and the cell."""
    if all(run.summary.get("kind", "train") == "train" for run in runs):
        data = sorted({str(run.summary.get("dataset", run.scenario.data.dataset)) for run in runs})
        return draw(learning_chart(runs, f"Data: {', '.join(data)}."), captioned=True)
    return draw(plan_chart(runs), captioned=True)
