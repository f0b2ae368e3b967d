"""The bank of scenarios: what is drawn, and the clients that it plays."""

from dataclasses import replace
from itertools import islice, product
from typing import Any

import numpy as np
import pytest

from qccf.core.errors import InfeasibleError
from qccf.core.units import db_to_linear, dbm_to_w
from qccf.quantization.registry import CODECS, build_codec
from qccf.rounds.round import OpenRound
from qccf.wireless.path_loss.registry import PATH_LOSSES
from support import scenario_bank
from support.scenario_bank import (
    ROUNDS,
    SAMPLE_SIZE,
    BankScenario,
    BankSource,
    ClientModel,
    named_scenarios,
    scenarios,
    vector_shape,
)


def bank_source(codec: str = "model", **clients: Any) -> tuple[BankScenario, BankSource]:
    one = next(one for one in named_scenarios() if one.name == "default/model")
    one = replace(one, settings=one.settings | {"codec": {"name": codec}}, clients=ClientModel(**clients))
    return one, BankSource(one.scenario(), one.clients, one.world().dataset_sizes)


def test_a_bank_is_the_same_for_the_same_seed_and_its_beginning_does_not_depend_on_its_length() -> None:
    assert list(scenarios(3, 6)) == list(islice(scenarios(3, 9), 6))
    assert list(scenarios(3, 6)) != [replace(one, name=one.name.replace("4-", "3-")) for one in scenarios(4, 6)]


def test_every_codec_meets_every_path_loss_and_all_values_are_in_their_ranges() -> None:
    bank = list(scenarios(0, len(CODECS) * len(PATH_LOSSES)))
    pairs = {(one.settings["codec"]["name"], one.settings["cell"]["path_loss"]) for one in bank}
    assert pairs == set(product(CODECS, PATH_LOSSES)), "every built-in codec and path loss"
    for one in bank:
        clients, channels = one.settings["federation"]["num_clients"], one.settings["radio"]["num_channels"]
        assert 2 <= clients <= 200
        assert 0.1 * clients - 0.5 <= channels <= 2 * clients
        assert 1e4 <= one.settings["learning"]["num_parameters"] <= 1e8
        assert 0.01 <= one.settings["device"]["deadline_s"] <= 60.0
        assert one.settings["federation"]["rounds"] == ROUNDS
        one.scenario()


def test_a_refused_draw_is_drawn_again_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []
    whole = BankScenario.world

    def refuse_two(one: BankScenario) -> Any:
        if len(refused) < 2:
            refused.append(one.name)
            raise InfeasibleError("no client can ever upload")
        return whole(one)

    monkeypatch.setattr(BankScenario, "world", refuse_two)
    assert [one.redraws for one in scenarios(0, 2)] == [2, 0]


def test_the_bandwidth_gives_the_median_client_the_wanted_rate() -> None:
    scenario = next(iter(named_scenarios())).scenario({"cell.path_loss": "log-distance"})
    for wanted_bps in (1e6, 1e8, 4e9):
        found = scenario_bank._bandwidth(scenario, wanted_bps)
        median_m = np.sqrt(0.5 * (500.0**2 + 10.0**2))
        loss_db = 128.1 + 37.6 * np.log10(median_m / 1e3)
        noise_w = dbm_to_w(-174.0) * found["bandwidth_hz"]
        snr = 0.2 * db_to_linear(found["gain_db"] - loss_db) / noise_w
        assert found["bandwidth_hz"] * np.log2(1.0 + snr) == pytest.approx(wanted_bps, rel=2e-3)
    assert found["bandwidth_hz"] <= 1e9
    assert found["gain_db"] > 0.0  # a gigahertz is not enough for the last rate


@pytest.mark.parametrize("codec_name", ["model", "update+block", "update+entropy"])
@pytest.mark.parametrize("num_bits", [1, 3])
def test_the_errors_of_a_shape_are_those_of_the_codec(codec_name: str, num_bits: int) -> None:
    """Encode and decode many times; the mean is within five standard errors."""
    shape = vector_shape(codec_name, 5.0, 0)
    codec = build_codec(codec_name, SAMPLE_SIZE, [SAMPLE_SIZE])
    values = np.random.default_rng(0).standard_t(5.0, SAMPLE_SIZE)
    vector = (values / np.sqrt(np.mean(values**2))).astype(np.float32)
    seen = [np.sum((codec.decode(codec.encode(vector, num_bits, key), num_bits) - vector) ** 2.0) for key in range(30)]
    standard_error = np.std(seen, ddof=1) / np.sqrt(len(seen))
    assert abs(np.mean(seen) - SAMPLE_SIZE * shape.errors[num_bits - 1]) < 5.0 * standard_error
    assert shape.largest == pytest.approx(np.abs(vector).max())
    if shape.bits is not None:
        sizes = [codec.size_bits(codec.encode(vector, num_bits, key)) for key in range(3)]
        assert SAMPLE_SIZE * shape.bits[num_bits - 1] == pytest.approx(np.mean(sizes), rel=0.02)


