"""Converts between Flower's named arrays and the flat vector that a codec encodes."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from flwr.app import Array, ArrayRecord

from qccf.core.errors import LayoutError
from qccf.learning.results import Flat


@dataclass(frozen=True)
class Layout:
    """Names and shapes of a model's arrays, in the order of the flat vector."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> "Layout":
        """The layout of these arrays, which must all be float32."""
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
        self.require(Layout.of(arrays))
        return np.concatenate([arrays[name].numpy().ravel() for name in self.names])

    def require(self, found: "Layout") -> None:
        """Refuse arrays of another layout."""
        if found != self:
            raise LayoutError(f"the arrays are {found}, and the model has {self}.")

    def __str__(self) -> str:
        return ", ".join(f"{name}{list(shape)}" for name, shape in zip(self.names, self.shapes, strict=True))

    def unflatten(self, weights: Flat) -> ArrayRecord:
        """The vector as named arrays."""
        pieces = np.split(weights, np.cumsum(self.sizes)[:-1])
        return ArrayRecord(
            {
                name: Array(np.ascontiguousarray(piece.reshape(shape)))
                for name, shape, piece in zip(self.names, self.shapes, pieces, strict=True)
            }
        )
