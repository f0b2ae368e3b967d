"""A short run of the fuzzer: only refusals and sound vectors come out, and every kind of refusal does."""

from benchmarks.fuzz_wire import fuzz
from qccf.quantization.wire import PayloadError


def test_mutated_payloads_are_refused_or_decoded() -> None:
    counts = fuzz(20_000, seed=1)
    assert counts.total() == 20_000
    assert set(counts) == {"decoded"} | {error.__name__ for error in PayloadError.__subclasses__()}
    assert counts["decoded"] > 2_000, "the deep code is reached"
