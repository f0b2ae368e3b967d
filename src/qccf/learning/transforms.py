"""What is done to a batch before the model gets it: standardisation, and random changes of images in training.

A transform is built as Class(train_inputs) with the training part as the dataset holds it, and called with a batch of
model inputs and a generator. A `random` one is left out in evaluation. To add one, write a class and add a line here.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from qccf.core.errors import ConfigError
from qccf.core.registry import Registry


class Transform(Protocol):
    random: bool

    def __call__(self, batch: torch.Tensor, rng: np.random.Generator | None) -> torch.Tensor: ...


class Standardise:
    """Mean 0 and standard deviation 1 in the training part, for each channel of images or each feature."""

    random = False

    def __init__(self, train_inputs: NDArray[Any]) -> None:
        if np.issubdtype(train_inputs.dtype, np.integer) and train_inputs.dtype != np.uint8:
            raise ConfigError('data.transform: "standardise" is for images and features, not for token ids.')
        images = train_inputs.dtype == np.uint8
        values = train_inputs[..., None] if images and train_inputs.ndim == 3 else train_inputs
        scale = 255.0 if images else 1.0
        axes = tuple(range(values.ndim - 1))
        mean = np.mean(values, axis=axes, dtype=np.float64) / scale
        std = np.std(values, axis=axes, dtype=np.float64) / scale
        shape = (1, -1, 1, 1) if images else (-1,)
        self._mean = torch.from_numpy(mean.astype(np.float32)).reshape(shape)
        self._std = torch.from_numpy(np.where(std > 0.0, std, 1.0).astype(np.float32)).reshape(shape)

    def __call__(self, batch: torch.Tensor, rng: np.random.Generator | None) -> torch.Tensor:
        return (batch - self._mean.to(batch.device)) / self._std.to(batch.device)


class _OfImages:
    random = True

    def __init__(self, train_inputs: NDArray[Any]) -> None:
        if train_inputs.dtype != np.uint8:
            raise ConfigError(f"data.transform: {type(self).__name__.lower()!r} is for images only.")


class Flip(_OfImages):
    """Half of the images are mirrored, left to right."""

    def __call__(self, batch: torch.Tensor, rng: np.random.Generator | None) -> torch.Tensor:
        assert rng is not None
        chosen = torch.from_numpy(rng.random(len(batch)) < 0.5).to(batch.device)
        return torch.where(chosen[:, None, None, None], batch.flip(3), batch)


class Crop(_OfImages):
    """Each image is moved by up to 4 pixels in both directions; what comes in from outside is 0."""

    def __call__(self, batch: torch.Tensor, rng: np.random.Generator | None) -> torch.Tensor:
        return _moved(batch, rng, 4)


class Shift(_OfImages):
    """As `Crop`, by up to 2 pixels: for characters that fill most of their image."""

    def __call__(self, batch: torch.Tensor, rng: np.random.Generator | None) -> torch.Tensor:
        return _moved(batch, rng, 2)


def _moved(batch: torch.Tensor, rng: np.random.Generator | None, most: int) -> torch.Tensor:
    """Each image [channel, row, column] of a batch, moved by up to `most` pixels in both directions."""
    assert rng is not None
    height, width = batch.shape[2:]
    padded = torch.nn.functional.pad(batch, [most] * 4)
    corners = rng.integers(0, 2 * most + 1, (len(batch), 2))
    pieces = [one[:, y : y + height, x : x + width] for one, (y, x) in zip(padded, corners, strict=True)]
    return torch.stack(pieces)


TRANSFORMS: Registry[Any] = Registry(
    "transform", {"standardise": Standardise, "flip": Flip, "crop": Crop, "shift": Shift}, call="Class(train_inputs)"
)


def build_transforms(names: Sequence[str], train_inputs: NDArray[Any]) -> list[Transform]:
    return [TRANSFORMS.build(name, train_inputs) for name in names]
