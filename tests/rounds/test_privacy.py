"""Clipping and noise by hand, and ε against the formula of the normal mechanism."""

import builtins
import math

import numpy as np
import pytest
from scipy import optimize, stats

from qccf.core.errors import ConfigError
from qccf.learning.results import LocalResult, LocalStatistics
from qccf.rounds.privacy import (
    Privacy,
    check_privacy,
    client_privacy,
    privacy_sentence,
    privacy_summary,
    privatised,
    unknown_for_models,
)
from qccf.rounds.setup import check_scenario
from qccf.runtimes.simulator import simulate
from qccf.settings.loading import load_scenario
from tests.helpers.tiny import tiny_dataset, tiny_scenario

ON = ["privacy.clip_norm=0.5", "privacy.noise_multiplier=2.0"]
BLIND = ["aggregation.mean.most_norm=0", "policy.name=fixed-bits", "codec.name=update"]
RECEIVED = np.array([1.0, 2.0], dtype=np.float32)
STATISTICS = LocalStatistics(5.0, 6.0, 7.0, 8.0)


def exact_epsilon(deviation: float, delta: float) -> float:
    """ε of one normal mechanism of sensitivity 1 (Balle and Wang, ICML 2018, Theorem 8)."""

    def excess(epsilon: float) -> float:
        a, b = 1.0 / (2.0 * deviation), epsilon * deviation
        return stats.norm.cdf(a - b) - math.exp(epsilon) * stats.norm.cdf(-a - b) - delta

    return optimize.brentq(excess, 0.0, 500.0, xtol=1e-12)


def private(change, privacy: Privacy, seed: int = 0) -> LocalResult:
    result = LocalResult((RECEIVED + np.array(change)).astype(np.float32), STATISTICS)
    return privatised(result, RECEIVED, privacy, np.random.default_rng(seed))


def test_a_long_change_is_clipped_and_a_short_one_is_not() -> None:
    np.testing.assert_allclose(private([3.0, 4.0], Privacy(1.0, 0.0, 1.0)).weights, [1.6, 2.8], rtol=1e-6)
    np.testing.assert_allclose(private([0.3, 0.4], Privacy(1.0, 0.0, 1.0)).weights, [1.3, 2.4], rtol=1e-6)
    np.testing.assert_allclose(private([0.0, 0.0], Privacy(1.0, 0.0, 1.0)).weights, [1.0, 2.0])
    np.testing.assert_allclose(private([0.3, 0.4], Privacy(0.25, 0.0, 1.0)).weights, [1.15, 2.2], rtol=1e-6)


def test_what_is_reported_follows_from_the_noisy_change_alone() -> None:
    one = private([3.0, 4.0], Privacy(1.0, 0.25, 2.0))
    noisy = one.weights.astype(float) - RECEIVED
    assert one.statistics.gradient_norm_sq == pytest.approx(np.dot(noisy, noisy) / 4.0, rel=1e-5)
    assert one.statistics.gradient_variance == 0.0
    assert one.statistics.weight_range == np.abs(one.weights).max()
    assert math.isnan(one.statistics.loss)
    slower = private([3.0, 4.0], Privacy(1.0, 0.25, 6.0))
    assert slower.statistics.gradient_norm_sq == pytest.approx(one.statistics.gradient_norm_sq / 9.0)


def test_noise_has_the_stated_deviation_in_each_value() -> None:
    count = 40_000
    result = LocalResult(np.zeros(count, dtype=np.float32), STATISTICS)
    noisy = privatised(result, np.zeros(count, dtype=np.float32), Privacy(1.0, 0.3, 1.0), np.random.default_rng(0))
    assert np.std(noisy.weights) == pytest.approx(0.3, rel=5.0 / math.sqrt(2.0 * count))
    assert abs(np.mean(noisy.weights)) < 5.0 * 0.3 / math.sqrt(count)


def test_an_attacker_obeys_nothing_and_without_privacy_nothing_changes() -> None:
    hostile = LocalResult(RECEIVED + 9, STATISTICS, hostile=True)
    assert privatised(hostile, RECEIVED, Privacy(1.0, 1.0, 1.0), np.random.default_rng(0)) is hostile
    assert client_privacy(load_scenario("quick"), 100.0) is None
    scenario = load_scenario("femnist", [*ON, "learning.batch_size=20", "learning.local_epochs=2"])
    assert client_privacy(scenario, 95.0) == Privacy(0.5, 1.0, pytest.approx(0.1 * 2 * 5))


@pytest.mark.parametrize("multiplier", [0.5, 2.0, 30.0])
def test_epsilon_against_the_server_is_that_of_all_uploads_together(multiplier: float) -> None:
    """K uploads of deviation z·C and sensitivity 2·C are one normal mechanism of deviation z/(2·√K)."""
    settings = [*ON, f"privacy.noise_multiplier={multiplier}", "federation.rounds=3", "privacy.delta=1e-4"]
    run = simulate(tiny_scenario(*settings), dataset=tiny_dataset())
    told = run.summary["privacy"]
    most = int(run.by_round("participated").sum(axis=0).max())
    assert told["uploads"] == most + 1
    assert told["epsilon_server"] == pytest.approx(exact_epsilon(multiplier / 2 / math.sqrt(most + 1), 1e-4), rel=1e-6)
    assert told["delta"] == 1e-4


