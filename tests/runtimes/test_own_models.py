"""A user's own model in a run: modes, buffers, random layers, and how it may be named."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from qccf.core.errors import ConfigError, RunFolderError
from qccf.rounds.run import Run
from qccf.runtimes.clients import Clients
from qccf.runtimes.simulator import simulate
from tests.helpers import own_models
from tests.helpers.tiny import Tiny, tiny_dataset, tiny_scenario

OWN = "learning.model=tests.helpers.own_models"
FEW = ["federation.rounds=3", "evaluation.samples=300"]


def run(model: str, *settings: str, policy: str | None = None, out: Path | None = None) -> Run:
    return simulate(tiny_scenario(f"{OWN}:{model}", *FEW, *settings), policy, dataset=tiny_dataset(), out=out)


def clients_of(model: str, *settings: str) -> Clients:
    return Clients(tiny_scenario(f"{OWN}:{model}", *settings), tiny_dataset(), np.full(5, 60.0), 0)


@pytest.mark.parametrize("model", ["Normed", "Dropped", "Functional", "Counting"])
def test_the_number_of_workers_changes_nothing(model: str) -> None:
    runs = [run(model, f"execution.workers={workers}") for workers in (1, 2, 3)]
    for other in runs[1:]:
        assert other.weights.tobytes() == runs[0].weights.tobytes()
        np.testing.assert_array_equal(other.accuracy, runs[0].accuracy)
        assert other.summary["test_loss"] == runs[0].summary["test_loss"]


def test_random_layers_draw_from_the_clients_own_stream_and_not_from_the_global_generator() -> None:
    torch.manual_seed(3)
    first = run("Functional")
    after = torch.rand(4)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(4), after), "the host's generator has moved"
    torch.manual_seed(77)
    assert run("Functional").weights.tobytes() == first.weights.tobytes()
    with clients_of("Functional") as clients:
        weights = clients.initial_weights()
        rounds = [clients.train([0, 1], weights, n, lambda _, result: result.weights) for n in (0, 0, 1)]
    np.testing.assert_array_equal(rounds[0][0], rounds[1][0])
    assert not np.array_equal(rounds[0][0], rounds[2][0])


def test_dropout_is_active_in_training_only() -> None:
    with clients_of("Dropped") as clients:
        weights = clients.initial_weights()
        first, second = clients.evaluate(weights), clients.evaluate(weights)
        model = clients._models.get()
        assert first == second
        assert not model.model.training
        clients._models.put(model)
    plain = own_models.Normed()
    size = sum(p.numel() for p in plain.parameters())
    nn.utils.vector_to_parameters(torch.from_numpy(weights[:size].copy()), plain.parameters())
    data = tiny_dataset()
    with torch.no_grad():
        scores = plain.eval()(torch.from_numpy(data.test_images).float() / 255.0)
    assert first[0] == pytest.approx(float((scores.argmax(1).numpy() == data.test_labels).mean()))


def test_running_averages_are_averaged_by_data_and_used_in_evaluation() -> None:
    """One round by hand: each client's averages after its batches, then the mean weighted by data."""
    settings = ["federation.rounds=1", "codec.name=update", "learning.local_updates=2", "learning.local_epochs=1"]
    done = run("Normed", *settings, policy="no-quantization")
    assert done.clients["arrived"].all()
    sizes = done.dataset_sizes
    scenario = tiny_scenario(f"{OWN}:Normed", *FEW, *settings)
    with Clients(scenario, tiny_dataset(), sizes, 0) as clients:
        start = clients.initial_weights()
        ours = clients.train(range(5), start, 0, lambda _, result: result.weights)
    count = clients.scenario.federation.num_clients
    expected = sum(sizes[i] / sizes.sum() * ours[i].astype(float) for i in range(count))
    np.testing.assert_allclose(done.weights, expected, rtol=1e-6, atol=1e-7)
    assert len(done.weights) == done.scenario.learning.num_parameters + done.scenario.learning.num_buffers
    assert done.scenario.learning.num_buffers == 32
    tail = done.weights[-32:]
    assert not np.array_equal(tail, np.r_[np.zeros(16), np.ones(16)]), "the averages have not moved"
    assert (tail[16:] > 0.0).all()


