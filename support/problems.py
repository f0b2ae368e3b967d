"""Problems of one round, random and typical, for tests and benchmarks."""

from dataclasses import fields, replace

import numpy as np

from qccf.control.matching import fastest_channels
from qccf.control.problem import RoundProblem
from qccf.control.scale_free import ScaleFreeProblem
from qccf.control.turns import usable_pairs
from qccf.core.contracts import MAX_NUM_BITS, Constants, Observation, Statistics
from qccf.devices.steps import step_arrays, useful_steps
from qccf.quantization import costs
from qccf.rounds.world import World, build_world
from qccf.settings.loading import Scenario, load_scenario

CONSTANTS = Constants(
    num_parameters=246_590,
    deadline_s=0.02,
    cycles_per_sample=1000.0,
    energy_coefficient=1e-26,
    transmit_power_w=0.2,
    frequency_min_hz=2e8,
    frequency_max_hz=1e9,
    local_updates=6,
    local_epochs=2,
    learning_rate=0.1,
    smoothness=0.015,
    energy_weight=100.0,
    data_budget=0.0,
    quantization_budget=0.03,
)


def equal_statistics(
    *sizes: float, norm_sq: float = 1.0, variance: float = 2.0, weight_range: float = 0.5
) -> Statistics:
    """Statistics of clients that differ only in their number of samples."""
    n = len(sizes)
    return Statistics(np.array(sizes), np.full(n, norm_sq), np.full(n, variance), np.full(n, weight_range))


def random_problem(
    rng: np.random.Generator, num_clients: int | None = None, num_channels: int | None = None, below: float = 0.15
) -> RoundProblem:
    """A random round: feasible and partly feasible links, few and many channels, queues above and below budget.

    `below` is the probability that a queue is below its budget.
    """
    clients = int(rng.integers(2, 11)) if num_clients is None else num_clients
    channels = int(rng.integers(1, 13)) if num_channels is None else num_channels
    typical_bps = 10 ** rng.uniform(7.3, 8.4)
    rates = typical_bps * rng.lognormal(0.0, 0.5, (clients, 1)) * rng.lognormal(0.0, 0.2, (clients, channels))
    statistics = Statistics(
        dataset_sizes=np.maximum(50.0, rng.normal(1200, rng.choice([50, 150, 300, 500]), clients)).round(),
        gradient_norms_sq=rng.lognormal(0.0, 0.7, clients) * 10 ** rng.uniform(-1, 1),
        gradient_variances=rng.lognormal(0.0, 0.7, clients) * 10 ** rng.uniform(-1, 1),
        weight_ranges=rng.uniform(0.1, 1.0, clients),
    )
    budget = float(rng.choice([0.0, 5.0]))
    constants = replace(
        CONSTANTS,
        smoothness=float(rng.choice([0.015, 0.1, 0.5, 1.0])),
        energy_weight=float(10 ** rng.uniform(0, 3)),
        data_budget=budget,
    )
    signs = rng.choice([-1.0, 1.0], size=2, p=[below, 1.0 - below])
    return RoundProblem(
        Observation(rates, statistics),
        constants,
        participation_queue=budget + float(signs[0] * 10 ** rng.uniform(-2, 1.5)),
        quantization_queue=constants.quantization_budget + float(signs[1] * 10 ** rng.uniform(-2, 2)),
    )


def mixed_constants(
    rng: np.random.Generator, count: int, *, steps: bool, like: Constants = CONSTANTS, idle_power_w: float = 0.0
) -> Constants:
    """Constants of clients whose devices differ by about ten; with `steps` about half of them offer a few only."""

    def spread(value: float, factor: float) -> np.ndarray:
        return value * factor ** rng.uniform(-1.0, 1.0, count)

    highest_hz = spread(like.frequency_max_hz, 2.0)
    mixed = replace(
        like,
        cycles_per_sample=spread(like.cycles_per_sample, 3.0),
        energy_coefficient=spread(like.energy_coefficient, 3.0),
        frequency_min_hz=highest_hz * rng.uniform(0.1, 0.9, count),
        frequency_max_hz=highest_hz,
        transmit_power_w=spread(like.transmit_power_w, 2.0),
        circuit_power_w=rng.choice([0.0, 0.3, 1.0], count) * like.transmit_power_w,
        idle_power_w=spread(idle_power_w, 3.0),
    )
    if not steps:
        return mixed
    offered = [random_steps(rng, mixed.of(client)) if rng.random() < 0.5 else [] for client in range(count)]
    frequencies_hz, energies_j = step_arrays(offered)
    if not frequencies_hz.size:
        return mixed
    has = np.array([bool(one) for one in offered])
    useful = [useful_steps(one) for one in offered]
    lowest_hz = np.array([one[0][0] if one else low for one, low in zip(useful, mixed.frequency_min_hz, strict=True)])
    top_hz = np.array([one[-1][0] if one else high for one, high in zip(useful, highest_hz, strict=True)])
    return replace(
        mixed,
        energy_coefficient=np.where(has, 0.0, mixed.energy_coefficient),
        frequency_min_hz=lowest_hz,
        frequency_max_hz=top_hz,
        step_frequencies_hz=frequencies_hz,
        step_energies_j=energies_j,
    )


def random_steps(rng: np.random.Generator, constants: Constants) -> list[tuple[float, float]]:
    """Pairs of frequency and power whose energy per cycle does not always rise with the frequency."""
    low, high = float(constants.frequency_min_hz), float(constants.frequency_max_hz)
    frequencies_hz = np.sort(rng.uniform(low, high, int(rng.integers(1, 6))))
    powers_w = float(constants.energy_coefficient) * frequencies_hz**3 * rng.lognormal(0.0, 0.5, len(frequencies_hz))
    return [(float(f), float(p)) for f, p in zip(frequencies_hz, powers_w, strict=True)]


