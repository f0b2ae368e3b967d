"""A run's numbers, and what an empty round or a lost upload does to it."""

import json
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from examples.custom_codec import Signs
from qccf.core.errors import ConfigError, InfeasibleError
from qccf.learning.results import LocalResult
from qccf.policies.registry import POLICIES
from qccf.quantization.registry import CODECS
from qccf.rounds.setup import with_counted_parameters
from qccf.rounds.world import build_world
from qccf.runtimes import clients
from qccf.runtimes.clients import Clients, resolve_device, resolve_precision
from qccf.runtimes.simulator import simulate
from qccf.settings.loading import load_scenario
from tests.helpers.tiny import tiny_dataset, tiny_scenario


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_trains_and_its_ledger_adds_up(policy: str) -> None:
    run = simulate(tiny_scenario(), policy, dataset=tiny_dataset())
    rounds, clients = run.rounds, run.clients
    assert len(rounds) == 8
    assert len(clients) == 8 * 5
    energy = (clients["compute_energy_j"] + clients["upload_energy_j"]).groupby(clients["round"]).sum()
    np.testing.assert_allclose(rounds["energy_j"], energy)
    np.testing.assert_allclose(rounds["cumulative_energy_j"], rounds["energy_j"].cumsum())
    assert (rounds["participants"] == clients["participated"].groupby(clients["round"]).sum()).all()
    assert run.summary["energy_j"] == pytest.approx(rounds["energy_j"].sum())
    assert run.finished
    assert run.summary["synthetic"]
    if policy != "principle":
        assert run.summary["test_accuracy"] > 0.4
        assert rounds["train_loss"].iloc[-1] < rounds["train_loss"].iloc[0]


def test_an_empty_round_keeps_the_model_and_costs_nothing() -> None:
    run = simulate(tiny_scenario("federation.rounds=1"), "tests.helpers.tiny:Nobody", dataset=tiny_dataset())
    assert run.rounds["participants"].tolist() == [0]
    assert run.summary["energy_j"] == 0.0
    assert run.summary["mean_bits"] is None
    scenario = tiny_scenario()
    with Clients(scenario, tiny_dataset(), build_world(scenario, 0).dataset_sizes, 0) as clients:
        np.testing.assert_array_equal(run.weights, clients.initial_weights())


@pytest.mark.parametrize("optimizer", [(), ("learning.momentum=0.5",)])
def test_a_learning_rate_that_decays(optimizer: tuple[str, ...]) -> None:
    """In round 3 it is η·0.5³, and gradients are told in units of η, so that η·τ·|G| stays the length of an update."""

    def trained(*settings: str) -> LocalResult:
        scenario = tiny_scenario(*settings, *optimizer)
        sizes = build_world(scenario, 0).dataset_sizes
        with Clients(scenario, tiny_dataset(), sizes, 0) as clients:
            start = clients.initial_weights()
            return clients.train([1], start, 3, lambda _, result: result)[1]

    decayed, same = trained("learning.learning_rate=0.08", "learning.decay=0.5"), trained("learning.learning_rate=0.01")
    np.testing.assert_array_equal(decayed.weights, same.weights)
    ours, theirs = decayed.statistics, same.statistics
    assert ours.gradient_norm_sq == pytest.approx(theirs.gradient_norm_sq / 64.0)
    assert ours.gradient_variance == pytest.approx(theirs.gradient_variance / 64.0)
    assert (ours.loss, ours.weight_range) == (theirs.loss, theirs.weight_range)


def test_lost_uploads_are_paid_for_and_not_aggregated() -> None:
    """Principle at 16 bits: nobody makes the deadline, so the model stays and the energy is spent."""
    run = simulate(
        tiny_scenario("principle.initial_bits=16", "radio.gain_db=-8", "federation.rounds=2"),
        "principle",
        dataset=tiny_dataset(),
    )
    assert run.rounds["missed"].tolist() == [5, 5]
    assert run.rounds["arrived"].tolist() == [0, 0]
    assert run.rounds["train_loss"].isna().all()
    assert run.summary["energy_j"] > 0.0
    assert run.rounds["test_accuracy"].nunique() == 1


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_trains(codec: str) -> None:
    run = simulate(tiny_scenario(f"codec.name={codec}"), "qccf", dataset=tiny_dataset())
    assert run.summary["codec"] == codec
    assert run.summary["test_accuracy"] > 0.4
    sent = run.clients[run.clients["arrived"]]
    assert len(sent) > 0
    if codec.endswith(("entropy", "sparse")):
        assert (sent["payload_bits"] % 8 == 0).all()
        assert (sent["payload_bits"] != sent["expected_bits"]).any()
    else:
        assert (sent["payload_bits"] == sent["expected_bits"]).all()
        ranges = 6 if codec.endswith("block") else 1  # 650 values in blocks of 128
        assert (sent["payload_bits"] == 650 * (sent["num_bits"] + 1) + 32 * ranges).all()
    rate, power = sent["rate_bps"], run_power_w()
    np.testing.assert_allclose(sent["upload_energy_j"], power * sent["payload_bits"] / rate)


def run_power_w() -> float:
    return tiny_scenario().radio.transmit_power_w


