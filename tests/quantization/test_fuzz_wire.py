"""A short run of the fuzzer: payloads are refused or decoded, and every kind of refusal occurs."""

from qccf.core.errors import PayloadError
from support.payloads import fuzz


def test_mutated_payloads_are_refused_or_decoded() -> None:
    counts = fuzz(20_000, seed=1)
    assert counts.total() == 20_000
    assert set(counts) == {"decoded"} | {error.__name__ for error in PayloadError.__subclasses__()}
    assert counts["decoded"] > 2_000, "many payloads get past the first checks"
