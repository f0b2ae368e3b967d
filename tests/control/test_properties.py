"""A decision satisfies every constraint of P2 in any round."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qccf.control.solve import solve_round
from support.problems import random_problem


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    solver=st.sampled_from(["assignment", "genetic", "exhaustive"]),
    inner=st.sampled_from(["exact", "closed-form", "closed-form-taylor", "printed"]),
    clients=st.integers(1, 7),
    channels=st.integers(1, 8),
    dead=st.floats(0.0, 1.0),
)
def test_constraints(seed: int, solver: str, inner: str, clients: int, channels: int, dead: float) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, clients, channels, below=0.4)
    rates = problem.observation.rates_bps
    rates[rng.random(rates.shape) < dead] = 0.0
    last_bits = rng.integers(0, 9, clients)
    decision = solve_round(problem, solver=solver, inner=inner, rng=rng, last_bits=last_bits)
    on = decision.participates
    rows, columns = np.flatnonzero(on), decision.channels[on]
    c = problem.constants

    assert ((decision.channels >= -1) & (decision.channels < channels)).all()  # C1
    assert (decision.num_bits[~on] == 0).all()  # C2
    assert (decision.frequencies_hz[~on] == 0.0).all()
    assert len(set(columns.tolist())) == len(columns)  # C3
    frequency = decision.frequencies_hz[on]
    assert ((frequency >= c.frequency_min_hz) & (frequency <= c.frequency_max_hz)).all()  # C5
    assert (decision.num_bits[on] >= 1).all()  # C8
    assert decision.num_bits.dtype.kind == "i"
    if len(rows):
        compute_s = c.local_epochs * c.cycles_per_sample * problem.dataset_sizes[rows] / frequency
        upload_s = (c.num_parameters * (decision.num_bits[on] + 1) + 32) / rates[rows, columns]
        assert (compute_s + upload_s <= c.deadline_s * (1 + 1e-12)).all()  # C4
    certificate = decision.certificate
    assert certificate is not None
    assert certificate.lower_bound <= certificate.objective
    assert certificate.objective <= problem.empty_objective + 1e-9 * abs(problem.empty_objective)
    assert certificate.solver == f"{solver}/{inner}"
    assert certificate.wall_time_s > 0.0


@pytest.mark.parametrize("seed", range(5))
def test_more_channels_never_hurt(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 8, 8)
    narrow = replace(problem, observation=replace(problem.observation, rates_bps=problem.rates_bps[:, :4]))
    wide, tight = solve_round(problem).certificate, solve_round(narrow).certificate
    assert wide is not None
    assert tight is not None
    assert wide.objective <= tight.objective + 1e-9 * abs(tight.objective)
