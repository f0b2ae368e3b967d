"""The convolution layers, compared with PyTorch in float64, and the cases in which they use PyTorch."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from qccf.learning.fast_convolution.convolution import fits
from qccf.learning.fast_convolution.fourier import FREQUENCIES, F, images_of, transform_images
from qccf.learning.fast_convolution.layers import Conv5x5, ConvPoolRelu
from qccf.learning.models.cifar10_cnn import Cifar10Cnn
from qccf.learning.models.femnist_cnn import FemnistCnn


def reference(images: torch.Tensor, layer: ConvPoolRelu) -> torch.Tensor:
    """The order of the paper: ReLU, then pooling."""
    convolved = functional.conv2d(images, layer.weight.to(images.dtype), layer.bias.to(images.dtype), padding=2)
    return functional.max_pool2d(functional.relu(convolved), 2)


@pytest.mark.parametrize(
    ("samples", "inputs", "outputs", "height", "width"),
    [
        (3, 1, 32, 28, 28),
        (9, 32, 64, 14, 14),
        (2, 16, 32, 6, 10),
        (17, 32, 16, 2, 2),
        (1, 1, 1, 4, 2),
        (23, 1, 48, 6, 10),
        (70, 48, 16, 14, 8),
        (2, 16, 16, 16, 12),
        (2, 17, 32, 8, 8),
        (2, 32, 17, 8, 8),
    ],
)
def test_values_and_gradients_equal_pytorch(samples: int, inputs: int, outputs: int, height: int, width: int) -> None:
    torch.manual_seed(samples)
    layer = ConvPoolRelu(inputs, outputs)
    images = torch.rand(samples, inputs, height, width)
    images.requires_grad_(inputs > 1)
    pooled = layer(images)
    weights = torch.randn(pooled.shape)
    (pooled * weights).sum().backward()

    exact = ConvPoolRelu(inputs, outputs)
    exact.load_state_dict(layer.state_dict())
    exact.double()
    wide = images.detach().double().requires_grad_()
    expected = reference(wide, exact)
    (expected * weights).sum().backward()

    pairs = [(pooled, expected), (layer.weight.grad, exact.weight.grad), (layer.bias.grad, exact.bias.grad)]
    assert_close([*pairs, (images.grad, wide.grad)] if inputs > 1 else pairs)


@pytest.mark.parametrize(
    ("samples", "inputs", "outputs", "height", "width"),
    [
        (9, 64, 64, 14, 14),
        (2, 3, 5, 32, 9),
        (17, 16, 32, 5, 5),
        (1, 16, 16, 8, 7),
        (8, 32, 48, 6, 13),
        (3, 16, 16, 16, 16),
        (3, 16, 16, 17, 16),
    ],
)
def test_a_convolution_without_pooling_equals_pytorch(
    samples: int, inputs: int, outputs: int, height: int, width: int
) -> None:
    torch.manual_seed(samples)
    layer, images = Conv5x5(inputs, outputs), torch.rand(samples, inputs, height, width, requires_grad=True)
    convolved = layer(images)
    weights = torch.randn(convolved.shape)
    (convolved * weights).sum().backward()

    wide, kernel, bias = (one.detach().double().requires_grad_() for one in (images, layer.weight, layer.bias))
    expected = functional.conv2d(wide, kernel, bias)
    (expected * weights).sum().backward()
    assert_close(
        [
            (convolved, expected),
            (layer.weight.grad, kernel.grad),
            (layer.bias.grad, bias.grad),
            (images.grad, wide.grad),
        ]
    )


def assert_close(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Compare float32 with float64."""
    for ours, theirs in pairs:
        assert ours.shape == theirs.shape
        assert torch.allclose(ours.double(), theirs, rtol=0.0, atol=3e-5 * theirs.abs().max().item() + 1e-7)


def test_images_that_require_a_gradient_get_one() -> None:
    layer = ConvPoolRelu(1, 4)
    images = torch.rand(2, 1, 8, 8, requires_grad=True)
    layer(images).sum().backward()
    again = images.detach().requires_grad_()
    reference(again, layer).sum().backward()
    assert torch.allclose(images.grad, again.grad, atol=1e-5)


def test_windows_without_a_positive_value_have_zero_gradient() -> None:
    for inputs in (1, 16):
        layer = ConvPoolRelu(inputs, 16)
        with torch.no_grad():
            layer.bias.fill_(-100.0)
        pooled = layer(torch.rand(2, inputs, 8, 8))
        pooled.sum().backward()
        assert (pooled == 0).all()
        assert (layer.weight.grad == 0).all()
        assert (layer.bias.grad == 0).all()


def test_nan_is_propagated() -> None:
    for inputs in (1, 16):
        layer = ConvPoolRelu(inputs, 16)
        with torch.no_grad():
            layer.weight.fill_(torch.nan)
        assert layer(torch.rand(2, inputs, 8, 8)).isnan().all()


def test_one_nan_among_numbers_spreads_as_with_pytorch() -> None:
    layer, images = ConvPoolRelu(1, 4), torch.rand(1, 1, 10, 10)
    images[0, 0, 7, 7] = torch.nan
    expected = reference(images, layer).isnan()
    assert 0 < expected.sum() < expected.numel()
    assert torch.equal(layer(images).isnan(), expected)


@pytest.mark.parametrize("layer", [ConvPoolRelu(1, 4), ConvPoolRelu(16, 16), Conv5x5(64, 64)])
@pytest.mark.parametrize("channels", [3, 8, 160])
def test_another_number_of_channels_is_refused(layer: nn.Conv2d, channels: int) -> None:
    with pytest.raises(RuntimeError, match=f"got {channels} channels"):
        layer(torch.rand(2, channels, 14, 14))


