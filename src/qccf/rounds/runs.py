"""Several runs together: a table of them, and how runs show themselves in a notebook."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from qccf.core.intervals import estimate
from qccf.core.numbers import Spread, quantity, with_spread
from qccf.rounds.run import Run, health_sentences, run_labels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SUMMARY_KEYS = (
    "policy", "codec", "seed", "finished", "rounds", "test_accuracy", "energy_j", "compute_energy_j", "mean_bits",
    "participation", "missed", "mean_latency_s", "error_ratio", "participation_ratio", "jain", "empty_rounds",
)  # fmt: skip


class Runs(Sequence[Run]):
    """Runs in a fixed order. In a notebook they show themselves as a table of means over seeds."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = tuple(runs)

    def __len__(self) -> int:
        return len(self._runs)

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> "Runs": ...
    def __getitem__(self, index: int | slice) -> "Run | Runs":
        return Runs(self._runs[index]) if isinstance(index, slice) else self._runs[index]

    def __repr__(self) -> str:
        parts = {
            plural: ", ".join(dict.fromkeys(str(getattr(run, name)) for run in self))
            for name, plural in (("policy", "policies"), ("codec", "codecs"), ("seed", "seeds"))
        }
        return f"Runs({len(self)}{''.join(f'; {name} {values}' for name, values in parts.items() if values)})"

    def select(self, *, policy: str | None = None, codec: str | None = None, seed: int | None = None) -> "Runs":
        """The runs of this policy, codec or seed."""
        wanted = {
            name: value for name, value in (("policy", policy), ("codec", codec), ("seed", seed)) if value is not None
        }
        return Runs([run for run in self if all(getattr(run, name) == value for name, value in wanted.items())])

    @property
    def health(self) -> list[str]:
        """What is wrong with the decisions, one sentence per policy and kind of finding; empty where all is well."""
        return health_sentences(self)

    def to_frame(self) -> "pd.DataFrame":
        """One row per run: its policy, codec and seed, and the main numbers of its summary."""
        import pandas as pd

        return pd.DataFrame([{name: run.summary.get(name) for name in SUMMARY_KEYS} for run in self])

    def plot(self) -> "Figure":
        """Accuracy and energy of trained runs; energy, bits and the cell of planned ones."""
        from qccf.reports.figures.notebook import overview

        return overview(self)

    def _repr_html_(self) -> str:
        rows: dict[str, list[Run]] = {}
        for label, run in zip(run_labels(self), self, strict=True):
            rows.setdefault(label, []).append(run)
        cells = [[label, *_numbers(runs)] for label, runs in rows.items()]
        return _table(["", "seeds", *NUMBERS], cells) + _listed(self.health)


NUMBERS = {
    "accuracy (%)": ("test_accuracy", 1, 100.0),
    "energy": ("energy_j", 0, 1.0),
    "bits": ("mean_bits", 2, 1.0),
    "participation (%)": ("participation", 0, 100.0),
    "missed (%)": ("missed", 0, 100.0),
}
"""Columns of the table of runs: key of the summary, decimals without an interval, scale."""


def run_html(run: Run) -> str:
    """One run as a table with a row per number."""
    about = [["policy", run.policy], ["codec", run.codec], ["seed", str(run.seed)], ["rounds", str(run.num_rounds)]]
    numbers = [[name, value] for name, value in zip(NUMBERS, _numbers([run])[1:], strict=True)]
    folder = [["folder", str(run.folder)]] if isinstance(run.folder, Path) else []
    return _table([], about + numbers + folder) + _listed(health_sentences([run]))


def _numbers(runs: Sequence[Run]) -> list[str]:
    """The number of seeds, then mean and 95 % interval of each column."""
    cells = []
    for key, decimals, scale in NUMBERS.values():
        known = estimate(run.summary[key] for run in runs if run.summary.get(key) is not None)
        if key == "energy_j":
            cells.append(quantity(known.mean, "J", known.half if known.known else 0.0))
        else:
            half = scale * known.half if known.known else 0.0
            cells.append(with_spread(Spread(scale * known.mean, half), decimals))
    return [str(len(runs)), *cells]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = f"<thead><tr>{_cells(heads, 'th')}</tr></thead>" if heads else ""
    body = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in rows)
    return f"<table>{head}<tbody>{body}</tbody></table>"


def _cells(values: Sequence[Any], tag: str) -> str:
    return "".join(f"<{tag}>{html.escape(str(value))}</{tag}>" for value in values)


def _listed(sentences: Sequence[str]) -> str:
    return "".join(f"<p>Health: {html.escape(sentence)}</p>" for sentence in sentences)
