"""The record of a run: one row per round, one row per client and round. Only what clients measure depends on the clock.

A third table holds what the server knew of each client at the start of each round, so that a plan can replay it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qccf.control.bound import aggregate_error, error_and_budget
from qccf.core.contracts import (
    BoolArray,
    Constants,
    Decision,
    FloatArray,
    IntArray,
    Observation,
    Outcome,
    PolicyState,
    Statistics,
)
from qccf.devices.cost import able_clients, training_cycles, transmit_powers_w
from qccf.devices.power import rates_at_power_bps
from qccf.quantization.costs import most_bits, payload_bits, raw_payload_bits
from qccf.rounds.packed_table import Columns, PackedTable

STATISTICS = {
    "dataset_size": "dataset_sizes",
    "gradient_norm_sq": "gradient_norms_sq",
    "gradient_variance": "gradient_variances",
    "weight_range": "weight_ranges",
    "error_scale": "error_scales",
    "upload_bits": "upload_bits",
    "upload_errors": "upload_errors",
}
"""Columns of the statistics table and the fields of `Statistics` that they hold. The last two have one value per q."""


CHARGES = ("coding_energy_j", "receive_energy_j", "idle_energy_j")
"""What a run may charge besides computing and uploading."""


MEASURED = ("measured_s", "measured_j")
"""What training took by the clients' own clocks and meters; NaN where it is not known, as in a simulation."""


class Ledger:
    """Tables that grow by one round at a time."""

    def __init__(self) -> None:
        self._rounds: list[dict[str, float | int]] = []
        self.clients = PackedTable()
        self.statistics = PackedTable()

    def __len__(self) -> int:
        return len(self._rounds)

    @property
    def last(self) -> dict[str, float | int]:
        return self._rounds[-1]

    @property
    def accuracies(self) -> list[float]:
        """The test accuracy after each round; NaN where the model was not tested."""
        return [row["test_accuracy"] for row in self._rounds]

    def record(
        self,
        round_index: int,
        observation: Observation,
        decision: Decision,
        outcome: Outcome,
        *,
        true_rates_bps: FloatArray,
        sizes_bits: FloatArray,
        policy_state: PolicyState,
        constants: Constants,
        accuracy: float,
        loss: float,
        device_names: Sequence[str] = (),
        batteries_j: FloatArray | None = None,
        kept: FloatArray | None = None,
        measured: Mapping[int, tuple[float, float]] | None = None,
    ) -> None:
        """Add one round. `observation` has the rates that the policy knew, `true_rates_bps` those of the round.

        `sizes_bits` are the payloads that were sent, `policy_state` is the one before the round, `batteries_j` what is
        left after it, `kept` the share of each client's change that counted in the aggregate (NaN where nothing
        arrived), and `measured` the seconds and joules that clients say that training took.
        """
        on = decision.participates
        spent_j = self._rounds[-1]["cumulative_energy_j"] if self._rounds else 0.0
        sizes = outcome.statistics.dataset_sizes
        known = np.isfinite(outcome.losses)
        certificate, targets = decision.certificate, decision.targets
        self._rounds.append(
            {
                "round": round_index,
                "energy_j": float(outcome.energy_j.sum()),
                "compute_energy_j": float(outcome.compute_energy_j.sum()),
                "upload_energy_j": float(outcome.upload_energy_j.sum()),
                **{name: float(np.sum(getattr(outcome, name))) for name in CHARGES},
                "cumulative_energy_j": spent_j + float(outcome.energy_j.sum()),
                "latency_s": float(outcome.latency_s.max()),
                "participants": int(on.sum()),
                "arrived": int(outcome.arrived.sum()),
                "missed": int(outcome.missed.sum()),
                "mean_bits": float(decision.num_bits[on].mean()) if on.any() else np.nan,
                "train_loss": float(np.average(outcome.losses[known], weights=sizes[known])) if known.any() else np.nan,
                "test_accuracy": accuracy,
                "test_loss": loss,
                "participation_queue": float(policy_state.get("participation_queue", np.nan)),
                "quantization_queue": float(policy_state.get("quantization_queue", np.nan)),
                "error_price": targets.error_price if targets else float(policy_state.get("error_price", np.nan)),
                "aggregate_error": _aggregate_error(outcome.arrived, observation, decision, constants),
                "error_budget": _error_budget(observation, decision),
                "objective": certificate.objective if certificate else np.nan,
                "certified_gap": certificate.gap if certificate else np.nan,
            }
        )
        columns = _client_columns(round_index, observation, decision, outcome, true_rates_bps, sizes_bits, constants)
        if device_names:
            columns["device"] = np.array(device_names)
        if batteries_j is not None:
            columns["battery_j"] = batteries_j
        columns["kept"] = np.full(len(on), np.nan) if kept is None else kept
        columns |= {name: np.full(len(on), np.nan) for name in MEASURED}
        for client, taken in (measured or {}).items():
            for name, value in zip(MEASURED, taken, strict=True):
                columns[name][client] = value
        self.clients.append(columns, BEFORE)
        self.statistics.append(_statistics_columns(round_index, observation.statistics))

    def clipped(self) -> IntArray:
        """The clients whose change counted only in part in the last round."""
        kept = self.clients.last["kept"]
        return np.flatnonzero((kept > 0.0) & (kept < 1.0))

    def truncate(self, rounds: int) -> None:
        """Drop a round that was recorded but not completed."""
        del self._rounds[rounds:]
        self.clients.truncate(rounds)
        self.statistics.truncate(rounds)

    def drop_last_evaluation(self) -> None:
        """Make the last round one that was not evaluated."""
        self._rounds[-1].update(test_accuracy=np.nan, test_loss=np.nan)

    def rounds(self) -> Columns:
        """One row per round."""
        names = self._rounds[0] if self._rounds else {}
        return {name: np.array([row[name] for row in self._rounds]) for name in names}

    def tables(self) -> dict[str, Mapping[str, NDArray[Any]]]:
        """All three tables by name."""
        return {"rounds": self.rounds(), "clients": self.clients.columns(), "statistics": self.statistics}

    @classmethod
    def restored(cls, rounds: Columns, clients: PackedTable, statistics: PackedTable) -> "Ledger":
        """The ledger that has these tables."""
        count = len(rounds.get("round", ()))
        if not clients.num_rounds == statistics.num_rounds == count:
            raise ValueError(f"a ledger of {count} rounds has {clients.num_rounds} and {statistics.num_rounds}.")
        ledger = cls()
        ledger._rounds = [{name: column[index].item() for name, column in rounds.items()} for index in range(count)]
        ledger.clients, ledger.statistics = clients, statistics
        return ledger


