"""A run: its settings, its tables and its summary, whether it was trained, planned or read back from a folder."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qccf._version import __version__
from qccf.core.contracts import Constants, FloatArray
from qccf.core.correlation import relation_within_rounds
from qccf.core.numbers import quantity
from qccf.devices import cost
from qccf.learning.results import Flat
from qccf.policies.registry import codes
from qccf.rounds.health import Finding, gathered, health, service
from qccf.rounds.ledger import CHARGES, Ledger
from qccf.rounds.packed_table import Columns
from qccf.rounds.privacy import privacy_sentence, privacy_summary
from qccf.settings.loading import own_code
from qccf.settings.schema import Scenario

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Run:
    """One policy in one world. `scenario` holds the policy, seed, codec and dataset that ran."""

    scenario: Scenario
    summary: dict[str, Any]
    round_columns: Columns
    client_columns: Columns
    statistics_columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    weights: Flat | None = None
    folder: Path | None = None

    def __repr__(self) -> str:
        accuracy = self.summary.get("test_accuracy")
        learned = "" if accuracy is None else f", accuracy {accuracy:.1%}"
        stopped = "" if self.finished else " so far"
        return (
            f"Run({self.policy}, codec {self.codec}, seed {self.seed}: rounds {self.num_rounds}{stopped}{learned}, "
            f"energy {quantity(float(self.energy_j[-1]), 'J')})"
        )

    def _repr_html_(self) -> str:
        from qccf.rounds.runs import run_html

        return run_html(self)

    def to_frame(self) -> "pd.DataFrame":
        """One row per round."""
        return self.rounds

    def plot(self) -> "Figure":
        """Accuracy and energy of a trained run; energy, bits and the cell of a planned one."""
        from qccf.reports.figures.notebook import overview

        return overview([self])

    @property
    def policy(self) -> str:
        """The policy, with the label that tells it from other runs of the same policy."""
        return f"{self.scenario.policy.label} {self.scenario.policy.name}".strip()

    @property
    def codec(self) -> str:
        return self.scenario.codec.name

    @property
    def seed(self) -> int:
        return self.scenario.federation.seed

    @property
    def finished(self) -> bool:
        """Whether it reached its last round."""
        return bool(self.summary.get("finished", True))

    @property
    def findings(self) -> list[Finding]:
        """What is wrong with its decisions, from its summary; runs of older versions have none."""
        return [Finding(**one) for one in self.summary.get("health", ())]

    @cached_property
    def rounds(self) -> "pd.DataFrame":
        """One row per round."""
        import pandas as pd

        return pd.DataFrame(self.round_columns)

    @cached_property
    def clients(self) -> "pd.DataFrame":
        """One row per client and round."""
        import pandas as pd

        return pd.DataFrame(self.client_columns)

    @cached_property
    def uploads(self) -> "pd.DataFrame":
        """One row per client and round in which it took part."""
        return self.clients[self.clients["participated"]]

    @property
    def num_rounds(self) -> int:
        return len(self.round_columns["round"])

    def by_round(self, column: str) -> Any:
        """A column of the clients' table as an array [round, client]."""
        return self.client_columns[column].reshape(self.num_rounds, -1)

    @property
    def dataset_sizes(self) -> FloatArray:
        return np.asarray(self.by_round("dataset_size")[0], dtype=float)

    @property
    def accuracy(self) -> FloatArray:
        return np.asarray(self.round_columns["test_accuracy"], dtype=float)

    @property
    def energy_j(self) -> FloatArray:
        """Accumulated energy after each round."""
        return np.asarray(self.round_columns["cumulative_energy_j"], dtype=float)

    @property
    def time_s(self) -> FloatArray:
        """Simulated time after each round: the server waits for the last upload that it counts."""
        return np.cumsum(np.asarray(self.round_columns["latency_s"], dtype=float))

    @property
    def mean_bits(self) -> FloatArray:
        return np.asarray(self.round_columns["mean_bits"], dtype=float)

    def final_accuracy(self) -> float:
        """The mean over the last tenth of the rounds, because one evaluation is noisy; NaN without an evaluation."""
        last = self.accuracy[-self._tenth() :]
        return float(last[np.isfinite(last)].mean()) if np.isfinite(last).any() else float("nan")

    def computing_share(self) -> float:
        """The share of the energy that computing takes."""
        total = float(self.energy_j[-1])
        return float(self.round_columns["compute_energy_j"].sum()) / total if total else 0.0

    def client_energy_j(self) -> FloatArray:
        """The energy of each client and round, in the order of the clients' table; old folders lack some columns."""
        kinds = ("compute_energy_j", "upload_energy_j", *CHARGES)
        return np.asarray(sum(self.client_columns[name] for name in kinds if name in self.client_columns))

    def missed_share(self) -> float:
        """The share of the uploads that miss the deadline."""
        on = self.client_columns["participated"]
        return float(self.client_columns["missed"][on].mean()) if on.any() else 0.0

    def mean_upload_bits(self) -> float:
        """Mean bits per parameter over all uploads."""
        on = self.client_columns["participated"]
        return float(self.client_columns["num_bits"][on].mean()) if on.any() else float("nan")

    def final_bits(self) -> float:
        """Mean bits per parameter over the uploads of the last tenth of the rounds."""
        late = self.client_columns["round"] >= self.num_rounds - self._tenth()
        on = self.client_columns["participated"] & late
        return float(self.client_columns["num_bits"][on].mean()) if on.any() else float("nan")

    def _tenth(self) -> int:
        return max(1, self.num_rounds // 10)


def run_labels(runs: Sequence[Run]) -> list[str]:
    """What each run is called beside the others: its policy, and its codec where codecs differ and it uses one."""
    policies, codecs = {run.policy for run in runs}, {run.codec for run in runs}
    several = len(policies) > 1 or len(codecs) == 1
    return [", ".join([run.policy] * several + [run.codec] * (len(codecs) > 1 and codes(run.policy))) for run in runs]


def codecs_of(runs: Sequence[Run]) -> str:
    """The codecs of these runs, as a caption names them."""
    names = list(dict.fromkeys(run.codec for run in runs))
    return f"Codec{'s' * (len(names) > 1)} {', '.join(names)}"


def health_sentences(runs: Sequence[Run]) -> list[str]:
    """What is wrong with these runs, one sentence per label and kind of finding; nothing where all is well."""
    several = len(set(run_labels(runs))) > 1
    return gathered(
        [
            (label if several else "", f"seed {run.seed}", run.findings)
            for label, run in zip(run_labels(runs), runs, strict=True)
        ]
    )


def privacy_sentences(runs: Sequence[Run]) -> list[str]:
    """What these runs promise about privacy, one sentence per label: its run with the largest ε; none where it is off.

    The columns of results have no room for two ε and the δ at which they hold.
    """
    several = len(set(run_labels(runs))) > 1
    worst: dict[str, dict[str, Any]] = {}
    for label, run in zip(run_labels(runs), runs, strict=True):
        mine = run.summary.get("privacy")
        if mine and (label not in worst or mine["uploads"] > worst[label]["uploads"]):
            worst[label] = mine
    return [(f"{label}: " if several else "") + privacy_sentence(one) for label, one in worst.items()]


def finished_run(scenario: Scenario, ledger: Ledger, *, weights: Flat | None = None, **about: Any) -> Run:
    """The run that a ledger records. `about` goes into the summary."""
    rounds, clients = ledger.rounds(), ledger.clients.columns()
    summary = run_summary(scenario, rounds, clients, **about)
    return Run(scenario, summary, rounds, clients, ledger.statistics, weights)


def run_summary(
    scenario: Scenario,
    rounds: Columns,
    clients: Columns,
    *,
    kind: str = "train",
    finished: bool = True,
    accuracy: float = math.nan,
    loss: float = math.nan,
    **about: Any,
) -> dict[str, Any]:
    """A run in a few numbers.

    Accuracy and loss are of all test samples for a finished run, of the last round for a stopped one.
    """
    on = clients["participated"]
    count, total = len(rounds["round"]), scenario.federation.rounds
    return {
        "kind": kind,
        "policy": scenario.policy.name,
        "label": scenario.policy.label,
        "own_code": own_code(scenario),
        "codec": scenario.codec.name,
        "seed": scenario.federation.seed,
        "finished": finished,
        "rounds": count,
        "stopped_at_accuracy": scenario.evaluation.until_accuracy if finished and count < total else None,
        "test_accuracy": _known(accuracy),
        "test_loss": _known(loss),
        "energy_j": float(rounds["cumulative_energy_j"][-1]),
        "compute_energy_j": float(rounds["compute_energy_j"].sum()),
        "upload_energy_j": float(rounds["upload_energy_j"].sum()),
        **{name: float(rounds[name].sum()) for name in CHARGES if rounds[name].any()},
        "charged": scenario.accounts.charged,
        **({} if scenario.devices.is_papers else {"devices": scenario.devices.described()}),
        "floor_j": floor_j(
            np.asarray(clients["dataset_size"][on], dtype=float), scenario.constants().of(clients["client"][on])
        ),
        "mean_bits": float(clients["num_bits"][on].mean()) if on.any() else None,
        "participation": float(on.mean()),
        "missed": float(clients["missed"].sum() / max(on.sum(), 1)),
        "mean_latency_s": float(rounds["latency_s"].mean()),
        "bits_size_correlation": _known(bits_size_correlation(clients)),
        **service(rounds, clients, scenario)._asdict(),
        **(privacy_summary(scenario, clients) if kind == "train" else {}),
        **about,
        "health": [asdict(finding) for finding in health(rounds, clients, scenario)],
        "version": __version__,
    }


def bits_size_correlation(clients: Columns) -> float:
    """Rank correlation of bits with dataset size within a round, mean over rounds; NaN if either never varies."""
    on = clients["participated"]
    bits, sizes = (clients[name][on].astype(float) for name in ("num_bits", "dataset_size"))
    if len(bits) < 2 or np.ptp(bits) == 0 or np.ptp(sizes) == 0:
        return float("nan")
    return relation_within_rounds(clients["round"][on], sizes, bits)


def floor_j(dataset_sizes: FloatArray, constants: Constants) -> float:
    """Energy of computing alone at the lowest frequency, one entry per participation. No codec can spend less."""
    cycles = cost.training_cycles(dataset_sizes, constants)
    return float(cost.compute_energy_j(cycles, constants.frequency_min_hz, constants).sum())


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
