"""What happened: one row a round, and one row a client and round. Nothing in it depends on the clock."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qccf.core.contracts import Constants, Decision, FloatArray, Observation, Outcome, State
from qccf.quantization.costs import payload_bits, raw_payload_bits

if TYPE_CHECKING:
    import pandas as pd

Columns = dict[str, NDArray[Any]]


class Ledger:
    """Columns that grow by one round at a time."""

    def __init__(self) -> None:
        self._rounds: list[dict[str, float | int]] = []
        self._clients: list[Columns] = []

    def __len__(self) -> int:
        return len(self._rounds)

    @property
    def last(self) -> dict[str, float | int]:
        return self._rounds[-1]

    def record(
        self,
        round_index: int,
        observation: Observation,
        decision: Decision,
        outcome: Outcome,
        *,
        sizes_bits: FloatArray,
        state: State,
        constants: Constants,
        accuracy: float,
        loss: float,
    ) -> None:
        """Add one round. `sizes_bits` are the payloads that were made, `state` is the policy's before the round."""
        on = decision.participates
        spent = self._rounds[-1]["cumulative_energy_j"] if self._rounds else 0.0
        sizes = outcome.statistics.dataset_sizes
        heard = np.isfinite(outcome.losses)
        certificate = decision.certificate
        self._rounds.append(
            {
                "round": round_index,
                "energy_j": float(outcome.energy_j.sum()),
                "compute_energy_j": float(outcome.compute_energy_j.sum()),
                "upload_energy_j": float(outcome.upload_energy_j.sum()),
                "cumulative_energy_j": spent + float(outcome.energy_j.sum()),
                "latency_s": float(outcome.latency_s.max()),
                "participants": int(on.sum()),
                "arrived": int(outcome.arrived.sum()),
                "missed": int(outcome.missed.sum()),
                "mean_bits": float(decision.num_bits[on].mean()) if on.any() else np.nan,
                "train_loss": float(np.average(outcome.losses[heard], weights=sizes[heard])) if heard.any() else np.nan,
                "test_accuracy": accuracy,
                "test_loss": loss,
                "participation_queue": float(state.get("participation_queue", np.nan)),
                "quantization_queue": float(state.get("quantization_queue", np.nan)),
                "objective": certificate.objective if certificate else np.nan,
                "certified_gap": certificate.gap if certificate else np.nan,
            }
        )
        self._clients.append(_client_columns(round_index, observation, decision, outcome, sizes_bits, constants))

    def truncate(self, rounds: int) -> None:
        """Forget a round that was recorded but not completed."""
        del self._rounds[rounds:], self._clients[rounds:]

    def rounds(self) -> Columns:
        names = self._rounds[0] if self._rounds else {}
        return {name: np.array([row[name] for row in self._rounds]) for name in names}

    def clients(self) -> Columns:
        names = self._clients[0] if self._clients else {}
        return {name: np.concatenate([part[name] for part in self._clients]) for name in names}

    def frames(self) -> "tuple[pd.DataFrame, pd.DataFrame]":
        """Rounds and clients as data frames."""
        import pandas as pd

        return pd.DataFrame(self.rounds()), pd.DataFrame(self.clients())

    @classmethod
    def restored(cls, rounds: Columns, clients: Columns) -> "Ledger":
        """The ledger whose columns these are."""
        ledger = cls()
        for index in range(len(rounds.get("round", ()))):
            ledger._rounds.append({name: column[index].item() for name, column in rounds.items()})
            mine = clients["round"] == rounds["round"][index]
            ledger._clients.append({name: column[mine] for name, column in clients.items()})
        return ledger


def _client_columns(
    round_index: int,
    observation: Observation,
    decision: Decision,
    outcome: Outcome,
    sizes_bits: FloatArray,
    constants: Constants,
) -> Columns:
    on = decision.participates
    count = len(on)
    if decision.raw:
        expected_bits = np.full(count, raw_payload_bits(constants.num_parameters))
    else:
        asked = np.maximum(decision.num_bits, 1)
        expected_bits = payload_bits(asked, np.arange(count), observation.statistics, constants)
    rates_bps = observation.rates_bps[np.arange(count), np.maximum(decision.channels, 0)]
    after = outcome.statistics
    return {
        "round": np.full(count, round_index),
        "client": np.arange(count),
        "dataset_size": after.dataset_sizes.astype(np.int64),
        "participated": on,
        "arrived": outcome.arrived,
        "missed": outcome.missed,
        "channel": decision.channels,
        "num_bits": decision.num_bits,
        "expected_bits": np.where(on, expected_bits, 0.0),
        "payload_bits": np.where(on, np.where(np.isfinite(sizes_bits), sizes_bits, expected_bits), 0.0),
        "rate_bps": np.where(on, rates_bps, np.nan),
        "frequency_hz": decision.frequencies_hz,
        "compute_energy_j": outcome.compute_energy_j,
        "upload_energy_j": outcome.upload_energy_j,
        "latency_s": outcome.latency_s,
        "loss": outcome.losses,
        "gradient_norm_sq": after.gradient_norms_sq,
        "gradient_variance": after.gradient_variances,
        "weight_range": after.weight_ranges,
    }
