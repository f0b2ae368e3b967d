"""Local training, compared with plain PyTorch and with values computed by hand."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from qccf.core.steps import steps_per_epoch
from qccf.learning.models.registry import build_model
from qccf.learning.training import FlatModel, batches, local_update, probe, score
from tests.helpers.tiny import tiny_dataset


def tensors(count: int = 90):
    data = tiny_dataset()
    return torch.from_numpy(data.train_images[:count]), torch.from_numpy(data.train_labels[:count])


def test_local_update_and_its_statistics_equal_plain_sgd() -> None:
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


@pytest.mark.parametrize(("local_updates", "batch_size", "count", "steps"), [(6, 0, 3, 6), (0, 5, 18, 36)])
def test_probe_measures_without_updating(local_updates: int, batch_size: int, count: int, steps: int) -> None:
    """An epoch, or the first eight of its batches; the weights are those after all steps."""
    images, labels = tensors()
    flat = FlatModel(build_model("tests.helpers.tiny:Tiny", 0), device="cpu", precision="fp32")
    start = flat.read()
    sizes = {"local_updates": local_updates, "local_epochs": 2, "batch_size": batch_size}
    result = probe(flat, start, images, labels, **sizes, learning_rate=0.1, rng=np.random.default_rng(4))
    np.testing.assert_array_equal(flat.read(), start)
    plain = build_model("tests.helpers.tiny:Tiny", 0)
    rows = []
    for batch in batches(90, count, np.random.default_rng(4), batch_size)[:8]:
        plain.zero_grad()
        functional.cross_entropy(plain(images[batch].float().unsqueeze(1) / 255), labels[batch]).backward()
        rows.append(torch.cat([p.grad.reshape(-1) for p in plain.parameters()]).clone())
    stacked = torch.stack(rows)
    assert result.statistics.gradient_norm_sq == pytest.approx(float(stacked.mean(0).square().sum()), rel=1e-4)
    assert result.statistics.gradient_variance == pytest.approx(float(stacked.var(0, correction=1).sum()), rel=1e-4)
    assert result.statistics.weight_range == np.abs(start).max()
    np.testing.assert_allclose(result.weights, start - steps * 0.1 * stacked.mean(0).numpy(), atol=1e-6)


def test_batches_cover_all_samples_once() -> None:
    parts = batches(10, 3, np.random.default_rng(0))
    assert sorted(torch.cat(parts).tolist()) == list(range(10))
    assert [len(part) for part in parts] == [4, 3, 3]
    assert [len(part) for part in batches(2, 3, np.random.default_rng(0))] == [1, 1, 1]


def test_score_equals_plain_pytorch() -> None:
    images, labels = tensors(30)
    flat = FlatModel(build_model("tests.helpers.tiny:Tiny", 0), device="cpu", precision="fp32")
    right, loss = score(flat, flat.read(), images, labels)
    logits = build_model("tests.helpers.tiny:Tiny", 0)(images.float().unsqueeze(1) / 255).detach()
    assert right == int((logits.argmax(1) == labels).sum())
    assert loss == pytest.approx(float(functional.cross_entropy(logits, labels, reduction="sum")), rel=1e-5)


BF16_STEP = """
import numpy as np
import torch
from qccf.core.steps import steps_per_epoch
from qccf.learning.models.registry import build_model
from qccf.learning.training import FlatModel, local_update

torch.manual_seed(0)
images = torch.randint(0, 256, (60, 28, 28), dtype=torch.uint8)
labels = torch.randint(0, 62, (60,))
start = FlatModel(build_model("femnist-cnn", 0), device="cpu", precision="fp32").read().copy()
weights, losses = [], []
for precision in ("fp32", "bf16"):
    flat = FlatModel(build_model("femnist-cnn", 0), device="cpu", precision=precision)
    arguments = {"local_updates": 2, "local_epochs": 1, "learning_rate": 0.05, "rng": np.random.default_rng(0)}
    result = local_update(flat, flat.read(), images, labels, **arguments)
    weights.append(result.weights.copy())
    losses.append(result.statistics.loss)
