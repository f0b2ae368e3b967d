"""What every attack owes, whoever wrote it: an entry of the registry is tested by being there."""

import inspect

import numpy as np
import pytest

from qccf.learning.attacks.registry import ATTACKS
from qccf.learning.results import LocalResult, LocalStatistics
from qccf.quantization.registry import CODECS
from qccf.runtimes.simulator import simulate
from tests.conformance.entries import entries
from tests.helpers.tiny import tiny_dataset, tiny_scenario

NAMES = entries(ATTACKS)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_a_function_of_its_arguments_and_changes_none(name: str) -> None:
    attack, rng = ATTACKS.build(name), np.random.default_rng(0)
    received, weights = rng.normal(size=(2, 30)).astype(np.float32)
    labels, statistics = rng.integers(0, 10, 20), LocalStatistics(1.0, 2.0, 3.0, 4.0)
    copies = received.copy(), weights.copy(), labels.copy()
    made = [attack.result(LocalResult(weights, statistics), received, np.random.default_rng(1)) for _ in range(2)]
    wrong = attack.labels(labels, 10)
    assert made[0].weights.tobytes() == made[1].weights.tobytes()
    assert made[0].weights.dtype == np.float32
    assert made[0].weights.shape == (30,)
    assert wrong.dtype == labels.dtype
    assert ((wrong >= 0) & (wrong < 10)).all()
    for before, after in zip(copies, (received, weights, labels), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("name", NAMES)
def test_attackers_are_charged_like_everybody_and_the_run_is_reproducible(name: str) -> None:
    settings = f"attack.kind={name}", "attack.clients=[1]", "federation.rounds=3", "policy.name=fixed-bits"
    runs = [simulate(tiny_scenario(*settings), dataset=tiny_dataset()) for _ in range(2)]
    assert runs[0].weights.tobytes() == runs[1].weights.tobytes()
    honest = simulate(tiny_scenario(*settings, "attack.kind=none"), dataset=tiny_dataset())
    np.testing.assert_array_equal(runs[0].energy_j, honest.energy_j)
    changed = runs[0].weights.tobytes() != honest.weights.tobytes()
    assert changed == (name not in ("none", "lying-statistics"))


@pytest.mark.parametrize("codec", list(CODECS))
def test_every_codec_encodes_a_scaled_update(codec: str) -> None:
    settings = f"codec.name={codec}", "attack.kind=scaled-update", "attack.scaled_update.scale=1e6"
    run = simulate(tiny_scenario(*settings, "federation.rounds=4"), dataset=tiny_dataset())
    assert np.abs(run.weights).max() < 100.0
    hostile = np.flatnonzero((run.by_round("kept") < 1.0).any(axis=0))
    assert len(hostile) == 1


@pytest.mark.parametrize("name", NAMES)
def test_it_has_a_docstring(name: str) -> None:
    assert inspect.getdoc(ATTACKS.find(name))
