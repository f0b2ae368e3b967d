"""The cell and the clients of one seed, the same for all policies of a comparison."""

from dataclasses import dataclass

import numpy as np

from qccf.core.contracts import FloatArray, Observation, Statistics
from qccf.core.streams import stream
from qccf.rounds.feasibility import require_feasible
from qccf.settings.loading import Scenario
from qccf.wireless.cell import Cell, place_clients
from qccf.wireless.traces.registry import load_trace
from qccf.wireless.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class World:
    """Positions and dataset sizes are fixed for a run; rates are drawn in each round."""

    scenario: Scenario
    seed: int
    cell: Cell
    dataset_sizes: FloatArray

    def observe(self, round_index: int, statistics: Statistics) -> Observation:
        """What the server knows at the start of a round: rates as it estimates them."""
        return Observation(self.cell.estimated_rates_bps(round_index), statistics)

    def true_rates_bps(self, round_index: int) -> FloatArray | None:
        """The rates with which a round is settled; None where they are those of the observation."""
        return self.cell.round_rates_bps(round_index) if self.cell.radio.is_estimated else None


def build_world(scenario: Scenario, seed: int, dataset_sizes: FloatArray | None = None) -> World:
    """Place the clients, and draw their dataset sizes unless they are given.

    Refuses a world in which no client can ever upload.
    """
    cell = scenario_cell(scenario, seed)
    sizes = draw_dataset_sizes(scenario, seed) if dataset_sizes is None else dataset_sizes
    require_feasible(scenario, cell, sizes)
    return World(scenario, seed, cell, sizes)


def scenario_cell(scenario: Scenario, seed: int) -> Cell:
    """The clients of a scenario at their positions, whether or not any of them can upload."""
    stated_m = scenario.fleet(seed).positions_m
    return place_clients(
        scenario.radio_link(seed),
        num_clients=scenario.federation.num_clients,
        radius_m=scenario.cell.radius_m,
        distance_min_m=scenario.cell.distance_min_m,
        seed=seed,
        walk=scenario.cell.walk(),
        neighbours=scenario.cell.interferers(),
        trace=_trace(scenario),
        positions_m=scenario.cell.positions_m if stated_m is None else stated_m,
    )


def _trace(scenario: Scenario) -> Trace | None:
    radio = scenario.radio
    if not radio.trace:
        return None
    return load_trace(
        radio.trace,
        radio.trace_form,
        num_clients=scenario.federation.num_clients,
        num_channels=radio.num_channels,
        num_rounds=scenario.federation.rounds,
        end=radio.trace_end,
        digest=radio.trace_digest,
    )


def draw_dataset_sizes(scenario: Scenario, seed: int) -> FloatArray:
    """Whole sizes D ~ N(μ, β), cut at the minimum, unless a table of clients states them. Paper: Section VI."""
    stated = scenario.fleet(seed).dataset_sizes
    if stated is not None:
        return stated
    data = scenario.data
    drawn = stream(seed, "dataset-sizes").normal(
        data.dataset_size_mean, data.dataset_size_std, scenario.federation.num_clients
    )
    return np.maximum(np.round(drawn), float(data.dataset_size_min))
