"""Named random streams."""

import numpy as np

from qccf.core.streams import stream


def test_streams_are_named() -> None:
    first = stream(1, "channel", 3).random(4)
    assert (stream(1, "channel", 3).random(4) == first).all()
    assert (stream(1, "channel", np.int64(3)).random(4) == first).all(), "a NumPy integer gives the same stream"
    others = [stream(2, "channel", 3), stream(1, "channel", 4), stream(1, "placement", 3), stream(1, "channel3")]
    assert all((other.random(4) != first).all() for other in others)