BEFORE: dict[str, Any] = {"device": "paper", "battery_j": np.inf}
"""Columns that may begin in a later round, when a node of Flower states its device, and what holds until then."""


def _client_columns(
    round_index: int,
    observation: Observation,
    decision: Decision,
    outcome: Outcome,
    true_rates_bps: FloatArray,
    sizes_bits: FloatArray,
    constants: Constants,
) -> Columns:
    on = decision.participates
    count = len(on)
    if decision.raw:
        expected_bits = np.full(count, raw_payload_bits(constants.num_parameters + constants.num_buffers))
    else:
        asked = np.maximum(decision.num_bits, 1)
        expected_bits = payload_bits(asked, np.arange(count), observation.statistics, constants)
    rates_bps = observation.rates_bps[np.arange(count), np.maximum(decision.channels, 0)]
    after = outcome.statistics
    able = able_clients(observation, constants)
    cycles = training_cycles(observation.statistics.dataset_sizes, constants)
    time_left_s = np.maximum(constants.deadline_s - cycles / constants.frequency_max_hz, 0.0)
    room_bits = np.where(on, rates_bps * time_left_s, 0.0)
    sent_bps = true_rates_bps[np.arange(count), np.maximum(decision.channels, 0)]
    powers_w = transmit_powers_w(decision, constants)
    if decision.powers_w is not None:
        rates_bps, sent_bps = (rates_at_power_bps(one, powers_w, constants) for one in (rates_bps, sent_bps))
    return {
        "round": np.full(count, round_index),
        "client": np.arange(count),
        "dataset_size": after.dataset_sizes.astype(np.int64),
        "able": able,
        "turn": np.where(able, min(1.0, observation.num_channels / max(1, int(able.sum()))), 0.0),
        "participated": on,
        "arrived": outcome.arrived,
        "missed": outcome.missed,
        "channel": decision.channels.astype(np.int64),
        "num_bits": decision.num_bits.astype(np.int64),
        "most_bits": most_bits(room_bits[:, None], observation.statistics, constants)[:, 0].astype(np.int64),
        "expected_bits": np.where(on, expected_bits, 0.0),
        "payload_bits": np.where(on, np.where(np.isfinite(sizes_bits), sizes_bits, expected_bits), 0.0),
        "rate_bps": np.where(on, sent_bps, np.nan),
        "estimated_rate_bps": np.where(on, rates_bps, np.nan),
        "frequency_hz": decision.frequencies_hz.astype(np.float64),
        "power_w": np.asarray(powers_w, dtype=np.float64),
        "compute_energy_j": outcome.compute_energy_j,
        "upload_energy_j": outcome.upload_energy_j,
        **{name: np.broadcast_to(getattr(outcome, name), count) for name in CHARGES},
        "latency_s": outcome.latency_s,
        "loss": outcome.losses,
        "gradient_norm_sq": after.gradient_norms_sq,
        "gradient_variance": after.gradient_variances,
        "weight_range": after.weight_ranges,
    }


def _aggregate_error(arrived: BoolArray, observation: Observation, decision: Decision, constants: Constants) -> float:
    """Expected squared error of the aggregate; uploads without a quantizer have none. NaN if nothing arrived."""
    if decision.raw and arrived.any():
        return 0.0
    return aggregate_error(arrived, decision.num_bits, observation.statistics, constants)


def _error_budget(observation: Observation, decision: Decision) -> float:
    """The error that the policy allows for this round; NaN if it has no budget or nobody takes part."""
    targets, on = decision.targets, decision.participates
    if targets is None or not on.any():
        return float("nan")
    return error_and_budget(targets, on, observation.statistics.dataset_sizes)[1]


def _statistics_columns(round_index: int, statistics: Statistics) -> Columns:
    columns = {column: getattr(statistics, field) for column, field in STATISTICS.items()}
    count = statistics.num_clients
    known = {name: values for name, values in columns.items() if values is not None}
    return {"round": np.full(count, round_index), "client": np.arange(count), **known}