def coded_problem(problem: RoundProblem, rng: np.random.Generator, *, listed: bool) -> RoundProblem:
    """The same round with another codec: other affine payload sizes, or `listed` sizes that grow irregularly."""
    s, c = problem.observation.statistics, problem.constants
    scales = 0.25 * c.num_parameters * np.square(s.weight_ranges) * 10 ** rng.uniform(-3, 0.5, s.num_clients)
    s = replace(s, error_scales=scales)
    if listed:
        steps = c.num_parameters * rng.lognormal(-1.0, 1.0, (s.num_clients, MAX_NUM_BITS))
        s = replace(s, upload_bits=np.cumsum(steps, axis=1))
    else:
        a, b = c.num_parameters * rng.uniform(0.3, 1.5), c.num_parameters * rng.uniform(0.0, 2.0)
        c = replace(c, bits_per_index=float(a), overhead_bits=float(b))
    return replace(problem, observation=replace(problem.observation, statistics=s), constants=c)


def typical_world(num_clients: int, num_channels: int, seed: int = 0) -> tuple[Scenario, World, Statistics]:
    """The `femnist` preset with other sizes: its settings, its cell, and statistics of its clients."""
    scenario = load_scenario(
        "femnist",
        [
            f"federation.num_clients={num_clients}",
            f"radio.num_channels={num_channels}",
            "data.dataset_size_std=300",
        ],
    )
    world = build_world(scenario, seed)
    rng = np.random.default_rng(seed)
    statistics = Statistics(
        dataset_sizes=world.dataset_sizes,
        gradient_norms_sq=rng.lognormal(0.0, 0.3, num_clients),
        gradient_variances=rng.lognormal(0.0, 0.3, num_clients),
        weight_ranges=rng.uniform(0.2, 0.6, num_clients),
    )
    return scenario, world, statistics


def typical_problem(num_clients: int, num_channels: int, seed: int = 0) -> RoundProblem:
    """A round of the `femnist` preset with other sizes. λ1 is high enough to make every channel worth using."""
    scenario, world, statistics = typical_world(num_clients, num_channels, seed)
    return RoundProblem(
        world.observe(0, statistics),
        scenario.constants(),
        participation_queue=float(num_clients),
        quantization_queue=0.53,
    )


def random_scale_free_problem(
    rng: np.random.Generator,
    num_clients: int | None = None,
    num_channels: int | None = None,
    *,
    tables: bool | None = None,
    dead: float | None = None,
) -> ScaleFreeProblem:
    """A random problem of the default form: clients that can all be served at once, at most as many as asked for.

    `tables` gives the codec's lists of sizes and errors, or none; `dead` is the probability that a link has no rate.
    None draws either.
    """
    observation = random_links(rng, num_clients, num_channels, tables=tables, dead=dead)
    served = fastest_channels(observation.rates_bps, usable_pairs(observation, CONSTANTS)) >= 0
    if not served.any():
        return random_scale_free_problem(rng, num_clients, num_channels, tables=tables, dead=dead)
    observation = some_clients(observation, np.flatnonzero(served))
    errors = costs.expected_errors(observation.statistics, CONSTANTS)
    typical = float(np.median(errors[:, int(rng.integers(0, 6))])) / int(served.sum())
    return ScaleFreeProblem(
        observation,
        CONSTANTS,
        energy_price=float(10 ** rng.uniform(-1, 1)) / 4e-3,
        error_price=float(10 ** rng.uniform(-2, 3)) / typical,
    )


def random_links(
    rng: np.random.Generator,
    num_clients: int | None = None,
    num_channels: int | None = None,
    *,
    tables: bool | None = None,
    dead: float | None = None,
) -> Observation:
    """A random round in which some links, clients or all of them may be too slow; arguments as above."""
    seen = random_problem(rng, num_clients, num_channels).observation
    if dead is None:
        dead = float(rng.choice([0.0, 0.0, 0.3, 0.8]))
    rates_bps = np.where(rng.random(seen.rates_bps.shape) < dead, 0.0, seen.rates_bps)
    listed = rng.random() < 0.5 if tables is None else tables
    return Observation(rates_bps, _listed(seen.statistics, CONSTANTS, rng) if listed else seen.statistics)


def some_clients(observation: Observation, clients: np.ndarray) -> Observation:
    """The observation of some clients only."""
    known = {
        field.name: None if values is None else values[clients]
        for field in fields(Statistics)
        for values in [getattr(observation.statistics, field.name)]
    }
    return Observation(observation.rates_bps[clients], Statistics(**known))


def _listed(statistics: Statistics, constants: Constants, rng: np.random.Generator) -> Statistics:
    """The statistics with irregular lists: sizes that never fall and errors that never rise with q."""
    shape = (statistics.num_clients, MAX_NUM_BITS)
    steps = constants.num_parameters * rng.lognormal(-1.0, 1.0, shape) * (rng.random(shape) < 0.9)
    scales = costs.error_scales(statistics, constants)
    bounds = scales[:, None] / np.square(np.exp2(np.arange(1, MAX_NUM_BITS + 1)) - 1.0)
    errors = np.minimum.accumulate(bounds * rng.uniform(0.05, 1.0, shape), axis=1)
    sizes = constants.num_parameters * 0.2 + np.cumsum(steps, axis=1)
    return replace(statistics, error_scales=scales, upload_bits=sizes, upload_errors=errors)
