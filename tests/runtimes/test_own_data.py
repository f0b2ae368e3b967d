"""Datasets of other kinds than images, transforms, losses and optimizers in a run."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from examples.own_table import Mlp, table
from examples.own_text import BagOfWords, reviews
from qccf.core.errors import ConfigError, DataError
from qccf.learning.datasets import load_dataset
from qccf.learning.optimizers import optimizer_maker
from qccf.learning.training import FlatModel, batches, local_update, probe
from qccf.learning.transforms import Affine, Crop, Flip, Standardise
from qccf.runtimes.simulator import simulate
from tests.helpers.tiny import tiny_dataset, tiny_scenario

FEW = ["federation.rounds=3", "evaluation.samples=300"]


def run(*settings: str, data=None, model=None):
    return simulate(tiny_scenario(*FEW, *settings), dataset=data or tiny_dataset(), model=model)


def twice(scores, labels):
    return 2.0 * functional.cross_entropy(scores, labels)


def per_sample(scores, labels):
    return functional.cross_entropy(scores, labels, reduction="none")


def not_a_dataset():
    return 3


@pytest.mark.parametrize(("data", "model"), [(table, Mlp), (reviews, BagOfWords)])
def test_tables_and_texts_train(data, model) -> None:
    done = run("learning.optimizer=adamw", "learning.learning_rate=0.02", data=data(2000), model=model)
    assert done.clients["arrived"].sum() > 5
    assert np.isfinite(done.weights).all()


def test_a_dataset_is_a_function_with_options(tmp_path) -> None:
    found = load_dataset("examples.own_table:table", tmp_path, options={"samples": 400})
    assert found.train_images.shape == (300, 12)
    with pytest.raises(DataError, match=r"does not take data\.options = \{'rows': 3\}"):
        load_dataset("examples.own_table:table", tmp_path, options={"rows": 3})
    with pytest.raises(DataError, match="gave int, not a qccf Dataset"):
        load_dataset(f"{__name__}:not_a_dataset", tmp_path)


def test_standardised_inputs_have_mean_0_and_deviation_1() -> None:
    values = table(400).train_images
    found = Standardise(values)(torch.from_numpy(values), None)
    np.testing.assert_allclose(found.mean(0), 0.0, atol=1e-4)
    np.testing.assert_allclose(found.std(0, correction=0), 1.0, atol=1e-3)
    images = tiny_dataset().train_images
    scaled = Standardise(images)(torch.from_numpy(images).float().unsqueeze(1) / 255.0, None)
    assert float(scaled.mean()) == pytest.approx(0.0, abs=1e-3)
    assert float(scaled.std()) == pytest.approx(1.0, abs=1e-3)


def test_flip_and_crop_move_pixels_and_lose_none_inside() -> None:
    images = torch.arange(2 * 64, dtype=torch.float32).reshape(2, 1, 8, 8) + 1.0
    flipped = Flip(tiny_dataset().train_images)(images, np.random.default_rng(1))
    assert all(torch.equal(a, b) or torch.equal(a, b.flip(2)) for a, b in zip(flipped, images, strict=True))
    cropped = Crop(tiny_dataset().train_images)(images, np.random.default_rng(1))
    assert cropped.shape == images.shape
    assert set(cropped[0].unique().tolist()) <= {0.0, *images[0].flatten().tolist()}
    with pytest.raises(ConfigError, match="for images only"):
        Flip(table(40).train_images)


class Drawn:
    """Stands for a generator: what `Affine` draws, in its order."""

    def __init__(self, angle: float, scale: float, slant: float, move: tuple[float, float]) -> None:
        self._values = iter((angle, scale, slant, move))

    def uniform(self, low: float, high: float, size: object) -> np.ndarray:
        value = np.asarray(next(self._values), dtype=float)
        assert (low <= value).all()
        assert (value <= high).all()
        return np.broadcast_to(value, size)


def centre(image: torch.Tensor) -> tuple[float, float]:
    """Row and column of the centre of mass, from the centre of the image."""
    rows, columns = (indices - indices.max() / 2.0 for indices in np.indices(image.shape))
    mass = image.numpy() / image.numpy().sum()
    return float((mass * rows).sum()), float((mass * columns).sum())


def test_affine_turns_scales_slants_and_moves_about_the_centre() -> None:
    affine = Affine(tiny_dataset().train_images)
    dot = torch.zeros(1, 1, 28, 28)
    dot[0, 0, 13:15, 19:21] = 1.0  # six columns right of the centre
    assert torch.allclose(affine(dot, Drawn(0.0, 1.0, 0.0, (0.0, 0.0))), dot, atol=1e-5)
    by_hand = {
        (12.0, 1.0, 0.0, (0.0, 0.0)): (-6.0 * np.sin(np.deg2rad(12.0)), 6.0 * np.cos(np.deg2rad(12.0))),
        (0.0, 1.12, 0.0, (0.0, 0.0)): (0.0, 6.72),
        (0.0, 1.0, 0.15, (0.0, 0.0)): (0.0, 6.0),
        (0.0, 1.0, 0.0, (2.0, -1.0)): (1.0, 4.0),
    }
    for drawn, place in by_hand.items():
        assert centre(affine(dot, Drawn(*drawn))[0, 0]) == pytest.approx(place, abs=0.1)
    below = dot.transpose(2, 3)  # six rows below the centre: a slant moves it left by 0.15 of that
    assert centre(affine(below, Drawn(0.0, 1.0, 0.15, (0.0, 0.0)))[0, 0]) == pytest.approx((6.0, -0.9), abs=0.1)


def test_affine_turns_images_that_are_not_square() -> None:
    wide = torch.zeros(1, 1, 16, 64)
    wide[0, 0, 7:9, 47:49] = 1.0  # sixteen columns right of the centre
    turned = Affine(tiny_dataset().train_images)(wide, Drawn(12.0, 1.0, 0.0, (0.0, 0.0)))
    expected = (-16.0 * np.sin(np.deg2rad(12.0)), 16.0 * np.cos(np.deg2rad(12.0)))
    assert centre(turned[0, 0]) == pytest.approx(expected, abs=0.1)


def test_random_transforms_are_for_training_only_and_follow_the_seed() -> None:
    changed = "data.transform=['standardise', 'flip', 'crop', 'affine']"
    first, again = run(changed, "execution.workers=1"), run(changed, "execution.workers=3")
    assert first.weights.tobytes() == again.weights.tobytes()
    assert first.summary["test_loss"] == again.summary["test_loss"]
    assert first.weights.tobytes() != run("data.transform=['standardise']").weights.tobytes()


def test_losses() -> None:
    plain, smooth = run(), run("learning.loss_options={label_smoothing = 0.2}")
    assert smooth.weights.tobytes() != plain.weights.tobytes()
    doubled = run(f"learning.loss={__name__}:twice", "learning.learning_rate=0.05")
    np.testing.assert_allclose(doubled.clients["loss"][:5], 2.0 * plain.clients["loss"][:5], rtol=1e-5)
    with pytest.raises(ConfigError, match=r"gave \[\d+\], but one number is needed"):
        run(f"learning.loss={__name__}:per_sample")
    with pytest.raises(ConfigError, match="'smoothing' is not one of label_smoothing"):
        run("learning.loss_options={smoothing = 0.2}")


@pytest.mark.parametrize(("name", "momentum", "decay"), [("sgd", 0.9, 0.01), ("adamw", 0.0, 0.1)])
def test_an_optimizer_is_pytorchs_and_statistics_are_of_the_gradients(name: str, momentum: float, decay: float) -> None:
    data = tiny_dataset()
    images, labels = torch.from_numpy(data.train_images[:90]), torch.from_numpy(data.train_labels[:90])
    torch.manual_seed(0)
    flat = FlatModel(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), device="cpu", precision="fp32")
    start = flat.read()
    make = optimizer_maker(name, learning_rate=0.01, momentum=momentum, weight_decay=decay)
    common = {"local_updates": 3, "local_epochs": 1, "learning_rate": 0.01, "make_optimizer": make}
    result = local_update(flat, start, images, labels, rng=np.random.default_rng(4), **common)
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    optimizer = make(plain.parameters())
    gradients = []
    for batch in batches(90, 3, np.random.default_rng(4)):
        optimizer.zero_grad()
        functional.cross_entropy(plain(images[batch].float() / 255.0), labels[batch]).backward()
        gradients.append(torch.cat([p.grad.reshape(-1) for p in plain.parameters()]).clone())
        optimizer.step()
    expected = torch.cat([p.detach().reshape(-1) for p in plain.parameters()])
    np.testing.assert_allclose(result.weights, expected, atol=1e-6)
    stacked = torch.stack(gradients)
    assert result.statistics.gradient_norm_sq == pytest.approx(float(stacked.mean(0).square().sum()), rel=1e-4)
    assert result.statistics.gradient_variance == pytest.approx(float(stacked.var(0).sum()), rel=1e-4)
    probed = probe(flat, start, images, labels, rng=np.random.default_rng(4), **common)
    moved = np.linalg.norm(result.weights - start)
    assert 0.3 * moved < np.linalg.norm(probed.weights - start) < 3.0 * moved
    np.testing.assert_array_equal(flat.read(), start)


def test_plain_sgd_needs_no_optimizer_and_adamw_no_momentum() -> None:
    assert optimizer_maker("sgd", learning_rate=0.1, momentum=0.0, weight_decay=0.0) is None
    with pytest.raises(ConfigError, match=r"learning\.momentum = 0\.9 has no effect"):
        run("learning.optimizer=adamw", "learning.momentum=0.9")
