"""Named random streams derived from one seed.

A stream is named by words and numbers, such as ``("channel", round)``. Two policies that use the same name get the
same draws, whatever they drew before. So they see the same cell, fading and data, and a resumed run needs no saved
generator state.
"""

import hashlib
import operator

import numpy as np


def stream(seed: int, *name: str | int) -> np.random.Generator:
    """The generator that belongs to ``name`` under ``seed``."""
    words = np.frombuffer(_digest(*name), dtype="<u4").tolist()
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *words])))


def key(seed: int, *name: str | int) -> int:
    """64 bits that belong to ``name`` under ``seed``, for randomness that is a function of a counter."""
    return int.from_bytes(_digest("key", seed, *name)[:8], "little")


def _digest(*name: str | int) -> bytes:
    parts = tuple(part if isinstance(part, str) else operator.index(part) for part in name)  # NumPy integers too
    return hashlib.sha256(repr(parts).encode()).digest()