def test_one_clients_averages_are_those_of_plain_pytorch() -> None:
    settings = ["learning.local_updates=1", "learning.local_epochs=1"]
    with clients_of("Normed", *settings) as clients:
        start = clients.initial_weights()
        after = clients.train([2], start, 0, lambda _, result: result.weights)[2]
        probed = clients.probe(start, lambda _, result: result.weights, [2])[2]
        images = torch.from_numpy(clients.dataset.train_images[clients.shares[2]]).float() / 255.0
    plain = own_models.Normed().train()
    nn.utils.vector_to_parameters(torch.from_numpy(start[: len(start) - 32].copy()), plain.parameters())
    plain(images)
    averages = torch.cat([plain.norm.running_mean, plain.norm.running_var])
    np.testing.assert_allclose(after[-32:], averages.numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(probed[-32:], start[-32:])


@pytest.mark.parametrize(
    ("codec", "policy"), [("model", "qccf"), ("update+entropy", "qccf"), ("model", "no-quantization")]
)
def test_buffers_are_charged_with_32_bits_per_value(codec: str, policy: str) -> None:
    done = run("Normed", f"codec.name={codec}", policy=policy)
    learning = done.scenario.learning
    sent = done.uploads
    assert len(sent) > 5
    if policy == "no-quantization":
        expected = np.full(len(sent), 32.0 * (learning.num_parameters + 32))
    elif codec == "model":
        expected = learning.num_parameters * (sent["num_bits"] + 1.0) + 32 + 32 * 32
    else:
        assert (sent["payload_bits"] > 32 * 32).all()
        assert (done.statistics_columns["upload_bits"] > 32 * 32).all()
        return
    np.testing.assert_array_equal(sent["payload_bits"], expected)


def test_statistics_and_errors_are_those_of_the_parameters() -> None:
    """Large buffers change neither θ_max nor the error forecast."""
    with clients_of("Normed", "codec.name=model") as clients:
        start = clients.initial_weights()
        large = start.copy()
        large[-32:] = 1e3
        small, big = (clients.probe(w, lambda _, result: result.statistics, [0])[0] for w in (start, large))
    assert small.weight_range == big.weight_range == np.abs(start[:-32]).max()
    assert small.gradient_norm_sq == big.gradient_norm_sq


@pytest.mark.parametrize("model", ["Dropped", "Functional"])
def test_a_resumed_run_ends_the_same(model: str, tmp_path: Path) -> None:
    whole = run(model, "codec.name=update+entropy")

    def stop(event) -> None:
        if len(event.ledger) == 2:
            raise KeyboardInterrupt

    scenario = tiny_scenario(f"{OWN}:{model}", *FEW, "codec.name=update+entropy")
    simulate(scenario, dataset=tiny_dataset(), out=tmp_path, callbacks=[stop])
    resumed = simulate(scenario, dataset=tiny_dataset(), out=tmp_path)
    assert resumed.num_rounds == 3
    assert resumed.weights.tobytes() == whole.weights.tobytes()


def test_a_model_without_buffers_is_coded_as_before() -> None:
    done = simulate(tiny_scenario(*FEW), dataset=tiny_dataset())
    assert done.scenario.learning.num_buffers == 0
    assert len(done.weights) == 650


def test_a_model_may_be_an_instance_a_class_or_a_factory(tmp_path: Path) -> None:
    named = run("Normed")
    made = own_models.Normed()
    scenario, data = tiny_scenario(*FEW), tiny_dataset()
    by_class = simulate(scenario, dataset=data, model=own_models.Normed)
    assert by_class.scenario.learning.model == "tests.helpers.own_models:Normed"
    assert by_class.weights.tobytes() == named.weights.tobytes()
    by_factory = simulate(scenario, dataset=data, model=lambda: own_models.Normed())
    assert by_factory.weights.tobytes() == named.weights.tobytes()
    before = made.hidden.weight.detach().clone()
    by_instance = simulate(scenario, dataset=data, model=made, out=tmp_path)
    assert by_instance.weights.tobytes() != named.weights.tobytes()
    assert torch.equal(made.hidden.weight, before), "the user's model has been trained in place"
    assert by_instance.scenario.learning.model == "Normed"
    with pytest.raises(RunFolderError, match="belongs to a run with other settings"):  # the weights are others
        simulate(scenario, dataset=data, model=own_models.Normed(), out=tmp_path)


def test_an_instance_may_be_named_and_options_reach_the_model() -> None:
    run("MADE")
    dropped = run("Normed", "learning.model_options={dropout = 0.4}")
    assert dropped.weights.tobytes() == run("Dropped").weights.tobytes()
    with pytest.raises(ConfigError, match="exists already and takes no options"):
        run("MADE", "learning.model_options={dropout = 0.4}")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("PerPixel", r"PerPixel' gives outputs of shape \[2, 10, 8, 8\] for 2 samples of 'tiny'.*needed: \[2, 10\]"),
        ("Lazy", "lazy layers"),
        ("not_a_model", "gave int, not a torch.nn.Module"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_in_one_sentence(model: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        run(model)


def test_a_mistake_in_the_users_code_is_not_hidden() -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2") as caught:
        run("Wrong")
    assert any(entry.path.name == "own_models.py" for entry in caught.traceback)


def test_the_presets_models_promise_rightly_that_they_draw_nothing() -> None:
    from qccf.learning.models.registry import MODELS, build_model
    from qccf.learning.randomness import OwnRandomness

    shapes = {"femnist-cnn": (2, 1, 28, 28), "cifar10-cnn": (2, 3, 32, 32), "small-cnn": (2, 1, 28, 28)}
    for name, shape in shapes.items():
        model = build_model(name, 0)
        assert model.deterministic
        with OwnRandomness(0, torch.device("cpu")) as randomness:
            model(torch.rand(shape)).sum().backward()
        assert randomness.operations <= 1, "only the test's own images are drawn"
    assert set(MODELS) == set(shapes)
    assert not hasattr(Tiny, "deterministic")
