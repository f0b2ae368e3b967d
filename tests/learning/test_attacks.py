"""Attacks by hand."""

import itertools

import numpy as np
import pytest

from qccf.core.errors import ConfigError
from qccf.learning.attacks.label_flip import LabelFlip
from qccf.learning.attacks.lying_statistics import LyingStatistics
from qccf.learning.attacks.noise import Noise
from qccf.learning.attacks.registry import attackers
from qccf.learning.attacks.scaled_update import ScaledUpdate
from qccf.learning.attacks.sign_flip import SignFlip
from qccf.learning.results import LocalResult, LocalStatistics
from qccf.rounds.setup import build_attack
from qccf.runtimes.simulator import simulate
from qccf.settings.loading import load_scenario
from tests.helpers.tiny import tiny_dataset, tiny_scenario

RECEIVED = np.array([1.0, 2.0], dtype=np.float32)
RESULT = LocalResult(np.array([1.5, 1.0], dtype=np.float32), LocalStatistics(1.0, 2.0, 3.0, 4.0))


def attacked(attack, result=RESULT, received=RECEIVED) -> LocalResult:
    return attack.result(result, received, np.random.default_rng(0))


def test_a_scaled_and_a_flipped_update() -> None:
    assert attacked(ScaledUpdate(scale=10.0)).weights.tolist() == [6.0, -8.0]
    assert attacked(SignFlip(scale=2.0)).weights.tolist() == [0.0, 4.0]
    assert attacked(SignFlip()).weights.tolist() == [0.5, 3.0]
    assert attacked(SignFlip()).statistics == RESULT.statistics


def test_flipped_labels() -> None:
    assert LabelFlip().labels(np.array([0, 3, 9]), 10).tolist() == [9, 6, 0]


def test_noise_has_the_length_of_the_change() -> None:
    """The squared length is a sum of n squares: five standard errors are 5·√(2/n)."""
    received, count = np.zeros(20_000, dtype=np.float32), 20_000
    change = np.random.default_rng(1).normal(size=count).astype(np.float32)
    noisy = attacked(Noise(scale=3.0), LocalResult(change, RESULT.statistics), received).weights
    ratio = np.dot(noisy, noisy) / np.dot(change, change)
    assert ratio == pytest.approx(9.0, rel=5.0 * np.sqrt(2.0 / count))
    assert abs(np.corrcoef(noisy, change)[0, 1]) < 5.0 / np.sqrt(count)


def test_lying_statistics_leave_the_model_alone() -> None:
    lie = attacked(LyingStatistics(factor=10.0))
    assert lie.statistics == LocalStatistics(10.0, 20.0, 30.0, 40.0)
    assert lie.weights is RESULT.weights


def test_attackers_are_listed_or_drawn_and_more_include_the_ones_before() -> None:
    drawn = [attackers(3, 10, count) for count in range(11)]
    assert [len(one) for one in drawn] == list(range(11))
    assert all(fewer < more for fewer, more in itertools.pairwise(drawn))
    assert attackers(3, 10, [2, 5]) == {2, 5}
    assert len({attackers(seed, 10, 3) for seed in range(5)}) > 1


def test_only_attackers_attack() -> None:
    """With raw uploads and one attacker that scales by 0, its change is 0, and the others are as they were."""
    settings = ["policy.name=no-quantization", "federation.rounds=1", "aggregation.mean.most_norm=0"]
    honest = simulate(tiny_scenario(*settings), dataset=tiny_dataset())
    one = ["attack.kind=scaled-update", "attack.scaled_update.scale=0", "attack.clients=[2]"]
    hostile = simulate(tiny_scenario(*settings, *one), dataset=tiny_dataset())
    every = simulate(tiny_scenario(*settings, *one, "attack.clients=5"), dataset=tiny_dataset())
    sizes = honest.dataset_sizes
    still, moved = every.weights, honest.weights - every.weights
    assert np.abs(hostile.weights - still).max() < np.abs(moved).max()
    assert 0.0 < np.linalg.norm(honest.weights - hostile.weights) < np.linalg.norm(moved)
    assert sizes.sum() > 0


def test_settings_name_the_attack() -> None:
    scenario = load_scenario("quick", ["attack.kind=sign-flip", "attack.sign_flip.scale=7", "attack.clients=3"])
    assert build_attack(scenario).options.scale == 7
    with pytest.raises(ConfigError, match="attack 'gossip' is not one of none, scaled-update"):
        build_attack(load_scenario("quick", ["attack.kind=gossip"]))
    with pytest.raises(ConfigError, match=r"attack.clients = 11, but federation.num_clients = 10: take fewer"):
        load_scenario("quick", ["attack.kind=noise", "attack.clients=11"])
    with pytest.raises(ConfigError, match=r"attack.clients names client 10, but there are clients 0 to 9"):
        load_scenario("quick", ["attack.clients=[10]"])
