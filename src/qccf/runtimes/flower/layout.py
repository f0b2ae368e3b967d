"""Between Flower's named arrays and the one flat vector that a codec codes."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from flwr.app import Array, ArrayRecord

from qccf.core.errors import QccfError
from qccf.learning.results import Flat


class LayoutError(QccfError):
    """Arrays that are not the model that was agreed on."""


@dataclass(frozen=True)
class Layout:
    """Names and shapes of a model's arrays, in the order of the flat vector."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> "Layout":
        """The layout of these arrays; only what can be quantized is allowed among them."""
        for name, array in arrays.items():
            if array.dtype != "float32":
                raise LayoutError(
                    f"array {name!r} is {array.dtype}, and only float32 can be quantized: leave it out of the "
                    "record or convert it."
                )
        return cls(tuple(arrays), tuple(tuple(array.shape) for array in arrays.values()))

    @property
    def sizes(self) -> list[int]:
        return [int(np.prod(shape)) for shape in self.shapes]

    @property
    def num_parameters(self) -> int:
        return sum(self.sizes)

    def flatten(self, arrays: Mapping[str, Array]) -> Flat:
        """The arrays as one vector; they must have this layout."""
        found = Layout.of(arrays)
        if found != self:
            raise LayoutError(f"the arrays are {_told(found)}, and the model has {_told(self)}.")
        return np.concatenate([arrays[name].numpy().ravel() for name in self.names])

    def unflatten(self, weights: Flat) -> ArrayRecord:
        """The vector as named arrays."""
        pieces = np.split(weights, np.cumsum(self.sizes)[:-1])
        return ArrayRecord(
            {
                name: Array(np.ascontiguousarray(piece.reshape(shape)))
                for name, shape, piece in zip(self.names, self.shapes, pieces, strict=True)
            }
        )


def _told(layout: Layout) -> str:
    return ", ".join(f"{name}{list(shape)}" for name, shape in zip(layout.names, layout.shapes, strict=True))
