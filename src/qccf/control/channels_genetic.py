"""P3.1 solved by the paper's genetic algorithm.

A chromosome assigns each channel one client or none, so a channel never has two clients (C3). The repair step ensures
that a client never has two channels (C2). A whole generation is evaluated at once.

Paper: Algorithm 1. The paper does not specify selection, crossover and repair. Here selection is a roulette wheel on
the fitness and crossover is uniform. In the repair step a client with several channels keeps the fastest one, and
absent clients take the others.
"""

from dataclasses import dataclass

import numpy as np

from qccf.control.pairs import PairModel
from qccf.control.problem import Allocation, RoundProblem, empty_allocation
from qccf.core.contracts import FloatArray, IntArray
from qccf.core.options import option


@dataclass(frozen=True)
class GeneticSettings:
    """Options of the genetic algorithm. Paper: N_pop, s_max, p_c, p_m, ι."""

    population: int = option(50, "chromosomes per generation, N_pop", ge=2, le=100_000)
    generations: int = option(50, "number of generations, s_max", ge=1, le=100_000)
    crossover_probability: float = option(0.9, "probability that two parents are crossed, p_c", ge=0, le=1)
    mutation_probability: float = option(0.05, "probability that a gene mutates, p_m", ge=0, le=1)
    fitness_exponent: float = option(1.0, "exponent of the fitness, ι", gt=0, le=100)
    elitism: int = option(0, "best chromosomes that are kept unchanged; the paper keeps none", ge=0, le=100_000)

    def __post_init__(self) -> None:
        if self.elitism >= self.population:
            raise ValueError(
                f"elitism = {self.elitism} leaves no room for children in population = {self.population}: lower it"
            )


def solve_genetic(
    problem: RoundProblem, pairs: PairModel, rng: np.random.Generator, settings: GeneticSettings
) -> Allocation:
    """The best chromosome of the last generation, or the empty round if that is better."""
    num_clients, num_channels = problem.rates_bps.shape
    generation = _first_generation(settings.population, num_clients, num_channels, rng)
    for _ in range(settings.generations):
        values = _values(problem, pairs, generation)
        fitness = _fitness(values, settings.fitness_exponent)
        parents = generation[_roulette(fitness, settings.population, rng)]
        children = _cross(parents, settings.crossover_probability, rng)
        children = _mutate(children, num_clients, settings.mutation_probability, rng)
        children = _repair(children, problem.rates_bps, rng)
        if settings.elitism:
            best = np.argsort(values, kind="stable")[: settings.elitism]
            children[: settings.elitism] = generation[best]
        generation = children
    values = _values(problem, pairs, generation)
    best_index = int(np.argmin(values))
    return _decode(problem, pairs, generation[best_index] if values[best_index] < 0.0 else None)


def _first_generation(population: int, num_clients: int, num_channels: int, rng: np.random.Generator) -> IntArray:
    """Random allocations that use a random part of the channels; the first uses as many channels as possible."""
    slots = max(num_clients, num_channels)
    clients = np.where(np.arange(slots) < num_clients, np.arange(slots), -1)
    shuffled = rng.permuted(np.tile(clients, (population, 1)), axis=1)[:, :num_channels]
    idle = rng.random(shuffled.shape) < rng.random((population, 1))
    idle[0] = False
    return np.where(idle, -1, shuffled)


def _values(problem: RoundProblem, pairs: PairModel, generation: IntArray) -> FloatArray:
    """J minus J of the empty round for each chromosome; infinite where a pair cannot meet the deadline."""
    used = generation >= 0
    totals = np.where(used, problem.dataset_sizes[generation], 0.0).sum(axis=1)
    who, columns = np.nonzero(used)
    costs = np.zeros(generation.shape)
    costs[who, columns] = pairs.chosen_costs(totals[who], generation[who, columns], columns)
    return np.asarray(costs.sum(axis=1))


def _fitness(values: FloatArray, exponent: float) -> FloatArray:
    """(J_max - J)^ι for feasible chromosomes, 0 for infeasible ones. Paper: J4."""
    feasible = np.isfinite(values)
    if not feasible.any():
        return np.zeros_like(values)
    worst = values[feasible].max()
    return np.asarray(np.where(feasible, worst - values, 0.0) ** exponent)


def _roulette(fitness: FloatArray, count: int, rng: np.random.Generator) -> IntArray:
    total = fitness.sum()
    chances = fitness / total if total > 0.0 else np.full(len(fitness), 1.0 / len(fitness))
    return rng.choice(len(fitness), size=count, p=chances)


def _cross(parents: IntArray, probability: float, rng: np.random.Generator) -> IntArray:
    """Swap a random half of the channels between the two parents of each pair."""
    children = parents.copy()
    half = len(parents) // 2
    first, second = children[:half], children[half : 2 * half]
    swap = (rng.random(first.shape) < 0.5) & (rng.random((half, 1)) < probability)
    first[swap], second[swap] = second[swap], first[swap].copy()
    return children


def _mutate(children: IntArray, num_clients: int, probability: float, rng: np.random.Generator) -> IntArray:
    """Assign random channels to a random client or to none."""
    hit = rng.random(children.shape) < probability
    return np.where(hit, rng.integers(-1, num_clients, children.shape), children)


def _repair(children: IntArray, rates_bps: FloatArray, rng: np.random.Generator) -> IntArray:
    """A client with several channels keeps the fastest; the others go to random clients without a channel."""
    count, num_channels = children.shape
    num_clients = rates_bps.shape[0]
    speeds = np.where(children >= 0, rates_bps[children, np.arange(num_channels)], 0.0)
    by_speed = np.argsort(-speeds, axis=1, kind="stable")
    by_client = np.argsort(np.take_along_axis(children, by_speed, axis=1), axis=1, kind="stable")
    order = np.take_along_axis(by_speed, by_client, axis=1)
    grouped = np.take_along_axis(children, order, axis=1)
    repeated = np.zeros(children.shape, dtype=bool)
    repeated[:, 1:] = (grouped[:, 1:] == grouped[:, :-1]) & (grouped[:, 1:] >= 0)
    present = np.zeros((count, num_clients + 1), dtype=bool)
    np.put_along_axis(present, children, True, axis=1)
    lots = np.where(present[:, :num_clients], 2.0, rng.random((count, num_clients)))
    absent = np.argsort(lots, axis=1)
    turn = np.cumsum(repeated, axis=1) - 1
    available = turn < (num_clients - present[:, :num_clients].sum(axis=1))[:, None]
    heirs = np.take_along_axis(absent, np.clip(turn, 0, num_clients - 1), axis=1)
    grouped = np.where(repeated, np.where(available, heirs, -1), grouped)
    repaired = np.empty_like(children)
    np.put_along_axis(repaired, order, grouped, axis=1)
    return repaired


def _decode(problem: RoundProblem, pairs: PairModel, chromosome: IntArray | None) -> Allocation:
    allocation = empty_allocation(problem.rates_bps.shape[0])
    if chromosome is None or not (chromosome >= 0).any():
        return allocation
    columns = np.flatnonzero(chromosome >= 0)
    rows = chromosome[columns]
    allocation.channels[rows] = columns
    allocation.num_bits[rows] = pairs.bits(float(problem.dataset_sizes[rows].sum()), rows, columns)
    return allocation
