"""Scores are corrected by how often a client has each class."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from qccf.learning.logit_adjustment import ABSENT, Adjustment
from qccf.learning.results import LocalResult
from qccf.learning.training import FlatModel
from qccf.rounds.world import build_world
from qccf.runtimes.clients import Clients
from tests.helpers.tiny import tiny_dataset, tiny_scenario


def whole(labels: torch.Tensor, everybodys: NDArray[np.int64]) -> torch.Tensor:
    """The whole correction, for the shares of all clients."""
    return Adjustment(everybodys, everybodys).of(labels)


def test_by_hand() -> None:
    """The client has 3 of class 0 and 1 of class 1. All data have 4, 4, 8 and 0."""
    added = whole(torch.tensor([0, 0, 1, 0]), np.array([4, 4, 8, 0])).numpy()
    np.testing.assert_allclose(added, [np.log(3.0), 0.0, ABSENT, 0.0], rtol=1e-6)


def test_a_class_that_only_this_client_claims_is_not_corrected() -> None:
    added = whole(torch.tensor([0, 1]), np.array([5, 0]))
    assert added.tolist() == pytest.approx([np.log(0.5), 0.0])


def test_with_everybodys_shares_nothing_is_added() -> None:
    assert whole(torch.tensor([0, 0, 1]), np.array([20, 10])).tolist() == [0.0, 0.0]


def test_scores_for_other_shares_than_the_clients() -> None:
    """The clients have 4, 4 and 8, the model meets 2, 1, 1 and 4: class 3, which no client has, is left out of both."""
    added = Adjustment(np.array([4, 4, 8, 0]), np.array([2, 1, 1, 4])).of(torch.tensor([0, 0, 1, 2]))
    np.testing.assert_allclose(added, [np.log(0.5 / 0.5), np.log(0.25 / 0.25), np.log(0.25 / 0.25), 0.0], atol=1e-7)
    added = Adjustment(np.array([4, 4, 8]), np.array([1, 2, 1])).of(torch.tensor([0, 0, 1, 2]))
    np.testing.assert_allclose(added, [np.log(0.5 / 0.25), np.log(0.25 / 0.5), 0.0], rtol=1e-6)


def test_a_part_of_the_difference() -> None:
    """The client has 3, 1 and none of the classes, which counts as half a sample; all clients have a third of each."""
    clients, labels = np.array([5, 5, 5]), torch.tensor([0, 0, 0, 1])
    whole = np.log(np.array([3.0, 1.0, 0.5]) / 4.5 * 3.0)
    np.testing.assert_allclose(Adjustment(clients, clients, 0.5).of(labels), 0.5 * whole, rtol=1e-6)
    meets = np.array([1, 1, 2])
    np.testing.assert_allclose(
        Adjustment(clients, meets, 0.0).of(labels), np.log(4 / 3 * np.array([1, 1, 0.5])), rtol=1e-6
    )


def test_a_part_of_the_difference_where_a_class_is_nobodys() -> None:
    """Only classes that somebody has count: 3, 1 and half a sample of 4.5, whatever classes nobody has. A class that
    this client alone claims, as one with flipped labels does, counts as it is."""
    clients, labels = np.array([5, 5, 5, 0, 0]), torch.tensor([0, 0, 0, 1])
    added = 0.5 * np.log(np.array([3.0, 1.0, 0.5]) / 4.5 * 3.0)
    np.testing.assert_allclose(Adjustment(clients, clients, 0.5).of(labels), [*added, 0.0, 0.0], rtol=1e-6)
    claimed = Adjustment(clients, clients, 0.5).of(torch.tensor([0, 0, 0, 1, 3, 3])).numpy()
    np.testing.assert_allclose(claimed, [*(0.5 * np.log(np.array([3.0, 1.0, 0.5]) / 6.5 * 3.0)), 0.0, 0.0], rtol=1e-6)


def test_bayes_rule() -> None:
    """The best scores for shares P, corrected for a client's shares p, are the best scores for p."""
    likelihoods, everybodys, own = np.array([0.2, 0.5, 0.9]), np.array([50, 30, 20]), np.array([1, 6, 3])
    for_all = torch.from_numpy(np.log(likelihoods * everybodys))
    labels = torch.from_numpy(np.repeat(np.arange(3), own))
    ours = functional.softmax(for_all + whole(labels, everybodys), 0).numpy()
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

    def made(*settings: str) -> Adjustment:
        scenario = tiny_scenario(*settings)
        with Clients(scenario, data, build_world(scenario, 0).dataset_sizes, 0) as clients:
            held.append(np.bincount(data.train_labels[np.concatenate(clients.shares)], minlength=data.num_classes))
            assert clients._adjustment is not None
            return clients._adjustment

    held: list[NDArray[np.int64]] = []
    everything = np.bincount(data.train_labels, minlength=data.num_classes)
    own, whole = made("learning.logit_adjustment=true"), made('learning.logit_adjustment="dataset"')
    assert held[0].sum() < everything.sum()
    for one in (own, whole):
        np.testing.assert_array_equal(one.clients, held[0])
    np.testing.assert_array_equal(own.meets, held[0])
    np.testing.assert_array_equal(whole.meets, everything)
    assert own.strength == 1.0
    part = made("learning.logit_adjustment=true", "learning.adjustment_strength=0.25")
    assert part.strength == 0.25


def test_classes_are_counted_once_for_all_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[Clients] = []
    count = Clients._class_counts
    monkeypatch.setattr(Clients, "_class_counts", lambda clients: counted.append(clients) or count(clients))
    for setting, times in (("false", 0), ("true", 1)):
        counted.clear()
        scenario = tiny_scenario(f"learning.logit_adjustment={setting}")
        with Clients(scenario, tiny_dataset(), build_world(scenario, 0).dataset_sizes, 0) as clients:
            start = clients.initial_weights()
            for round_index in (1, 2):
                clients.train([0, 1], start, round_index, lambda _, result: result)
        assert len(counted) == times
