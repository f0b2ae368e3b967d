"""Scores are corrected by how often a client has each class."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from qccf.learning.logit_adjustment import ABSENT, class_counts, logit_adjustment
from qccf.learning.results import LocalResult
from qccf.learning.training import FlatModel
from qccf.rounds.world import build_world
from qccf.runtimes.clients import Clients
from tests.helpers.tiny import tiny_dataset, tiny_scenario


def test_by_hand() -> None:
    """The client has 3 of class 0 and 1 of class 1. All data have 4, 4, 8 and 0."""
    added = logit_adjustment(torch.tensor([0, 0, 1, 0]), np.array([4, 4, 8, 0])).numpy()
    np.testing.assert_allclose(added, [np.log(3.0), 0.0, ABSENT, 0.0], rtol=1e-6)


def test_a_class_that_only_this_client_claims_is_not_corrected() -> None:
    added = logit_adjustment(torch.tensor([0, 1]), np.array([5, 0]))
    assert added.tolist() == pytest.approx([np.log(0.5), 0.0])


def test_with_everybodys_shares_nothing_is_added() -> None:
    assert logit_adjustment(torch.tensor([0, 0, 1]), np.array([20, 10])).tolist() == [0.0, 0.0]


def test_classes_are_counted_in_the_data_that_the_model_meets() -> None:
    clients, dataset = np.array([0, 0, 1, 3]), np.array([0, 1, 1, 1, 2, 3, 3])
    assert class_counts(clients, 5, clients).tolist() == [2, 1, 0, 1, 0]
    assert class_counts(clients, 5, dataset).tolist() == [1, 3, 0, 2, 0], "no client can learn class 2"


def test_bayes_rule() -> None:
    """The best scores for shares P, corrected for a client's shares p, are the best scores for p."""
    likelihoods, everybodys, own = np.array([0.2, 0.5, 0.9]), np.array([50, 30, 20]), np.array([1, 6, 3])
    for_all = torch.from_numpy(np.log(likelihoods * everybodys))
    labels = torch.from_numpy(np.repeat(np.arange(3), own))
    ours = functional.softmax(for_all + logit_adjustment(labels, everybodys), 0).numpy()
    np.testing.assert_allclose(ours, likelihoods * own / (likelihoods * own).sum(), rtol=1e-6)


def test_the_gradient_is_that_of_the_corrected_scores() -> None:
    """Outputs beyond the classes are not corrected."""
    torch.manual_seed(0)
    layer, samples, labels = nn.Linear(4, 5), torch.randn(6, 4), torch.tensor([0, 1, 1, 0, 1, 1])
    added = torch.tensor([0.5, -1.0, ABSENT])
    flat = FlatModel(layer, device="cpu", precision="fp32")
    loss = flat.gradient_at(samples, labels, None, added)
    weight = layer.weight.detach().clone().requires_grad_()
    wanted = functional.cross_entropy(
        samples @ weight.T + layer.bias.detach() + torch.tensor([0.5, -1.0, ABSENT, 0.0, 0.0]), labels
    )
    wanted.backward()
    assert loss == pytest.approx(float(wanted.detach()))
    torch.testing.assert_close(layer.weight.grad, weight.grad)
    assert float(layer.weight.grad[2].abs().max()) < 1e-9, "an absent class keeps its scores"


def test_clients_correct_for_the_labels_they_train_with() -> None:
    """In training and in the probe, which must measure what training does. Flipped labels count as they are."""

    def measured(*settings: str) -> list[LocalResult]:
        scenario = tiny_scenario(*settings)
        with Clients(scenario, tiny_dataset(), build_world(scenario, 0).dataset_sizes, 0) as clients:
            start = clients.initial_weights()
            trained = clients.train([0], start, 1, lambda _, result: result)[0]
            return [trained, clients.probe(start, lambda _, result: result, [0])[0]]

    attack = ("attack.kind=label-flip", "attack.clients=5")
    results = [measured(*who, f"learning.logit_adjustment={on}") for who in ((), attack) for on in ("false", "true")]
    losses = np.array([[one.statistics.loss for one in pair] for pair in results])
    assert np.all(losses[1] != losses[0])
    assert np.all(losses[3] != losses[2])
    assert np.all(np.abs(losses[3] - losses[1]) < 1.0), "a flipped class is not taken for one that the client lacks"


def test_clients_correct_for_their_own_shares_or_for_those_of_the_whole_dataset() -> None:
    data = tiny_dataset()

    def added(wanted: str) -> torch.Tensor:
        scenario = tiny_scenario(f"learning.logit_adjustment={wanted}")
        with Clients(scenario, data, build_world(scenario, 0).dataset_sizes, 0) as clients:
            clients.shares = [np.arange(6), np.arange(6, 9)]
            return logit_adjustment(torch.from_numpy(data.train_labels[:6]), clients._class_counts())

    held, everything = (np.bincount(data.train_labels[:end], minlength=data.num_classes) for end in (9, None))
    own = torch.from_numpy(data.train_labels[:6])
    assert torch.equal(added("true"), logit_adjustment(own, held))
    assert torch.equal(added('"dataset"'), logit_adjustment(own, np.where(held > 0, everything, 0)))
    assert not torch.equal(added("true"), added('"dataset"'))
