"""Mutated payloads for tests and benchmarks of the decoders."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from qccf.core.errors import PayloadError
from qccf.quantization.protocol import Buffer, Codec
from qccf.quantization.registry import CODECS, build_codec
from qccf.quantization.wire import HEADER_BYTES, checksum
from support.vectors import layered_vector

LAYERS = ([1], [5, 3, 16], [60, 90])
NUM_BITS = (1, 2, 3, 4, 7, 8, 13, 16, 17, 24, 31, 32)
EDGE_NUMBERS = (0, 1, 2, 3, 7, 8, 16, 24, 31, 32, 33, 127, 128, 254, 255, 2**15, 2**16 - 1, 2**31, 2**32 - 1)
EDGE_FLOATS = tuple(np.array([0.0, -0.0, 1.0, -1.0, np.inf, np.nan, 3e38, 1e-45], dtype="<f4").view("<u4").tolist())


@dataclass(frozen=True)
class Sample:
    """A valid payload and its codec."""

    name: str
    codec: Codec
    num_parameters: int
    num_bits: int
    payload: bytes


def samples() -> list[Sample]:
    """Valid payloads of every codec, for short and long vectors, every kind of q, random values and zeros."""
    found = []
    for name in CODECS:
        for layers in LAYERS:
            options = {"block": 7} if name.endswith("block") else {}
            count, codec = sum(layers), build_codec(name, sum(layers), layers, **options)
            for num_bits in NUM_BITS:
                for vector in (layered_vector(layers, seed=num_bits), np.zeros(count, dtype=np.float32)):
                    found.append(Sample(name, codec, count, num_bits, codec.encode(vector, num_bits, num_bits)))
    return found


def with_right_checksum(payload: Buffer) -> bytes:
    """The same payload with the checksum of its present bytes."""
    return bytes(payload[:12]) + checksum(payload).to_bytes(4, "little") + bytes(payload[16:])


def flip(payload: bytearray, rng: random.Random, first: int) -> None:
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        if len(payload) > first:
            payload[rng.randrange(first, len(payload))] ^= 1 << rng.randrange(8)


def truncate(payload: bytearray, rng: random.Random, first: int) -> None:
    if len(payload) > first:
        del payload[rng.randrange(first, len(payload)) :]


def extend(payload: bytearray, rng: random.Random, _: int) -> None:
    payload += rng.randbytes(rng.choice((1, 1, 2, 3, 4, 8, 50)))


def insert(payload: bytearray, rng: random.Random, first: int) -> None:
    place = rng.randint(min(first, len(payload)), len(payload))
    payload[place:place] = rng.randbytes(rng.choice((1, 2, 4)))


def remove(payload: bytearray, rng: random.Random, first: int) -> None:
    if len(payload) > first:
        place = rng.randrange(first, len(payload))
        del payload[place : place + rng.choice((1, 2, 4, 8))]


def edge_number(payload: bytearray, rng: random.Random, first: int) -> None:
    size = rng.choice((1, 2, 4))
    if len(payload) >= first + size:
        place = rng.randrange(first, len(payload) - size + 1)
        number = rng.choice(EDGE_FLOATS if size == 4 and rng.random() < 0.5 else EDGE_NUMBERS)
        payload[place : place + size] = (number & (256**size - 1)).to_bytes(size, "little")


def noise(payload: bytearray, rng: random.Random, first: int) -> None:
    if len(payload) > first:
        place = rng.randrange(first, len(payload))
        payload[place:] = rng.randbytes(len(payload) - place)


MUTATIONS: tuple[Callable[[bytearray, random.Random, int], None], ...] = (
    flip,
    flip,
    truncate,
    extend,
    insert,
    remove,
    edge_number,
    edge_number,
    noise,
)


def mutated(sample: Sample, other: Sample, rng: random.Random) -> bytes:
    """The payload with some changes, mostly in its body, and mostly with a checksum that fits them."""
    payload = bytearray(sample.payload)
    first = 0 if rng.random() < 0.2 else HEADER_BYTES
    if rng.random() < 0.15:
        payload[rng.randint(first, len(payload)) :] = other.payload[rng.randrange(len(other.payload)) :]
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        rng.choice(MUTATIONS)(payload, rng, first)
    if len(payload) >= HEADER_BYTES and rng.random() < 0.85:
        return with_right_checksum(payload)
    return bytes(payload)


def outcome(sample: Sample, payload: bytes, num_bits: int) -> str:
    """ "decoded", or the name of the PayloadError. Raises if a refusal left a trace or a vector is invalid."""
    total = np.zeros(sample.num_parameters)
    try:
        sample.codec.accumulate(payload, num_bits, 1.0, total)
    except PayloadError as error:
        if total.any():
            raise AssertionError("a refused payload changed the total") from error
        return type(error).__name__
    vector = sample.codec.decode(payload, num_bits)
    assert vector.shape == (sample.num_parameters,)
    assert vector.dtype == np.float32
    assert np.isfinite(vector).all()
    assert (vector == total).all()
    return "decoded"


def fuzz(count: int, seed: int) -> Counter[str]:
    """Decode `count` mutated payloads and count the outcomes. Raises with the first payload that breaks a decoder."""
    rng = random.Random(seed)
    pool = samples()
    counts: Counter[str] = Counter()
    for _ in range(count):
        sample = rng.choice(pool)
        payload = mutated(sample, rng.choice(pool), rng)
        num_bits = sample.num_bits if rng.random() < 0.98 else rng.choice(NUM_BITS)
        try:
            counts[outcome(sample, payload, num_bits)] += 1
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            raise AssertionError(
                f"{sample.name}, q = {num_bits}, {sample.num_parameters} values: {payload.hex()}"
            ) from error
    return counts
