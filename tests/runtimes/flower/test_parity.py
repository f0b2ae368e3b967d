"""The simulator and a Flower federation make the same decisions and end with the same model."""

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from qccf.core.streams import stream
from qccf.flower import client_app, server_app
from qccf.learning.aggregation.registry import AGGREGATION_RULES
from qccf.learning.server.registry import SERVER_OPTIMIZERS
from qccf.rounds.ledger import MEASURED
from qccf.rounds.run_folder import read_run
from qccf.runtimes.flower import mod
from qccf.runtimes.flower import run_config as configs
from qccf.runtimes.simulator import simulate
from tests.helpers.checkpoints import checkpoint_arrays
from tests.helpers.loop_grid import LoopGrid
from tests.helpers.tiny import SETTINGS, tiny_dataset, tiny_scenario

OTHER = {"header", "checksum", "rounds/test_accuracy", "rounds/test_loss", *(f"clients/{name}" for name in MEASURED)}
"""What is not the same: when a model is evaluated, and what clients measure."""


@pytest.fixture(autouse=True)
def _tiny_data(monkeypatch: pytest.MonkeyPatch):
    configs.cached_clients.cache_clear()
    monkeypatch.setattr(configs, "config_dataset", lambda *_: tiny_dataset())
    yield
    configs.cached_clients.cache_clear()


def federate(out, *settings: str, **config) -> LoopGrid:
    """The ready server app against the ready client app."""
    run_config = {
        "scenario": "femnist",
        "set": " ".join([*SETTINGS, *settings]),
        "out": str(out),
        "num-clients": 5,
        **config,
    }
    grid = LoopGrid(client_app(), range(5), run_config)
    server_app()(grid, Context(1, 0, {}, RecordDict(), run_config))
    return grid


@pytest.mark.parametrize(
    ("policy", "codec", "form", "solver"),
    [
        ("qccf", "model", "scale-free", "assignment"),
        ("qccf", "update+entropy", "scale-free", "assignment"),
        ("qccf", "update+entropy", "paper", "assignment"),
        ("qccf", "update+block+entropy", "paper", "genetic"),
        ("qccf", "model", "paper", "exhaustive"),
        ("principle", "block", "paper", "assignment"),
        ("no-quantization", "model", "paper", "assignment"),
    ],
)
def test_same_decisions_same_model(policy: str, codec: str, form: str, solver: str, tmp_path) -> None:
    settings = [f"codec.name={codec}", f"policy.name={policy}", "federation.seed=2", "radio.num_channels=4"]
    settings += [f"control.form={form}", f"control.solver={solver}"]
    settings += ["control.genetic.generations=5"] * (solver == "genetic")
    simulated = simulate(tiny_scenario(*settings), dataset=tiny_dataset(), out=tmp_path / "simulated")
    grid = federate(tmp_path / "flower", *settings)
    ours, theirs = (checkpoint_arrays(tmp_path / kind / "checkpoints") for kind in ("simulated", "flower"))
    for name in sorted(set(ours) - OTHER):
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    assert simulated.clients["participated"].sum() > 8
    worked = [client for client, message in grid.sent if message.metadata.group_id.startswith("train")]
    assert len(worked) == simulated.clients["arrived"].sum()


def test_estimates_of_a_changing_cell_are_the_same(tmp_path) -> None:
    settings = ["radio.estimate_age=1", "radio.estimate_error_db=2", "radio.fading_correlation=0.9"]
    settings += ["cell.walk_step_m=20", "cell.neighbours=3", "radio.rate=shannon-gap", "federation.rounds=4"]
    simulated = simulate(tiny_scenario(*settings), dataset=tiny_dataset(), out=tmp_path / "simulated")
    federate(tmp_path / "flower", *settings)
    ours, theirs = (checkpoint_arrays(tmp_path / kind / "checkpoints") for kind in ("simulated", "flower"))
    for name in sorted(set(ours) - OTHER):
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    assert 0 < simulated.clients["arrived"].sum() < simulated.clients["participated"].sum()


def test_both_stop_at_the_same_accuracy(tmp_path) -> None:
    settings = ["evaluation.until_accuracy=0.6", "evaluation.every=2", "evaluation.averaged=2", "federation.rounds=20"]
    simulated = simulate(tiny_scenario(*settings), dataset=tiny_dataset(), out=tmp_path / "simulated")
    federate(tmp_path / "flower", *settings)
    theirs = read_run(tmp_path / "flower")
    assert 4 <= simulated.num_rounds == theirs.num_rounds < 20
    np.testing.assert_array_equal(simulated.accuracy, theirs.accuracy)
    assert theirs.summary["stopped_at_accuracy"] == 0.6


