"""Codecs for uploads, with their size in bits and their error. Paper: Section II-B."""

from qccf.quantization.costs import error_bounds, error_scales, most_bits, payload_bits, raw_payload_bits

__all__ = ["error_bounds", "error_scales", "most_bits", "payload_bits", "raw_payload_bits"]
