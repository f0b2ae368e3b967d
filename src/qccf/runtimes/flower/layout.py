"""Converts between Flower's named arrays and the flat vector [parameters | buffers] that a codec encodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import Array, ArrayRecord

from qccf.core.errors import LayoutError
from qccf.learning.results import Flat

USUAL_BUFFERS = ("running_mean", "running_var")
"""How the buffers of PyTorch's normalization layers are called. A record of arrays does not mark its buffers."""

COUNTERS = ("bool", "int", "uint")
"""How the types of arrays begin that are not averaged."""


@dataclass(frozen=True)
class Layout:
    """Names and shapes of a model's arrays in the order of the flat vector; the last ones are buffers."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    num_buffer_arrays: int = 0

    @classmethod
    def of(cls, arrays: Mapping[str, Array], buffers: Sequence[str] | None = None) -> "Layout":
        """The layout of these arrays, which must be float32; counters are left out.

        `buffers` names the arrays that are buffers; None means those that PyTorch's normalization layers have.
        """
        averaged = {name: array for name, array in arrays.items() if not array.dtype.startswith(COUNTERS)}
        for name, array in averaged.items():
            if array.dtype != "float32":
                raise LayoutError(
                    f"array {name!r} is {array.dtype}, and only float32 can be quantized: leave it out of the "
                    "record or convert it."
                )
        if buffers is None:
            buffers = [name for name in averaged if name.rpartition(".")[2] in USUAL_BUFFERS]
        unknown = sorted(set(buffers) - set(averaged))
        if unknown:
            raise LayoutError(f"buffer {unknown[0]!r} is not one of the float32 arrays: {', '.join(averaged)}.")
        order = [*(name for name in averaged if name not in buffers), *buffers]
        if len(order) == len(buffers):
            raise LayoutError("there are no float32 arrays that are parameters: put the model into the record.")
        return cls(tuple(order), tuple(tuple(averaged[name].shape) for name in order), len(buffers))

    @property
    def buffers(self) -> tuple[str, ...]:
        """Names of the buffers."""
        return self.names[len(self.names) - self.num_buffer_arrays :]

    @property
    def sizes(self) -> list[int]:
        """The number of values of each parameter array."""
        return self._all_sizes[: len(self.names) - self.num_buffer_arrays]

    @property
    def _all_sizes(self) -> list[int]:
        return [int(np.prod(shape)) for shape in self.shapes]

    @property
    def num_parameters(self) -> int:
        return sum(self.sizes)

    @property
    def num_values(self) -> int:
        """Parameters and buffer values."""
        return sum(self._all_sizes)

    @property
    def num_buffers(self) -> int:
        """Buffer values."""
        return self.num_values - self.num_parameters

    def flatten(self, arrays: Mapping[str, Array]) -> Flat:
        """The arrays as one vector; they must have this layout."""
        self.require(Layout.of(arrays, self.buffers))
        return np.concatenate([arrays[name].numpy().ravel() for name in self.names])

    def require(self, found: "Layout") -> None:
        """Refuse arrays of another layout."""
        if found != self:
            raise LayoutError(f"the arrays are {found}, and the model has {self}.")

    def __str__(self) -> str:
        return ", ".join(f"{name}{list(shape)}" for name, shape in zip(self.names, self.shapes, strict=True))

    def unflatten(self, weights: Flat, like: ArrayRecord | None = None) -> ArrayRecord:
        """The vector as named arrays; with `like`, in its order and with its counters."""
        pieces = np.split(weights, np.cumsum(self._all_sizes)[:-1])
        arrays = {
            name: Array(np.ascontiguousarray(piece.reshape(shape)))
            for name, shape, piece in zip(self.names, self.shapes, pieces, strict=True)
        }
        return ArrayRecord(arrays if like is None else {name: arrays.get(name, array) for name, array in like.items()})