def test_images_and_weights_of_different_precision_are_refused() -> None:
    with pytest.raises(RuntimeError, match="type"):
        ConvPoolRelu(16, 16).double()(torch.rand(2, 16, 14, 14))


def test_other_shapes_types_and_autocast_use_pytorch() -> None:
    layer = ConvPoolRelu(3, 4)
    odd = torch.rand(2, 3, 7, 9)
    assert torch.equal(layer(odd), reference(odd, layer))
    images = torch.rand(2, 3, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(images).dtype == torch.bfloat16
        assert Conv5x5(3, 4)(images).dtype == torch.bfloat16
    assert torch.allclose(layer.double()(images.double()), reference(images.double(), layer))


def test_the_memory_layout_does_not_matter() -> None:
    layer, images = ConvPoolRelu(16, 32), torch.rand(3, 16, 6, 6)
    assert torch.equal(layer(images), layer(images.contiguous(memory_format=torch.channels_last)))


def test_the_femnist_model_is_its_two_layers_and_a_head() -> None:
    torch.manual_seed(0)
    model, images = FemnistCnn(), torch.rand(3, 1, 28, 28)
    hidden = reference(reference(images, model.first), model.second)
    assert torch.allclose(model(images), model.head(hidden.flatten(1)), atol=1e-5)


def test_the_cifar10_model_is_its_two_layers_and_a_head() -> None:
    """The order of the paper in float64: ReLU, then pooling, with ceil_mode after the first layer only."""
    torch.manual_seed(0)
    model, images = Cifar10Cnn(), torch.rand(3, 3, 32, 32)
    ours = model(images)
    model.double()
    hidden = functional.max_pool2d(functional.relu(model.first(images.double())), 3, 2, ceil_mode=True)
    convolved = functional.conv2d(hidden, model.second.weight, model.second.bias)
    hidden = functional.max_pool2d(functional.relu(convolved), 3, 2)
    assert torch.allclose(ours.double(), model.head(hidden.flatten(1)), atol=1e-5)


def test_transforms_equal_those_of_numpy() -> None:
    """The frequencies and their conjugates are all 256, and the first is 0: its value is the gradient of the bias."""
    image = np.random.default_rng(0).standard_normal((3, 14, 15, 32)).astype(F)
    points = np.empty((len(FREQUENCIES), 3, 32, 2), F)
    transform_images(image, F(1.0), points)
    theirs = np.fft.fft2(image, (16, 16), axes=(1, 2))
    for (down, across), (real, imaginary) in zip(FREQUENCIES, np.moveaxis(points, 3, 1), strict=True):
        assert np.abs(theirs[:, down, across] - (real + 1j * imaginary)).max() < 1e-4
    assert FREQUENCIES[0] == (0, 0)
    conjugates = [(-down % 16, -across % 16) for down, across in FREQUENCIES]
    assert len({*FREQUENCIES, *conjugates}) == 256


@pytest.mark.parametrize("samples", [2, 8, 9])
def test_the_inverse_gives_256_times_the_image(samples: int) -> None:
    image = np.random.default_rng(1).standard_normal((samples, 14, 9, 16)).astype(F)
    points, again = np.empty((len(FREQUENCIES), samples, 16, 2), F), np.empty_like(image)
    transform_images(image, F(-1.0), points)
    images_of(points, F(-1.0), again)
    assert np.abs(again / 256.0 - image).max() < 1e-5


def test_one_image_by_hand() -> None:
    """Image and kernel of ones: a corner is the sum over 3 × 3 ones, the centre over 5 × 5."""
    layer = ConvPoolRelu(16, 16)
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[0, 0] = 1.0
        layer.bias.zero_()
    pooled = layer(torch.ones(1, 16, 6, 6))[0, 0]  # the largest of each window of 2 × 2
    assert torch.allclose(pooled, torch.tensor([[16.0, 20.0, 16.0], [20.0, 25.0, 20.0], [16.0, 20.0, 16.0]]))


@pytest.mark.parametrize(("size", "border", "expected"), [(14, 2, True), (15, 2, False), (16, 0, True), (17, 0, False)])
def test_images_that_would_meet_their_other_edge_use_pytorch(size: int, border: int, expected: bool) -> None:
    layer = nn.Conv2d(16, 32, 5)
    assert fits(layer, size, 8, border) is expected
    assert fits(layer, 8, size, border) is expected


@pytest.mark.parametrize(("inputs", "outputs"), [(16, 17), (24, 16)])
def test_channels_that_are_no_multiples_of_16_use_pytorch(inputs: int, outputs: int) -> None:
    assert not fits(nn.Conv2d(inputs, outputs, 5), 8, 8, 0)


def test_more_samples_than_a_block_and_a_block_alone_agree() -> None:
    torch.manual_seed(0)
    layer, images = Conv5x5(16, 16), torch.rand(197, 16, 8, 8, requires_grad=True)
    layer(images).square().sum().backward()
    whole, layer.weight.grad = layer.weight.grad.clone(), None
    for part in images.detach().split(64):
        layer(part).square().sum().backward()
    assert torch.allclose(whole, layer.weight.grad, rtol=1e-4)


def test_no_samples_have_no_gradient() -> None:
    for layer in (Conv5x5(16, 16), ConvPoolRelu(16, 16), ConvPoolRelu(1, 16)):
        layer(torch.empty(0, layer.in_channels, 8, 8)).sum().backward()
        assert (layer.weight.grad == 0).all()
        assert (layer.bias.grad == 0).all()
