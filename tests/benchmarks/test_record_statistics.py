"""Recordings of training: what is kept, and that measuring changes nothing."""

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import record_statistics
from benchmarks.record_statistics import RecordingUploads, record
from qccf.rounds.ledger import Ledger
from qccf.rounds.round import first_state, run_round
from qccf.rounds.setup import build_rules, scenario_codec
from qccf.rounds.world import build_world
from qccf.runtimes.clients import Clients
from qccf.runtimes.simulator import simulate
from tests.helpers.tiny import tiny_dataset, tiny_scenario


def test_measuring_everybody_does_not_change_the_training() -> None:
    """Half of the clients take part in a round; those who sit out are measured as well."""
    scenario = tiny_scenario("federation.rounds=3", "control.share=0.5", "codec.name=update")
    world = build_world(scenario, 0)
    with Clients(scenario, tiny_dataset(), world.dataset_sizes, 0) as clients:
        codec = scenario_codec(scenario, clients.layer_sizes())
        rules = build_rules(scenario, codec)
        weights = clients.initial_weights()
        source = RecordingUploads(clients, rules, weights, {"update": codec}, {1, 2, 3})
        state, ledger = first_state(rules, source, weights), Ledger()
        while state.round_index < 3:
            state = run_round(state, rules, world, source, ledger)
    usual = simulate(scenario, dataset=tiny_dataset())
    assert usual.client_columns["participated"].mean() < 1.0
    np.testing.assert_array_equal(state.weights, usual.weights)
    assert sorted(source.points) == [0, 1, 2, 3]
    assert all(len(measured) == 5 for measured in source.points.values())


def test_a_recording_keeps_the_rounds_and_codecs_that_were_asked_for() -> None:
    small = ["federation.num_clients=2", "data.dataset_size_min=1", "evaluation.samples=10"]
    found = record("quick", 4, 20, None, changes=small, every=2, codec_names=["model"])
    assert found.rounds.tolist() == [0.0, 2.0, 4.0]
    assert list(found.codecs) == ["model"]
    assert found.series["loss"].shape == (3, 2)
    assert found.codecs["model"].errors.shape[:2] == (3, 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--add", "--codecs", "model"], "--add compares the two trainings by update+entropy"),
        (["--set", "learning.learning_rate=0.5"], "they cannot change"),
    ],
)
def test_mistakes_are_found_before_the_training(
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(sys, "argv", ["record_statistics", "quick", "--out", str(tmp_path / "x.npz"), *arguments])
    with pytest.raises(SystemExit):
        record_statistics.main()
    assert words in capsys.readouterr().err
