"""The table of codecs, and how a name in the config becomes one."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from qccf.core import registry as plugins
from qccf.quantization.entropy import EntropyCodec
from qccf.quantization.protocol import Codec
from qccf.quantization.uniform import UniformCodec

BLOCK = 128
"""Of 32 to 16,384 values, the block that needs the fewest bits for the same error bound, ranges included."""

METHODS = ("forecast", "encode", "size_bits", "decode", "accumulate")


def _whole(kind: Callable[..., Codec], codec_id: int, relative: bool) -> Callable[..., Codec]:
    def build(num_parameters: int, layer_sizes: Sequence[int]) -> Codec:
        return kind(num_parameters, layer_sizes, codec_id=codec_id, relative=relative)

    return build


def _blocks(kind: Callable[..., Codec], codec_id: int, relative: bool, default: int | str) -> Callable[..., Codec]:
    def build(num_parameters: int, layer_sizes: Sequence[int], *, block: int | str = default) -> Codec:
        return kind(num_parameters, layer_sizes, codec_id=codec_id, relative=relative, block=block)

    return build


CODECS: dict[str, Callable[..., Codec]] = {
    "model": _whole(UniformCodec, 0, relative=False),
    "update": _whole(UniformCodec, 1, relative=True),
    "block": _blocks(UniformCodec, 2, relative=False, default=BLOCK),
    "update+block": _blocks(UniformCodec, 3, relative=True, default=BLOCK),
    "model+entropy": _whole(EntropyCodec, 4, relative=False),
    "update+entropy": _whole(EntropyCodec, 5, relative=True),
    # where a value takes a fraction of a bit, only few ranges are worth their 32
    "block+entropy": _blocks(EntropyCodec, 6, relative=False, default="layer"),
    "update+block+entropy": _blocks(EntropyCodec, 7, relative=True, default="layer"),
}


def build_codec(name: str, num_parameters: int, layer_sizes: Sequence[int], **options: Any) -> Codec:
    """The codec of that name, or a user's own as `module:Class`, for vectors of that many values."""
    factory = plugins.find("codec", name, CODECS, METHODS)
    return plugins.build(
        "codec",
        name,
        partial(factory, num_parameters, layer_sizes),
        "Class(num_parameters, layer_sizes, **options)",
        **options,
    )