def test_epsilon_against_those_who_see_only_the_models() -> None:
    """The mean of a round has the deviation z·C·√Σw² and the sensitivity 2·C·max w."""
    run = simulate(tiny_scenario(*ON, *BLIND, "federation.rounds=3"), dataset=tiny_dataset())
    total = 0.0
    for arrived, sizes in zip(run.by_round("arrived"), run.by_round("dataset_size"), strict=True):
        weights = sizes[arrived] / sizes[arrived].sum()
        total += (2.0 * weights.max() / (2.0 * math.sqrt((weights**2).sum()))) ** 2
    told = run.summary["privacy"]
    assert told["epsilon_models"] == pytest.approx(exact_epsilon(1.0 / math.sqrt(total), 1e-5), rel=1e-6)
    assert told["epsilon_models"] < told["epsilon_server"]
    assert "against those who see only the models, ε = " in privacy_sentence(told)


def test_epsilon_by_hand_where_some_uploads_do_not_arrive() -> None:
    """Clients of 100 and 300 samples with z = 2: both arrive, then the second alone, then nobody."""
    clients = {
        "round": np.repeat([0, 1, 2], 2),
        "participated": np.array([True, True, False, True, False, True]),
        "arrived": np.array([True, True, False, True, False, False]),
        "dataset_size": np.tile([100, 300], 3),
    }
    scenario = tiny_scenario(*ON, *BLIND)
    told = privacy_summary(scenario, clients)["privacy"]
    assert told["uploads"] == 1 + 3
    total = (2.0 * 0.75 / (2.0 * math.sqrt(0.25**2 + 0.75**2))) ** 2 + (2.0 / 2.0) ** 2
    assert told["epsilon_models"] == pytest.approx(exact_epsilon(1.0 / math.sqrt(total), 1e-5), rel=1e-6)
    nothing = privacy_summary(scenario, clients | {"arrived": np.zeros(6, dtype=bool)})["privacy"]
    assert nothing["epsilon_models"] == 0.0, "models that never change tell nothing"
    assert nothing["epsilon_server"] == told["epsilon_server"]


def test_uploads_of_floats_have_a_known_size_with_any_codec() -> None:
    settings = ["aggregation.mean.most_norm=0", "policy.name=no-quantization", "codec.name=update+entropy"]
    assert unknown_for_models(tiny_scenario(*ON, *settings)) == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("aggregation.mean.most_norm=6", "aggregation.mean.most_norm = 0"),
        ("aggregation.mean.most_norm=1", "aggregation.mean.most_norm = 0"),
        ("aggregation.rule=median", 'aggregation.rule = "mean"'),
        ("server.optimizer=fedexp", "server.optimizer = average"),
        ("policy.name=qccf", "policy.name = fixed-bits"),
        ("codec.name=update+entropy", "codec.name = model"),
    ],
)
def test_where_models_depend_on_single_clients_no_epsilon_is_stated(change: str, words: str) -> None:
    settings = {one.partition("=")[0]: one for one in (*ON, *BLIND)}
    assert unknown_for_models(tiny_scenario(*settings.values())) == ""
    settings[change.partition("=")[0]] = change
    if change.startswith("aggregation.rule"):
        del settings["aggregation.mean.most_norm"]
    assert words in unknown_for_models(tiny_scenario(*settings.values()))


def test_without_noise_there_is_no_epsilon_and_off_is_off() -> None:
    run = simulate(tiny_scenario("privacy.clip_norm=0.5", *BLIND, "federation.rounds=2"), dataset=tiny_dataset())
    assert run.summary["privacy"]["epsilon_server"] is None
    assert run.summary["privacy"]["epsilon_models"] is None
    assert "no finite ε" in privacy_sentence(run.summary["privacy"])
    assert "privacy" not in simulate(tiny_scenario("federation.rounds=1"), dataset=tiny_dataset()).summary


def test_mistakes_get_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="noise_multiplier = 1 protects nobody with clip_norm = 0"):
        load_scenario("quick", ["privacy.noise_multiplier=1"])
    for check in (check_privacy, check_scenario):
        with pytest.raises(ConfigError, match="64 buffer values, such as running averages"):
            check(load_scenario("quick", [*ON]).replaced(learning={"num_buffers": 64}))
    real = builtins.__import__

    def without(name, *more):
        if name == "dp_accounting":
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"pip install 'qccf\[privacy\]'"):
        check_privacy(load_scenario("quick", ON))
    check_privacy(load_scenario("quick"))
