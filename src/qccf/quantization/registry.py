"""The registry of codecs: one line per codec."""

from collections.abc import Callable, Sequence
from typing import Any

from qccf.core.registry import Registry
from qccf.quantization.entropy import EntropyCodec
from qccf.quantization.protocol import Codec
from qccf.quantization.sparse import SparseCodec
from qccf.quantization.uniform import UniformCodec

BLOCK = 128
"""The block size among 32 to 16,384 that needs the fewest bits, ranges included, for the same error bound."""


def _whole(kind: Callable[..., Codec], codec_id: int, relative: bool) -> Callable[..., Codec]:
    def build(num_parameters: int, layer_sizes: Sequence[int]) -> Codec:
        return kind(num_parameters, layer_sizes, codec_id=codec_id, relative=relative)

    return build


def _blocks(kind: Callable[..., Codec], codec_id: int, relative: bool, default: int | str) -> Callable[..., Codec]:
    def build(num_parameters: int, layer_sizes: Sequence[int], *, block: int | str = default) -> Codec:
        return kind(num_parameters, layer_sizes, codec_id=codec_id, relative=relative, block=block)

    return build


CODECS: Registry[Callable[..., Codec]] = Registry(
    "codec",
    {
        "model": _whole(UniformCodec, 0, relative=False),
        "update": _whole(UniformCodec, 1, relative=True),
        "block": _blocks(UniformCodec, 2, relative=False, default=BLOCK),
        "update+block": _blocks(UniformCodec, 3, relative=True, default=BLOCK),
        "model+entropy": _whole(EntropyCodec, 4, relative=False),
        "update+entropy": _whole(EntropyCodec, 5, relative=True),
        # An entropy-coded value takes a fraction of a bit, so only a few 32-bit ranges are worth their cost.
        "block+entropy": _blocks(EntropyCodec, 6, relative=False, default="layer"),
        "update+block+entropy": _blocks(EntropyCodec, 7, relative=True, default="layer"),
        "sparse": _whole(SparseCodec, 8, relative=True),
    },
    methods=("forecast", "encode", "size_bits", "decode", "accumulate"),
    call="Class(num_parameters, layer_sizes, **options)",
)


def build_codec(name: str, num_parameters: int, layer_sizes: Sequence[int], **options: Any) -> Codec:
    """The codec `name`, or a user's own `module:Class`, for vectors of `num_parameters` values."""
    codec: Codec = CODECS.build(name, num_parameters, layer_sizes, **options)
    return codec