moved = np.linalg.norm(weights[0] - start)
print(losses[1] / losses[0], np.linalg.norm(weights[1] - weights[0]) / moved)
"""


def test_bf16_trains_nearly_the_same() -> None:
    # In a process of its own, without AMX: virtual machines may announce it and kill the process that uses it.
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    done = subprocess.run(
        [sys.executable, "-c", BF16_STEP], env=environment, capture_output=True, text=True, check=True
    )
    loss_ratio, distance = map(float, done.stdout.split())
    assert loss_ratio == pytest.approx(1.0, rel=0.02)
    assert 0.0 < distance < 0.2


def test_flat_vector_and_model_share_memory() -> None:
    flat = FlatModel(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)), device="cpu", precision="fp32")
    assert flat.size == 11
    flat.load(np.arange(11, dtype=np.float32))
    assert flat.model[0].weight.flatten().tolist() == [0, 1, 2, 3, 4, 5]
    assert flat.model[1].bias.tolist() == [10.0]


@pytest.mark.parametrize("make_optimizer", [None, "sgd"])
def test_batches_of_a_given_size_equal_a_plain_loop_over_them(make_optimizer) -> None:
    """90 samples in batches of 25: three whole ones and one of 15 in each epoch; the energy counts samples alone."""
    images, labels = tensors()
    flat = FlatModel(build_model("tests.helpers.tiny:Tiny", 0), device="cpu", precision="fp32")
    maker = make_optimizer and (lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    result = local_update(
        flat, flat.read(), images, labels, local_updates=0, local_epochs=2, batch_size=25, learning_rate=0.1,
        rng=np.random.default_rng(4), make_optimizer=maker,
    )  # fmt: skip
    plain = build_model("tests.helpers.tiny:Tiny", 0)
    rng = np.random.default_rng(4)
    sizes, means = [], []
    for _ in range(2):
        order, gradients = rng.permutation(90), []
        for start in range(0, 90, 25):
            batch = order[start : start + 25]
            sizes.append(len(batch))
            plain.zero_grad()
            functional.cross_entropy(plain(images[batch].float().unsqueeze(1) / 255), labels[batch]).backward()
            gradients.append(torch.cat([p.grad.reshape(-1) for p in plain.parameters()]).clone())
            with torch.no_grad():
                for parameter in plain.parameters():
                    parameter -= 0.1 * parameter.grad
        means.append(float(torch.stack(gradients).mean(0).square().sum()))
    assert sizes == [25, 25, 25, 15] * 2
    expected = torch.cat([p.detach().reshape(-1) for p in plain.parameters()])
    np.testing.assert_allclose(result.weights, expected, atol=1e-6)
    assert result.statistics.gradient_norm_sq == pytest.approx(max(means), rel=1e-3)


def test_any_number_of_steps_is_spread_over_the_epochs() -> None:
    assert steps_per_epoch(90, local_updates=6, local_epochs=2) == [3, 3]
    assert steps_per_epoch(90, local_updates=7, local_epochs=3) == [3, 2, 2]
    assert steps_per_epoch(90, local_updates=0, local_epochs=2, batch_size=25) == [4, 4]
    assert steps_per_epoch(90, local_updates=0, local_epochs=1, batch_size=100) == [1]
    assert steps_per_epoch(90, local_updates=0, local_epochs=1, batch_size=30) == [3]
    images, labels = tensors()
    seen: list[int] = []

    class Counting(FlatModel):
        def gradient_at(self, samples, answers, *more):
            seen.append(len(answers))
            return super().gradient_at(samples, answers, *more)

    flat = Counting(build_model("tests.helpers.tiny:Tiny", 0), device="cpu", precision="fp32")
    common = {"local_updates": 7, "local_epochs": 2, "learning_rate": 0.1, "rng": np.random.default_rng(0)}
    local_update(flat, flat.read(), images, labels, **common)
    assert seen == [23, 23, 22, 22, 30, 30, 30]
