"""Conversion of decibels."""

import pytest

from qccf.core.units import db_to_linear, dbm_to_w, linear_to_db


def test_decibels() -> None:
    assert float(db_to_linear(30.0)) == pytest.approx(1000.0)
    assert float(linear_to_db(1000.0)) == pytest.approx(30.0)
    assert float(dbm_to_w(-174.0)) == pytest.approx(3.981071706e-21)
