"""Models: sizes of the paper, names, options, and random weights."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional

from qccf.core.errors import ConfigError
from qccf.learning.models.cifar10_cnn import Cifar10Cnn
from qccf.learning.models.registry import build_model, count_values
from tests.helpers.tiny import Tiny


@pytest.mark.parametrize(
    ("name", "size", "shape", "classes"),
    [
        ("femnist-cnn", 246_590, (2, 1, 28, 28), 62),
        ("cifar10-cnn", 576_778, (2, 3, 32, 32), 10),
        ("small-cnn", 12_414, (2, 1, 28, 28), 62),
    ],
)
def test_models_have_the_stated_sizes(name: str, size: int, shape: tuple, classes: int) -> None:
    model = build_model(name, 0)
    assert sum(p.numel() for p in model.parameters()) == count_values(name).parameters == size
    assert model(torch.zeros(shape)).shape == (2, classes)


def test_pooling_first_is_the_same_function() -> None:
    torch.manual_seed(0)
    cifar, colour = Cifar10Cnn(), torch.rand(3, 3, 32, 32)
    hidden = functional.max_pool2d(functional.relu(cifar.first(colour)), 3, 2, ceil_mode=True)
    hidden = functional.max_pool2d(functional.relu(cifar.second(hidden)), 3, 2)
    assert torch.equal(cifar(colour), cifar.head(hidden.flatten(1)))


def test_the_seed_determines_the_weights_and_the_global_generator_is_unchanged() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, again, other = (build_model("femnist-cnn", seed) for seed in (1, 1, 2))
    count_values("femnist-cnn")
    assert torch.rand(1) == expected
    assert torch.equal(first.first.weight, again.first.weight)
    assert not torch.equal(first.first.weight, other.first.weight)


def test_own_models_and_unknown_names() -> None:
    assert isinstance(build_model("tests.helpers.tiny:Tiny", 0), Tiny)
    assert count_values("tests.helpers.tiny:Tiny").parameters == 650
    for name, words in (
        ("resnet", "is not one of"),
        ("tests.helpers.tiny:Nothing", "cannot be loaded"),
        ("no.where:X", "cannot be"),
    ):
        with pytest.raises(ConfigError, match=words):
            build_model(name, 0)


def linear(classes: int) -> nn.Module:
    return nn.Linear(9, classes)


def test_options_reach_the_model() -> None:
    name = f"{__name__}:linear"
    assert build_model(name, 0, classes=4).out_features == 4
    assert count_values(name, classes=4).parameters == 40
    with pytest.raises(ConfigError, match="unexpected keyword argument"):
        build_model(name, 0, colours=1)


def test_dropout_leaves_out_inputs_of_the_last_layer_in_training_only() -> None:
    model, images = build_model("femnist-cnn", 0, dropout=0.5), torch.rand(4, 1, 28, 28)
    plain = build_model("femnist-cnn", 0)
    assert (model.deterministic, plain.deterministic) == (False, True)
    assert torch.equal(model.eval()(images), plain.eval()(images))
    model.train()
    hidden = plain.second(plain.first(images)).flatten(1)
    torch.manual_seed(1)
    expected = plain.head(functional.dropout(hidden, 0.5))
    torch.manual_seed(1)
    assert torch.equal(model(images), expected)
    torch.manual_seed(2)
    assert not torch.equal(model(images), expected)
    for wrong in (-0.1, 1.0, float("nan")):
        with pytest.raises(ConfigError, match="at least 0 and below 1"):
            build_model("femnist-cnn", 0, dropout=wrong)


def test_names_are_listed_without_torch() -> None:
    code = "import sys; from qccf.learning.models.registry import MODELS; print(list(MODELS), 'torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "['femnist-cnn', 'cifar10-cnn', 'small-cnn'] False"
