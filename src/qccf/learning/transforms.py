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
        assert rng is not None
        height, width = batch.shape[2:]
        padded = torch.nn.functional.pad(batch, [4] * 4)
        corners = rng.integers(0, 9, (len(batch), 2))
        pieces = [one[:, y : y + height, x : x + width] for one, (y, x) in zip(padded, corners, strict=True)]
        return torch.stack(pieces)


class Affine(_OfImages):
    """Each image is turned by up to 12°, scaled by up to 12 %, slanted by up to 0.15 and moved by up to 2 pixels.

    As characters differ between writers. Values between pixels are interpolated; what comes in from outside is 0.
    """

    def __call__(self, batch: torch.Tensor, rng: np.random.Generator | None) -> torch.Tensor:
        assert rng is not None
        count = len(batch)
        angles, scales = np.deg2rad(rng.uniform(-12.0, 12.0, count)), rng.uniform(0.88, 1.12, count)
        slants = rng.uniform(-0.15, 0.15, count)
        height, width = batch.shape[2:]
        # Where each pixel of the result comes from, in coordinates in which width and height are 2.
        places = np.zeros((count, 2, 3), dtype=np.float32)
        places[:, 0, 0] = places[:, 1, 1] = np.cos(angles) / scales
        places[:, 1, 0] = np.sin(angles) / scales * width / height
        places[:, 0, 1] = (slants - np.sin(angles) / scales) * height / width
        places[:, :, 2] = rng.uniform(-2.0, 2.0, (count, 2)) * 2.0 / np.array([width, height])
        moved = torch.from_numpy(places).to(batch.device)
        grid = torch.nn.functional.affine_grid(moved, list(batch.shape), align_corners=False)
        changed = torch.nn.functional.grid_sample(batch, grid, align_corners=False)
        return changed.contiguous(memory_format=torch.channels_last)


TRANSFORMS: Registry[Any] = Registry(
    "transform", {"standardise": Standardise, "flip": Flip, "crop": Crop, "affine": Affine}, call="Class(train_inputs)"
)


def build_transforms(names: Sequence[str], train_inputs: NDArray[Any]) -> list[Transform]:
    return [TRANSFORMS.build(name, train_inputs) for name in names]
