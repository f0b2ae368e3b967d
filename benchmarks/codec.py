"""Speed of the codecs in millions of values per second on one core, compared with NumPy and memcpy in the same run.

Run: python -m benchmarks.codec [--quick]

The last column of the last table is what `accounts.coding_cycles_per_parameter` charges: CPU cycles per parameter of
encoding an upload and forecasting the next one, at the clock that the operating system states.
"""

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from qccf.quantization.protocol import Codec, Vector
from qccf.quantization.registry import CODECS, build_codec
from support.vectors import layered_vector

LAYERS = [800, 32, 51_200, 64, 194_432, 62]
COUNT = sum(LAYERS)
RUNS_PER_TURN = 5


def best_seconds(works: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """CPU time of the shortest run of each function, because other load on the machine only adds time.

    The functions take turns, so that a slow phase of the machine affects all of them. A turn has several runs, because
    the first run finds the data of another function in the cache.
    """
    best = [math.inf] * len(works)
    for _ in range(-(-repeats // RUNS_PER_TURN)):
        for index, work in enumerate(works):
            for _ in range(RUNS_PER_TURN):
                started = time.thread_time()
                work()
                best[index] = min(best[index], time.thread_time() - started)
    return best


def field_type(num_bits: int) -> np.dtype:
    """The smallest integer type for a field, which is fastest for NumPy."""
    return np.dtype("<u1" if num_bits < 8 else "<u2" if num_bits < 16 else "<u4")


def numpy_encode(vector: Vector, num_bits: int, rng: np.random.Generator) -> bytes:
    """Quantize, unpack the fields into bits, keep the used bits, and pack them."""
    magnitudes = np.abs(vector, dtype=np.float64)
    value_range = magnitudes.max()
    magnitudes *= (2.0**num_bits - 1.0) / value_range
    lower = np.floor(magnitudes)
    lower += rng.random(len(vector)) < magnitudes - lower
    fields = lower.astype(field_type(num_bits))
    fields |= np.signbit(vector).astype(fields.dtype) << num_bits
    spread = fields.view(np.uint8).reshape(len(vector), -1)
    bits = np.unpackbits(spread, axis=1, bitorder="little", count=num_bits + 1)
    return np.float32(value_range).tobytes() + np.packbits(bits, bitorder="little").tobytes()


def numpy_accumulate(payload: bytes, num_bits: int, weight: float, total: np.ndarray) -> None:
    """Unpack into bits, pack the bits of each value into one integer, scale and add."""
    value_range = np.frombuffer(payload, dtype="<f4", count=1)[0]
    packed = np.frombuffer(payload, dtype=np.uint8, offset=4)
    spread = np.zeros((len(total), 8 * field_type(num_bits).itemsize), dtype=np.uint8)
    bits = np.unpackbits(packed, count=len(total) * (num_bits + 1), bitorder="little")
    spread[:, : num_bits + 1] = bits.reshape(len(total), -1)
    fields = np.packbits(spread, bitorder="little").view(field_type(num_bits))
    values = (fields & (2**num_bits - 1)) * (value_range / np.float32(2.0**num_bits - 1.0))
    total += weight * np.where(fields >> num_bits, -values, values)


def affine_table(codec: Codec, vector: Vector, all_bits: list[int], repeats: int) -> None:
    rng, total, copied = np.random.default_rng(0), np.zeros(COUNT), np.empty_like(vector)
    works: list[Callable[[], object]] = [lambda: np.copyto(copied, vector)]
    for num_bits in all_bits:
        payload, plain = codec.encode(vector, num_bits, 1), numpy_encode(vector, num_bits, rng)
        works += [
            partial(codec.encode, vector, num_bits, 1),
            partial(numpy_encode, vector, num_bits, rng),
            partial(codec.accumulate, payload, num_bits, 0.1, total),
            partial(numpy_accumulate, plain, num_bits, 0.1, total),
        ]
    memcpy, *speeds = (COUNT / seconds / 1e6 for seconds in best_seconds(works, repeats))
    print(f"memcpy of the float32 vector: {memcpy:,.0f} M values/s\n")
    print("| q | encode | × NumPy | of memcpy | accumulate | × NumPy | of memcpy |")
    print("|---|---|---|---|---|---|---|")
    rows = np.reshape(speeds, (len(all_bits), 4))
    for num_bits, (encode, numpy_encodes, accumulate, numpy_accumulates) in zip(all_bits, rows, strict=True):
        print(
            f"| {num_bits} | {encode:,.0f} | {encode / numpy_encodes:.0f} | {encode / memcpy:.2f} "
            f"| {accumulate:,.0f} | {accumulate / numpy_accumulates:.0f} | {accumulate / memcpy:.2f} |"
        )
    slowest, ratios = rows.min(axis=0), (rows[:, ::2] / rows[:, 1::2]).min(axis=0)
    print(
        f"\nslowest: encode {slowest[0]:,.0f} M values/s (goal 200), {ratios[0]:.1f} × NumPy; accumulate "
        f"{slowest[2]:,.0f} (goal 400), {ratios[1]:.1f} × NumPy (goal 10 ×)"
    )


def every_codec(vector: Vector, repeats: int) -> None:
    total = np.zeros(COUNT)
    cases, works = [], []
    for name in CODECS:
        codec = build_codec(name, COUNT, LAYERS)
        for num_bits in (1, 4, 8):
            payload = codec.encode(vector, num_bits, 1)
            cases.append(f"| {name} | {num_bits} | {codec.size_bits(payload) / COUNT:.3f} |")
            works += [
                partial(codec.encode, vector, num_bits, 1),
                partial(codec.accumulate, payload, num_bits, 0.1, total),
                partial(codec.forecast, vector),
            ]
    times = np.reshape(best_seconds(works, repeats), (len(cases), 3))
    clock_hz = stated_clock_hz()
    print("\n| codec | q | bits per value | encode | accumulate | forecast | cycles per parameter |")
    print("|---|---|---|---|---|---|---|")
    for case, (encode_s, accumulate_s, forecast_s) in zip(cases, times, strict=True):
        cycles = f"{(encode_s + forecast_s) * clock_hz / COUNT:.0f}" if clock_hz else "?"
        speeds = f"{COUNT / encode_s / 1e6:,.0f} | {COUNT / accumulate_s / 1e6:,.0f} | {forecast_s * 1e3:.1f} ms"
        print(f"{case} {speeds} | {cycles} |")


def stated_clock_hz() -> float | None:
    """The highest clock of a core now, as Linux states it; None elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    clocks = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    return max(clocks) * 1e6 if clocks else None


def first_use() -> None:
    """Time of the first upload of a process, with compilation and with compiled code from the cache."""
    program = (
        "import time, numpy as np; from qccf.quantization.registry import build_codec; t = time.perf_counter();"
        "v = np.zeros(10, dtype=np.float32); s = np.zeros(10);\n"
        "for name in ('update', 'update+entropy'):\n"
        "    c = build_codec(name, 10, [10]); c.forecast(v); c.accumulate(c.encode(v, 1, 0), 1, 0.0, s)\n"
        "print(time.perf_counter() - t)"
    )
    with tempfile.TemporaryDirectory() as folder:
        seconds = [
            float(
                subprocess.check_output([sys.executable, "-c", program], env={**os.environ, "NUMBA_CACHE_DIR": folder})
            )
            for _ in range(2)
        ]
    print(f"\nfirst use (not included above): {seconds[0]:.1f} s with compilation, {seconds[1]:.1f} s from the cache")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few widths and repeats, for CI")
    quick = parser.parse_args().quick
    vector, repeats = layered_vector(LAYERS), 5 if quick else 40
    codec = build_codec("model", COUNT, LAYERS)
    codec.accumulate(codec.encode(vector, 1, 0), 1, 0.0, np.zeros(COUNT))  # compile
    print(f"{COUNT:,} values, one core, M values/s\n")
    affine_table(codec, vector, [1, 4, 8, 16] if quick else list(range(1, 17)), repeats)
    every_codec(vector, repeats // 4 + 1)
    first_use()


if __name__ == "__main__":
    main()
