"""Solve the problem of one round: a decision with its certificate."""

from time import perf_counter
from typing import Literal

import numpy as np

from qccf.control.bits_closed_form import ClosedFormPairs
from qccf.control.bits_exact import ExactPairs
from qccf.control.bits_printed import PrintedPairs
from qccf.control.channels_assignment import solve_assignment
from qccf.control.channels_exhaustive import solve_exhaustive
from qccf.control.channels_genetic import GeneticSettings, solve_genetic
from qccf.control.pairs import PairModel
from qccf.control.problem import Allocation, RoundProblem, objective
from qccf.core.contracts import Certificate, Decision, IntArray
from qccf.core.errors import ConfigError

Solver = Literal["assignment", "genetic", "exhaustive"]
Inner = Literal["exact", "closed-form", "closed-form-taylor", "printed"]


def solve_round(
    problem: RoundProblem,
    *,
    solver: Solver = "assignment",
    inner: Inner = "exact",
    rng: np.random.Generator | None = None,
    genetic: GeneticSettings | None = None,
    last_bits: IntArray | None = None,
) -> Decision:
    """Decide a round. `last_bits` are each client's last bits, the start of the Taylor step of Case 5.

    The certificate's lower bound holds for every feasible decision, independently of the solver and the inner
    solution. Its wall time includes the search and the proof.
    """
    started = perf_counter()
    pairs = _pair_model(problem, inner, last_bits)
    if solver == "assignment":
        allocation, lower_bound = solve_assignment(problem, pairs)
    elif solver == "genetic":
        generator = np.random.default_rng(0) if rng is None else rng
        allocation = solve_genetic(problem, pairs, generator, genetic or GeneticSettings())
        _, lower_bound = solve_assignment(problem, ExactPairs(problem))
    else:
        allocation = solve_exhaustive(problem, pairs)
        optimum = allocation if inner == "exact" else solve_exhaustive(problem, ExactPairs(problem))
        lower_bound = objective(problem, optimum)
    return _decision(problem, allocation, lower_bound, f"{solver}/{inner}", started)


def _pair_model(problem: RoundProblem, inner: Inner, last_bits: IntArray | None) -> PairModel:
    if inner == "exact":
        return ExactPairs(problem)
    if problem.observation.statistics.upload_bits is not None:
        raise ConfigError(
            f'control.inner = "{inner}" needs a codec whose payload bits are affine in q, but this codec lists them: '
            'use "exact", or a codec without entropy coding.'
        )
    steps_hz = problem.constants.step_frequencies_hz
    if steps_hz is not None and np.isfinite(steps_hz).any():
        raise ConfigError(
            f'control.inner = "{inner}" needs devices with a continuous frequency, but some have steps: use "exact", '
            "or profiles with an energy_coefficient."
        )
    if inner == "printed":
        return PrintedPairs(problem, last_bits)
    return ClosedFormPairs(problem, last_bits, "taylor" if inner == "closed-form-taylor" else "iterated")


def _decision(
    problem: RoundProblem, allocation: Allocation, lower_bound: float, solver: str, started: float
) -> Decision:
    rows = np.flatnonzero(allocation.participates)
    frequencies_hz = np.zeros(len(allocation.channels))
    frequencies_hz[rows] = problem.frequencies_hz(allocation.num_bits[rows], rows, allocation.channels[rows])
    value = objective(problem, allocation)
    certificate = Certificate(value, min(lower_bound, value), solver, perf_counter() - started)
    return Decision(allocation.channels, allocation.num_bits, frequencies_hz, certificate=certificate)