def test_gradients_fall_and_weights_grow_as_the_model_says() -> None:
    _, source = bank_source(
        "update", gradient_norm_sq=2.0, gradient_fall=1e-3, variance_ratio=3.0, weight_std=0.1, weight_growth=2.0
    )
    first, last = source.values(0), source.values(ROUNDS - 1)
    assert first.gradient_norms_sq == pytest.approx(2.0)
    assert last.gradient_norms_sq == pytest.approx(2e-3)
    assert first.gradient_variances == pytest.approx(6.0)
    assert last.gradient_variances == pytest.approx(6.0)
    assert last.weight_ranges == pytest.approx(2.0 * first.weight_ranges)
    assert last.errors == pytest.approx(1e-3 * first.errors)  # of an update
    _, source = bank_source("model", gradient_fall=1e-3, weight_growth=2.0, variance_falls=True)
    assert source.values(ROUNDS - 1).errors == pytest.approx(4.0 * source.values(0).errors)
    assert source.values(ROUNDS + 5).errors == pytest.approx(4.0 * source.values(0).errors)
    assert source.values(ROUNDS - 1).gradient_variances == pytest.approx(1e-3)


def test_an_update_has_its_share_of_the_squared_norm_of_the_steps() -> None:
    """With one bit of an update of mean square s² the table is that of the shape times s²·Z."""
    one, source = bank_source("update", gradient_norm_sq=4.0, update_share=0.25)
    learning = one.scenario().learning
    norm_sq = 0.25 * (learning.learning_rate * learning.local_updates) ** 2 * 4.0
    shapes = [vector_shape("update", 5.0, seed).errors[0] * norm_sq for seed in range(scenario_bank.NUM_SHAPES)]
    assert all(any(np.isclose(error, shape) for shape in shapes) for error in source.values(0).errors[:, 0])


def test_an_upload_has_its_own_size_and_reports_what_it_measured() -> None:
    one, source = bank_source("update+entropy", size_noise=0.05)
    values = source.values(7)
    assert values.bits is not None
    count = one.scenario().federation.num_clients
    bits = np.full(count, 2)
    decision: Any = type("Chosen", (), {"raw": False, "num_bits": bits})()
    trained = np.arange(count) < 3
    opened = OpenRound(observation=None, decision=decision, to_train=trained, truth=None)  # type: ignore[arg-type]
    state: Any = type("State", (), {"round_index": 7})()
    uploads = source.uploads(state, opened)
    assert sorted(uploads) == [0, 1, 2]
    assert uploads[1].size_bits == values.bits[1, 1]
    assert uploads[1].statistics.gradient_norm_sq == values.gradient_norms_sq[1]
    assert uploads[1].forecast is not None
    assert np.array_equal(uploads[1].forecast.bits, values.bits[1])
    margin = 1.0 + one.scenario().codec.safety_margin
    first = source.values(0).bits
    assert first is not None
    assert np.allclose(source.initial_statistics().upload_bits, margin * first)
    assert 0.01 < np.std(np.log(values.bits[:, 0] / first[:, 0])) < 0.2


def test_lognormal_sizes_have_the_mean_and_the_deviation_of_the_settings() -> None:
    scenario = next(iter(named_scenarios())).scenario(
        {"federation.num_clients": 40_000, "data.dataset_size_std": 600.0, "data.dataset_size_min": 1}
    )
    sizes = scenario_bank._dataset_sizes(scenario, ClientModel(lognormal_sizes=True))
    assert sizes.mean() == pytest.approx(1200.0, abs=5 * 600.0 / 200.0)
    assert sizes.std() == pytest.approx(600.0, rel=0.05)
    assert np.median(sizes) < 1150.0  # skewed


def test_a_longer_vector_of_the_sparse_codec_errs_more_per_value_and_takes_fewer_bits() -> None:
    """Against the codec itself, on a vector of 16 times the length."""
    count = 16 * SAMPLE_SIZE
    one = next(one for one in named_scenarios() if one.name == "default/model")
    scenario = one.scenario({"codec.name": "sparse", "learning.num_parameters": count})
    now = BankSource(scenario, ClientModel(tail=5.0), np.full(10, 100.0)).values(0)
    values = np.random.default_rng(1).standard_t(5.0, count)
    power = scenario.learning.learning_rate * scenario.learning.local_updates
    values *= power * np.sqrt(0.5 / count / np.mean(np.square(values)))
    forecast = build_codec("sparse", count, [count]).forecast(values.astype(np.float32))
    assert now.bits is not None
    assert now.errors[0, :3] == pytest.approx(forecast.errors[:3], rel=0.1)
    assert now.bits[0, :3] == pytest.approx(forecast.bits[:3], rel=0.25)
