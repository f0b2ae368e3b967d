"""Models, partition, local training: against plain PyTorch and by hand."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from qccf.core.errors import ConfigError
from qccf.learning.models import MODELS, Cifar10Cnn, build_model
from qccf.learning.partition import partition
from qccf.learning.training import FlatModel, batches, local_update, probe, score
from tests.helpers.tiny import Tiny, tiny_dataset


@pytest.mark.parametrize(
    ("name", "size", "shape", "classes"),
    [("femnist-cnn", 246_590, (2, 1, 28, 28), 62), ("cifar10-cnn", 576_778, (2, 3, 32, 32), 10)],
)
def test_models_have_the_papers_sizes(name: str, size: int, shape: tuple, classes: int) -> None:
    model = build_model(name, 0)
    assert sum(p.numel() for p in model.parameters()) == size
    assert model(torch.zeros(shape)).shape == (2, classes)
    assert name in MODELS


def test_pooling_first_is_the_same_function() -> None:
    torch.manual_seed(0)
    cifar, colour = Cifar10Cnn(), torch.rand(3, 3, 32, 32)
    hidden = functional.max_pool2d(functional.relu(cifar.first(colour)), 3, 2, ceil_mode=True)
    hidden = functional.max_pool2d(functional.relu(cifar.second(hidden)), 3, 2)
    assert torch.equal(cifar(colour), cifar.head(hidden.flatten(1)))


def test_the_seed_decides_the_weights_and_nothing_else_moves() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, again, other = (build_model("femnist-cnn", seed) for seed in (1, 1, 2))
    assert torch.rand(1) == expected, "drawing weights must not disturb the global generator"
    assert torch.equal(first.first.weight, again.first.weight)
    assert not torch.equal(first.first.weight, other.first.weight)


def test_own_models_and_wrong_names() -> None:
    assert isinstance(build_model("tests.helpers.tiny:Tiny", 0), Tiny)
    for name, words in (
        ("resnet", "is not one of"),
        ("tests.helpers.tiny:Nothing", "cannot be loaded"),
        ("no.where:X", "cannot be"),
    ):
        with pytest.raises(ConfigError, match=words):
            build_model(name, 0)


@pytest.mark.parametrize("method", ["writer", "dirichlet", "iid"])
def test_partition_gives_exact_sizes_and_no_sample_twice(method: str) -> None:
    data = tiny_dataset()
    sizes = np.array([200, 50, 333, 417, 200])
    parts = partition(data.train_labels, data.train_writers, sizes, method=method, dirichlet_alpha=0.3, seed=1)
    assert [len(part) for part in parts] == sizes.tolist()
    everything = np.concatenate(parts)
    assert len(np.unique(everything)) == len(everything) == 1200
    again = partition(data.train_labels, data.train_writers, sizes, method=method, dirichlet_alpha=0.3, seed=1)
    assert all((a == b).all() for a, b in zip(parts, again, strict=True))
    other = partition(data.train_labels, data.train_writers, sizes, method=method, dirichlet_alpha=0.3, seed=2)
    assert any((a != b).any() for a, b in zip(parts, other, strict=True))


def skew(parts: list[np.ndarray], labels: np.ndarray) -> float:
    """Mean total variation distance of the clients' label mixtures from the dataset's."""
    overall = np.bincount(labels, minlength=10) / len(labels)
    mixtures = [np.bincount(labels[part], minlength=10) / len(part) for part in parts]
    return float(np.mean([0.5 * np.abs(mixture - overall).sum() for mixture in mixtures]))


def test_smaller_alpha_is_more_skewed_and_iid_least() -> None:
    data, sizes = tiny_dataset(), np.full(5, 100)
    skews = [
        skew(partition(data.train_labels, None, sizes, method=m, dirichlet_alpha=a, seed=0), data.train_labels)
        for m, a in (("dirichlet", 0.1), ("dirichlet", 1.0), ("dirichlet", 100.0), ("iid", 1.0))
    ]
    assert skews[0] > skews[1] > skews[2]
    assert skews[3] < 0.2


def test_writers_stay_together() -> None:
    data, sizes = tiny_dataset(), np.array([100, 100, 100])
    parts = partition(data.train_labels, data.train_writers, sizes, method="writer", dirichlet_alpha=1.0, seed=0)
    owners = [set(data.train_writers[part].tolist()) for part in parts]
    assert not owners[0] & owners[1]
    assert all(len(own) <= 6 for own in owners)


def test_too_little_data_and_no_writers_are_errors() -> None:
    data = tiny_dataset()
    with pytest.raises(ConfigError, match="1,300 samples together but the dataset has 1,200"):
        partition(data.train_labels, None, np.array([1300]), method="iid", dirichlet_alpha=1.0, seed=0)
    with pytest.raises(ConfigError, match="dataset with writers"):
        partition(data.train_labels, None, np.array([13]), method="writer", dirichlet_alpha=1.0, seed=0)


def tensors(count: int = 90):
    data = tiny_dataset()
    return torch.from_numpy(data.train_images[:count]), torch.from_numpy(data.train_labels[:count])


def test_local_update_is_plain_sgd_and_its_statistics_are_what_they_say() -> None:
    images, labels = tensors()
    flat = FlatModel(build_model("tests.helpers.tiny:Tiny", 0), device="cpu", precision="fp32")
    start = flat.read()
    result = local_update(
        flat, start, images, labels, local_updates=6, local_epochs=2, learning_rate=0.1, rng=np.random.default_rng(4)
    )
    plain = build_model("tests.helpers.tiny:Tiny", 0)
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.1)
    rng = np.random.default_rng(4)
    losses, gradients = [], []
    for _ in range(2):
        for batch in batches(90, 3, rng):
            optimiser.zero_grad()
            loss = functional.cross_entropy(plain(images[batch].float().unsqueeze(1) / 255), labels[batch])
            loss.backward()
            losses.append(float(loss.detach()))
            gradients.append(torch.cat([p.grad.reshape(-1) for p in plain.parameters()]).clone())
            optimiser.step()
    expected = torch.cat([p.detach().reshape(-1) for p in plain.parameters()])
    np.testing.assert_allclose(result.weights, expected, atol=1e-6)
    assert result.statistics.loss == pytest.approx(losses[0], rel=1e-5)
    assert result.statistics.weight_range == pytest.approx(float(expected.abs().max()), rel=1e-5)
    epochs = [torch.stack(gradients[:3]), torch.stack(gradients[3:])]
    assert result.statistics.gradient_norm_sq == pytest.approx(
        max(float(e.mean(0).square().sum()) for e in epochs), rel=1e-3
    )
    spread = np.mean([float(e.var(0, correction=1).sum()) for e in epochs])
    assert result.statistics.gradient_variance == pytest.approx(spread, rel=1e-3)


def test_probe_measures_without_moving() -> None:
    images, labels = tensors()
    flat = FlatModel(build_model("tests.helpers.tiny:Tiny", 0), device="cpu", precision="fp32")
    start = flat.read()
    result = probe(
        flat, start, images, labels, local_updates=6, local_epochs=2, learning_rate=0.1, rng=np.random.default_rng(4)
    )
    np.testing.assert_array_equal(flat.read(), start)
    plain = build_model("tests.helpers.tiny:Tiny", 0)
    rows = []
    for batch in batches(90, 3, np.random.default_rng(4)):
        plain.zero_grad()
        functional.cross_entropy(plain(images[batch].float().unsqueeze(1) / 255), labels[batch]).backward()
        rows.append(torch.cat([p.grad.reshape(-1) for p in plain.parameters()]).clone())
    stacked = torch.stack(rows)
    assert result.statistics.gradient_norm_sq == pytest.approx(float(stacked.mean(0).square().sum()), rel=1e-4)
    assert result.statistics.gradient_variance == pytest.approx(float(stacked.var(0, correction=1).sum()), rel=1e-4)
    assert result.statistics.weight_range == np.abs(start).max()
    np.testing.assert_allclose(result.weights, start - 6 * 0.1 * stacked.mean(0).numpy(), atol=1e-6)


def test_batches_cover_everything_once() -> None:
    parts = batches(10, 3, np.random.default_rng(0))
    assert sorted(torch.cat(parts).tolist()) == list(range(10))
    assert [len(part) for part in parts] == [4, 3, 3]
    assert [len(part) for part in batches(2, 3, np.random.default_rng(0))] == [1, 1, 1]


def test_score_counts() -> None:
    images, labels = tensors(30)
    flat = FlatModel(build_model("tests.helpers.tiny:Tiny", 0), device="cpu", precision="fp32")
    right, loss = score(flat, flat.read(), images, labels)
    logits = build_model("tests.helpers.tiny:Tiny", 0)(images.float().unsqueeze(1) / 255).detach()
    assert right == int((logits.argmax(1) == labels).sum())
    assert loss == pytest.approx(float(functional.cross_entropy(logits, labels, reduction="sum")), rel=1e-5)


def test_bf16_trains_nearly_the_same() -> None:
    images = torch.randint(0, 256, (60, 28, 28), dtype=torch.uint8)
    labels = torch.randint(0, 62, (60,))
    results = []
    for precision in ("fp32", "bf16"):
        flat = FlatModel(build_model("femnist-cnn", 0), device="cpu", precision=precision)
        arguments = {"local_updates": 2, "local_epochs": 1, "learning_rate": 0.05, "rng": np.random.default_rng(0)}
        results.append(local_update(flat, flat.read(), images, labels, **arguments))
    assert results[0].statistics.loss == pytest.approx(results[1].statistics.loss, rel=0.02)
    moved = np.linalg.norm(
        results[0].weights - FlatModel(build_model("femnist-cnn", 0), device="cpu", precision="fp32").read()
    )
    assert np.linalg.norm(results[0].weights - results[1].weights) < 0.2 * moved


def test_flat_views_are_the_model() -> None:
    flat = FlatModel(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)), device="cpu", precision="fp32")
    assert flat.size == 11
    flat.load(np.arange(11, dtype=np.float32))
    assert flat.model[0].weight.flatten().tolist() == [0, 1, 2, 3, 4, 5]
    assert flat.model[1].bias.tolist() == [10.0]
