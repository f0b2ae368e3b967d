"""Tables of a run in which all is well, with one thing changed at a time."""

from typing import Any

import numpy as np

from qccf.rounds.packed_table import Columns
from qccf.settings.loading import Scenario, load_scenario

ROUNDS, CLIENTS = 40, 6


def made_scenario(*overrides: str) -> Scenario:
    scenario = load_scenario("femnist", [f"federation.num_clients={CLIENTS}", "codec.safety_margin=0.05", *overrides])
    return scenario.replaced(control={"slack": 2.0})


def made_tables(
    rounds: dict[str, Any] | None = None, clients: dict[str, Any] | None = None, *, num_rounds: int = ROUNDS
) -> tuple[Columns, Columns]:
    """Everybody takes part in every round with 3 bits of at most 6 and half of the error budget.

    `rounds` and `clients` replace columns; the clients' ones are arrays [round, client] or what broadcasts to it. Who
    sits out sends nothing.
    """
    shape = (num_rounds, CLIENTS)
    both = {
        "round": np.arange(num_rounds)[:, None],
        "client": np.arange(CLIENTS),
        "dataset_size": 1000,
        "able": True,
        "turn": 1.0,
        "participated": True,
        "arrived": True,
        "missed": False,
        "num_bits": 3,
        "most_bits": 6,
        "expected_bits": 1e6,
        "payload_bits": 1e6,
        "rate_bps": 1e8,
        "estimated_rate_bps": 1e8,
        "gradient_norm_sq": 1.0,
    } | (clients or {})
    table = {name: np.broadcast_to(np.asarray(values), shape).copy() for name, values in both.items()}
    for name in ("arrived", "missed", "num_bits", "most_bits", "expected_bits", "payload_bits"):
        table[name] = np.where(table["participated"], table[name], 0).astype(table[name].dtype)
    series = {
        "round": np.arange(num_rounds),
        "aggregate_error": 0.5,
        "error_budget": 1.0,
        "error_price": 10.0,
        "participation_queue": np.nan,
        "quantization_queue": np.nan,
    } | (rounds or {})
    columns = {name: np.broadcast_to(np.asarray(values), num_rounds).copy() for name, values in series.items()}
    return columns, {name: values.ravel() for name, values in table.items()}
