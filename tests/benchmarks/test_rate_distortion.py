"""The measured rates and errors of the codecs, and the line that none of them can cross."""

import numpy as np
import pytest

from benchmarks import rate_distortion
from benchmarks.rate_distortion import BITS, least_error, measured
from qccf.quantization.registry import CODECS


def test_the_line_by_hand() -> None:
    """Half a bit leaves half of the variance; scaled to be unbiased, the error is the variance itself."""
    assert least_error(0.5) == pytest.approx(1.0)
    assert least_error(1.0) == pytest.approx(1.0 / 3.0)


def test_no_codec_crosses_the_line_and_more_bits_err_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_distortion, "LAYERS", [20_000])
    points = measured(np.random.default_rng(1).standard_normal(20_000).astype(np.float32), draws=1)
    assert set(points) == set(CODECS)
    for found in points.values():
        rates, errors = np.array(found).T
        assert len(rates) == len(BITS)
        assert (errors > least_error(rates)).all()
        assert (np.diff(rates) > 0.0).all()
        assert (np.diff(errors) < 0.0).all()
