"""The data classes that the packages exchange."""

import pytest

from qccf.core.contracts import Certificate


def test_certificate_gap() -> None:
    assert Certificate(5.0, 4.5, "x", 0.1).gap == pytest.approx(0.5)
