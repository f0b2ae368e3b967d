"""What clients measured beside what the model says, for runs in which clients measured anything."""

from collections.abc import Sequence

import numpy as np

from qccf.core.numbers import NOTHING, quantity
from qccf.reports.page.results import ResultTable, Row
from qccf.rounds.run import Run

MEASURED_HEADS = (
    "codec", "trainings", "seconds, modelled", "seconds, measured", "energy, modelled", "energy, measured",
)  # fmt: skip


def measured_tables(runs: Sequence[Run]) -> list[ResultTable]:
    """One table of means per training, or none. Modelled seconds are the latency without the upload."""
    rows = []
    for run in runs:
        columns = run.client_columns
        known = np.isfinite(columns.get("measured_s", np.empty(0)))
        if not known.any():
            continue
        upload_s = columns["payload_bits"][known] / columns["rate_bps"][known]
        with_joules = known & np.isfinite(columns["measured_j"])
        joules = [
            quantity(float(columns[name][with_joules].mean()), "J") if with_joules.any() else NOTHING
            for name in ("compute_energy_j", "measured_j")
        ]
        rows.append(
            Row(
                run.policy,
                [
                    run.codec,
                    f"{int(known.sum()):,}",
                    quantity(float((columns["latency_s"][known] - upload_s).mean()), "s"),
                    quantity(float(columns["measured_s"][known].mean()), "s"),
                    *joules,
                ],
            )
        )
    return [ResultTable("", rows)] if rows else []
