"""Payload sizes and error bounds, computed by hand."""

from dataclasses import replace

import numpy as np
import pytest

from qccf.quantization.costs import error_bounds, error_scales, most_bits, payload_bits, raw_payload_bits
from support.problems import CONSTANTS, equal_statistics


def test_payload_is_indexes_signs_and_a_range() -> None:
    two = equal_statistics(100.0, 200.0)
    assert payload_bits(3, 0, two, replace(CONSTANTS, num_parameters=10)) == 3 * 10 + 10 + 32
    assert payload_bits(3, 0, two, replace(CONSTANTS, num_parameters=10, num_buffers=4)) == 3 * 10 + 10 + 32 + 4 * 32
    assert raw_payload_bits(10) == 320
    np.testing.assert_array_equal(payload_bits(np.array([1, 2]), np.arange(2), two, CONSTANTS), [493_212.0, 739_802.0])


def test_payload_bits_of_other_codecs() -> None:
    two = equal_statistics(100.0, 200.0)
    assert payload_bits(3, 0, two, replace(CONSTANTS, bits_per_index=7.0, overhead_bits=5.0)) == 26
    listed = replace(two, upload_bits=np.array([[10.0, 20.0, 40.0], [1.0, 2.0, 3.0]]))
    np.testing.assert_array_equal(payload_bits(np.array([3, 1]), np.arange(2), listed, CONSTANTS), [40.0, 1.0])
    np.testing.assert_array_equal(payload_bits(2, np.arange(2)[:, None], listed, CONSTANTS), [[20.0], [2.0]])


def test_most_bits_that_fit() -> None:
    """A payload has 10·q + 42 bits, so 52 bits hold q = 1, 51 hold none, 71 hold q = 2; q is at most 32."""
    small = replace(CONSTANTS, num_parameters=10)
    room = np.array([[52.0, 51.0], [71.0, 1e9]]) * (1.0 + 1e-9)
    assert most_bits(room, equal_statistics(1.0, 1.0), small).tolist() == [[1, 0], [2, 32]]
    exactly = np.array([[52.0, 52.0 * (1.0 + 1e-11)]])
    assert most_bits(exactly, equal_statistics(1.0), small).tolist() == [[0, 1]], "a rounding error must not matter"
    listed = replace(equal_statistics(1.0), upload_bits=np.array([[10.0, 20.0, 40.0] + [99.0] * 29]))
    assert most_bits(np.array([[41.0, 9.0, 100.0]]), listed, small).tolist() == [[3, 0, 32]]


def test_error_bound_is_lemma_1() -> None:
    hundred, one = replace(CONSTANTS, num_parameters=100), equal_statistics(1.0)
    assert error_scales(one, hundred)[0] == pytest.approx(100 * 0.25 / 4)
    assert error_bounds(3, one, hundred)[0] == pytest.approx(100 * 0.25 / (4 * 49))
    assert error_bounds(3, replace(one, error_scales=np.array([98.0])), hundred)[0] == pytest.approx(2.0)