@pytest.mark.parametrize("optimizer", list(SERVER_OPTIMIZERS))
@pytest.mark.parametrize("codec", ["model", "update+entropy"])
def test_the_server_optimizer_and_its_state_are_the_same_to_the_bit(optimizer: str, codec: str, tmp_path) -> None:
    settings = [f"server.optimizer={optimizer}", f"codec.name={codec}", "learning.batch_size=7", "federation.rounds=4"]
    settings += ["learning.logit_adjustment=dataset", "learning.adjustment_strength=0.5", "learning.decay=0.9"]
    settings += ["server.averaging=0.6"]
    simulated = simulate(tiny_scenario(*settings), dataset=tiny_dataset(), out=tmp_path / "simulated")
    federate(tmp_path / "flower", *settings)
    ours, theirs = (checkpoint_arrays(tmp_path / kind / "checkpoints") for kind in ("simulated", "flower"))
    states = {name for name in ours if name.startswith("optimizer/")}
    assert bool(states) == (optimizer in ("fedavgm", "fedadam", "fedyogi"))
    states |= {"average/total", "average/weight"}
    assert not np.array_equal(simulated.weights, ours["weights"]), "the average is delivered"
    theirs_last = read_run(tmp_path / "flower").summary
    assert theirs_last["test_loss"] == simulated.summary["test_loss"], "and evaluated"
    for name in states | {"weights", "clients/num_bits", "clients/payload_bits", "rounds/energy_j"}:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


@pytest.mark.parametrize(
    ("policy", "codec"), [("qccf", "model"), ("qccf", "update+entropy"), ("no-quantization", "model")]
)
def test_a_model_with_buffers_and_dropout_is_the_same_to_the_bit(policy: str, codec: str, tmp_path) -> None:
    settings = ["learning.model=tests.helpers.own_models:Dropped", "federation.rounds=3"]
    settings += [f"codec.name={codec}", f"policy.name={policy}"]
    simulated = simulate(tiny_scenario(*settings), dataset=tiny_dataset(), out=tmp_path / "simulated")
    federate(tmp_path / "flower", *settings)
    ours, theirs = (checkpoint_arrays(tmp_path / kind / "checkpoints") for kind in ("simulated", "flower"))
    for name in sorted(set(ours) - OTHER):
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    assert simulated.clients["arrived"].sum() > 5
    assert len(theirs["weights"]) == simulated.scenario.learning.num_parameters + 32


@pytest.mark.parametrize("rule", list(AGGREGATION_RULES))
@pytest.mark.parametrize("attack", ["none", "scaled-update", "label-flip"])
def test_the_aggregation_rule_its_state_and_attackers_are_the_same_to_the_bit(rule: str, attack: str, tmp_path) -> None:
    settings = [f"aggregation.rule={rule}", f"attack.kind={attack}", "codec.name=update+entropy", "attack.clients=2"]
    settings += ["control.energy_weight=0.05", "federation.rounds=4"]
    simulate(tiny_scenario(*settings), dataset=tiny_dataset(), out=tmp_path / "simulated")
    federate(tmp_path / "flower", *settings)
    ours, theirs = (checkpoint_arrays(tmp_path / kind / "checkpoints") for kind in ("simulated", "flower"))
    states = {name for name in ours if name.startswith("rule/")}
    assert states, "every rule knows the usual length, for rounds in which few arrive"
    for name in states | {"weights", "clients/kept", "clients/num_bits", "clients/payload_bits", "rounds/energy_j"}:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


def last_weights(out) -> np.ndarray:
    return np.load(sorted((out / "checkpoints").iterdir())[-1], allow_pickle=False)["weights"]


@pytest.mark.parametrize("attack", ["none", "scaled-update"])
@pytest.mark.parametrize("policy", ["qccf", "no-quantization"])
def test_clipping_and_noise_are_the_same_with_the_same_noise(
    policy: str, attack: str, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ["privacy.clip_norm=0.5", "privacy.noise_multiplier=0.01", "federation.rounds=3", "attack.clients=[1]"]
    settings += [f"policy.name={policy}", f"attack.kind={attack}", "codec.name=update", "learning.batch_size=7"]
    simulated = simulate(tiny_scenario(*settings), dataset=tiny_dataset(), out=tmp_path / "simulated")

    def known(instruction) -> np.random.Generator:
        where = ["probe"] if instruction.act == "probe" else ["batches", instruction.round_index]
        return stream(0, "privacy", instruction.client, *where)

    monkeypatch.setattr(mod, "secret_rng", known)
    federate(tmp_path / "flower", *settings)
    theirs = read_run(tmp_path / "flower")
    np.testing.assert_array_equal(simulated.weights, last_weights(tmp_path / "flower"))
    assert np.isnan(theirs.by_round("loss")).all()
    assert theirs.summary["privacy"] == simulated.summary["privacy"]


def test_the_noise_of_a_flower_client_cannot_be_computed_again(tmp_path) -> None:
    settings = ["privacy.clip_norm=0.5", "privacy.noise_multiplier=0.01", "federation.rounds=1"]
    for name in ("one", "two"):
        federate(tmp_path / name, *settings)
    assert last_weights(tmp_path / "one").tobytes() != last_weights(tmp_path / "two").tobytes()