def test_an_upload_that_turns_out_too_large_misses_its_deadline() -> None:
    """Everybody plans for a quarter of what it sends, at a frequency that leaves no room for more."""
    codec, paper = "codec.name=tests.helpers.tiny:Optimist", "control.form=paper"
    scenario = tiny_scenario(codec, paper, "federation.rounds=3", "radio.bandwidth_hz=1e4")
    run = simulate(scenario, "qccf", dataset=tiny_dataset())
    late = run.clients[run.clients["missed"]]
    assert len(late) > 0
    assert (late["payload_bits"] > 3 * late["expected_bits"]).all()
    assert not late["arrived"].any()
    np.testing.assert_allclose(late["latency_s"], scenario.device.deadline_s)
    assert late["loss"].isna().all()
    assert (late["upload_energy_j"] > 0).all()


def test_the_floor_is_computing_alone_by_those_who_took_part() -> None:
    run = simulate(tiny_scenario("radio.num_channels=2"), "qccf", dataset=tiny_dataset())
    d = tiny_scenario().device
    sizes = run.clients["dataset_size"][run.clients["participated"]]
    assert 0 < len(sizes) < len(run.clients)
    by_hand = (d.energy_coefficient * 2 * d.cycles_per_sample * sizes * d.frequency_min_hz**2).sum()
    assert run.summary["floor_j"] == pytest.approx(by_hand)


def test_evaluation_can_be_rarer_but_the_last_round_counts() -> None:
    run = simulate(tiny_scenario("evaluation.every=3"), "qccf", dataset=tiny_dataset())
    seen = run.rounds["test_accuracy"].notna()
    assert (run.rounds["round"][seen] + 1).tolist() == [3, 6, 8]


def test_callbacks_see_every_round() -> None:
    seen = []
    simulate(tiny_scenario(), "qccf", dataset=tiny_dataset(), callbacks=[lambda p: seen.append(p.ledger.last["round"])])
    assert seen == list(range(8))


def test_the_folder_can_be_read_back_and_run_again(tmp_path: Path) -> None:
    run = simulate(tiny_scenario(), "same-size", seed=4, out=tmp_path, dataset=tiny_dataset())
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "rounds.parquet"), run.rounds)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "clients.parquet"), run.clients)
    written = json.loads((tmp_path / "summary.json").read_text())
    assert set(written.pop("digests")) >= {"rounds.parquet", "clients.parquet", "statistics.parquet"}
    assert written == run.summary
    back = load_scenario(tmp_path / "scenario.toml")
    assert back.policy.name == "same-size"
    assert back.federation.seed == 4
    again = simulate(back, dataset=tiny_dataset())
    pd.testing.assert_frame_equal(again.rounds, run.rounds, check_exact=True)


def test_seeds_differ() -> None:
    first, second = (simulate(tiny_scenario(), "qccf", seed=s, dataset=tiny_dataset()) for s in (0, 1))
    assert first.summary["energy_j"] != second.summary["energy_j"]


@pytest.mark.parametrize("works", [True, False])
def test_precision(works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_multiplies_bf16", lambda: works)
    assert resolve_precision("auto", "cpu") == resolve_precision("fp32", "cpu") == "fp32"
    if works:
        assert resolve_precision("bf16", "cpu") == "bf16"
    else:
        with pytest.raises(ConfigError, match='dies on this processor: use "fp32"'):
            resolve_precision("bf16", "cpu")


@pytest.mark.parametrize("status", [0, -signal.SIGILL])
def test_another_process_tries_amx(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    monkeypatch.setattr(clients.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, status))
    clients._multiplies_bf16.cache_clear()
    try:
        assert clients._multiplies_bf16() is (status == 0)
    finally:
        clients._multiplies_bf16.cache_clear()


def test_device() -> None:
    assert resolve_device("cpu") == "cpu"
    if resolve_device("auto") == "cpu":
        with pytest.raises(ConfigError, match="no CUDA device"):
            resolve_device("cuda")


def test_a_codec_of_ones_own() -> None:
    name = "codec.name=examples.custom_codec:Signs"
    run = simulate(tiny_scenario(name), "qccf", dataset=tiny_dataset())
    assert run.summary["test_accuracy"] > 0.3
    assert run.clients["arrived"].mean() > 0.9
    assert (run.clients["payload_bits"][run.clients["arrived"]] == 650 + 2 * 32).all()


class Large(Signs):
    """A codec whose smallest upload is a megabit."""

    def __init__(self, num_parameters, layer_sizes):
        super().__init__(num_parameters, layer_sizes)
        self.least_upload_bits = 1e6


@pytest.mark.parametrize("model", ["tests.helpers.tiny:Tiny", "tests.helpers.own_models:Normed"])
def test_a_codec_whose_smallest_upload_never_arrives_is_refused_with_a_remedy(model: str) -> None:
    """It used to be accepted: nobody trained, at no energy."""
    settings = [f"codec.name={__name__}:Large", f"learning.model={model}"]
    with pytest.raises(InfeasibleError, match=r"smallest upload of codec '.*:Large' \(1,00[01],") as caught:
        simulate(tiny_scenario(*settings), "qccf", dataset=tiny_dataset())
    enough = re.findall(r"radio\.bandwidth_hz = ([\d.e+]+)", str(caught.value))[-1]
    bandwidth = f"radio.bandwidth_hz={float(enough)}"
    build_world(with_counted_parameters(tiny_scenario(*settings, bandwidth), always=True), 0)


def test_a_size_that_does_not_grow_with_the_bits_must_be_listed() -> None:
    name = "codec.name=tests.conformance.test_codecs:AsItIs"
    with pytest.raises(ConfigError, match=r"states 0·q \+ 20800 bits, but an affine size grows"):
        simulate(tiny_scenario(name, "radio.bandwidth_hz=3e5"), "qccf", dataset=tiny_dataset())
