"""Modulation and coding schemes of 5G NR, with block errors and retransmissions (HARQ).

**Tables.** Modulation order and code rate are those of 3GPP TS 38.214, Tables 5.1.3.1-1 (`qam64`), 5.1.3.1-2 (`qam256`)
and 5.1.3.1-3 (`qam64-low`). The uplink without transform precoding uses the same three (TS 38.214, 6.1.4.1). A scheme
carries (bits per symbol)·(code rate) bits per resource element. Of a channel's bandwidth, 14/15 is left by the cyclic
prefix (14 symbols of 15 kHz·2^μ subcarriers in 1 ms/2^μ), and a share `overhead` goes to control and reference signals;
0.08 is what TS 38.306, 4.1.2, prescribes for the uplink below 6 GHz. One layer is sent.

**Block errors.** The standard states no signal-to-noise thresholds. Here they follow from the normal approximation of
Polyanskiy, Poor and Verdú (2010): a block of n symbols that carries R bits per symbol fails with probability

    Q( (C − R + log2(n)/(2n)) / sqrt(V/n) ),   C = log2(1 + s),   V = (1 − (1 + s)^−2)·log2(e)²

where s is the signal-to-noise ratio less `margin_db`. *Assumed*: the margin (3 dB for finite constellations, channel
estimation and the decoder), and the length of a block: what a channel carries in one slot of 1 ms, but no more than
NR's largest code block of 8448 bits. A narrow channel therefore has short blocks and needs more power.

**Which scheme.** Of the schemes that fail with at most `block_error_rate` in the first transmission, the one with the
highest rate after retransmissions is used, so that the rate never falls as the channel gets better.

**Retransmissions.** Receivers add up the power of all transmissions of a block (chase combining), so that a block fails
after k of them with p_k, the probability above at k·s. Of at most N transmissions 1 + p_1 + … + p_(N−1) are expected;
a block that then still fails is sent anew by the layer above. So the rate is divided by
(1 + p_1 + … + p_(N−1)) / (1 − p_N).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.core.options import option
from qccf.core.units import db_to_linear, linear_to_db

QAM64 = (
    (2, (120, 157, 193, 251, 308, 379, 449, 526, 602, 679)),
    (4, (340, 378, 434, 490, 553, 616, 658)),
    (6, (438, 466, 517, 567, 616, 666, 719, 772, 822, 873, 910, 948)),
)
QAM256 = (
    (2, (120, 193, 308, 449, 602)),
    (4, (378, 434, 490, 553, 616, 658)),
    (6, (466, 517, 567, 616, 666, 719, 772, 822, 873)),
    (8, (682.5, 711, 754, 797, 841, 885, 916.5, 948)),
)
QAM64_LOW = (
    (2, (30, 40, 50, 64, 78, 99, 120, 157, 193, 251, 308, 379, 449, 526, 602)),
    (4, (340, 378, 434, 490, 553, 616)),
    (6, (438, 466, 517, 567, 616, 666, 719, 772)),
)
TABLES = {"qam64": QAM64, "qam256": QAM256, "qam64-low": QAM64_LOW}
"""Bits per symbol, and 1024 times the code rate of each scheme with this modulation."""

CYCLIC_PREFIX_SHARE = 14.0 / 15.0
SLOT_S = 1e-3
LARGEST_BLOCK_BITS = 8448.0
STEP_DB = 0.01
"""Rates are tabulated in steps of this size; a channel between two steps has the rate of the lower one."""


@dataclass(frozen=True)
class Mcs:
    """Options of the rate model mcs: the modulation and coding schemes of 5G NR."""

    section = "mcs"

    table: Literal["qam64", "qam256", "qam64-low"] = option(
        "qam256", "table of TS 38.214: 5.1.3.1-1, 5.1.3.1-2 or 5.1.3.1-3"
    )
    block_error_rate: float = option(0.1, "most block errors of a first transmission", gt=0, le=0.5)
    transmissions_max: int = option(4, "most transmissions of a block (HARQ)", ge=1, le=16)
    margin_db: float = option(3.0, "what a receiver needs above the normal approximation; assumed", ge=0, le=30)
    overhead: float = option(0.08, "share of resource elements without data", ge=0, lt=1)

    def rates_bps(self, signal_to_noise: Any, *, bandwidth_hz: float) -> Any:
        first_db, efficiencies = _tabulated(self, block_symbols(bandwidth_hz))
        with np.errstate(divide="ignore"):
            steps = np.floor((linear_to_db(signal_to_noise) - first_db) / STEP_DB)
        index = np.clip(steps, -1.0, len(efficiencies) - 1.0).astype(np.int64) + 1
        usable = bandwidth_hz * CYCLIC_PREFIX_SHARE * (1.0 - self.overhead)
        return usable * np.concatenate([[0.0], efficiencies])[index]


def block_symbols(bandwidth_hz: float) -> float:
    """Resource elements of a channel in one slot."""
    return bandwidth_hz * CYCLIC_PREFIX_SHARE * SLOT_S


def efficiencies(table: str) -> FloatArray:
    """Bits per resource element of each scheme, in rising order: the order of the standard, but for one pair."""
    return np.sort([order * rate / 1024.0 for order, rates in TABLES[table] for rate in rates])


def block_error_rate(signal_to_noise: Any, bits_per_symbol: Any, symbols: Any) -> Any:
    """Probability that a block of `symbols` fails, by the normal approximation."""
    from scipy.special import ndtr  # Q(x) is ndtr(-x)

    capacity = np.log2(1.0 + signal_to_noise)
    dispersion = (1.0 - (1.0 + signal_to_noise) ** -2.0) * np.log2(np.e) ** 2
    surplus = capacity - bits_per_symbol + np.log2(symbols) / (2.0 * symbols)
    return ndtr(-surplus / np.sqrt(np.maximum(dispersion, 1e-300) / symbols))


def thresholds_db(options: Mcs, symbols: float) -> FloatArray:
    """The least signal-to-noise ratio at which each scheme meets the block error rate, by bisection."""
    carried = efficiencies(options.table)
    lengths = np.minimum(symbols, LARGEST_BLOCK_BITS / carried)
    low, high = np.full(len(carried), -60.0), np.full(len(carried), 80.0)
    for _ in range(60):
        middle = 0.5 * (low + high)
        fails = block_error_rate(db_to_linear(middle - options.margin_db), carried, lengths) > options.block_error_rate
        low, high = np.where(fails, middle, low), np.where(fails, high, middle)
    return high


@lru_cache(maxsize=256)
def _tabulated(options: Mcs, symbols: float) -> tuple[float, FloatArray]:
    """The first threshold, and the bits per resource element after retransmissions from there in steps."""
    carried, thresholds = efficiencies(options.table), thresholds_db(options, symbols)
    lengths = np.minimum(symbols, LARGEST_BLOCK_BITS / carried)
    first_db = float(thresholds.min())
    grid_db = np.arange(first_db, thresholds.max() + 10.0, STEP_DB)
    ratios = db_to_linear(grid_db - options.margin_db)[:, None]
    failures = [block_error_rate(k * ratios, carried, lengths) for k in range(1, options.transmissions_max + 1)]
    with np.errstate(divide="ignore"):  # far below its threshold a scheme needs infinitely many
        transmissions = (1.0 + sum(failures[:-1])) / (1.0 - failures[-1])
    rates = np.where(grid_db[:, None] >= thresholds, carried / transmissions, 0.0)
    return first_db, rates.max(axis=1)
