"""Reports are claims: what is believed, what takes the place of the rest, and that honest runs are not changed."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qccf.core.contracts import MAX_NUM_BITS, Statistics
from qccf.quantization.registry import CODECS, build_codec
from qccf.rounds import claims, uplink
from qccf.rounds.claims import ClaimRules, Evidence, first_statistics, next_statistics, registered_sizes
from qccf.rounds.recordings import bundled_recording
from qccf.rounds.uplink import Upload
from qccf.runtimes.simulator import simulate
from qccf.settings.schema import RECORDINGS
from support.liars import Case, bank, decided, harm, measured
from tests.helpers.tiny import tiny_dataset, tiny_scenario

RULES = ClaimRules()
EMNIST = Path(__file__).parents[2] / "docs" / "results" / "emnist-statistics.csv"


def honest(count: int = 5) -> Statistics:
    ones = np.linspace(0.8, 1.2, count)
    tables = ones[:, None] * np.geomspace(1.0, 1e-6, MAX_NUM_BITS)
    return Statistics(100.0 * ones, ones, ones, ones, ones, ones[:, None] * np.arange(1.0, 33.0), tables)


def with_value(statistics: Statistics, field: str, client: int, value: float) -> Statistics:
    column = getattr(statistics, field).copy()
    column[client] = value
    return replace(statistics, **{field: column})


FIELDS = ["gradient_norms_sq", "gradient_variances", "weight_ranges", "error_scales", "upload_errors", "upload_bits"]
EVERYBODY = np.arange(5)
NO_DOUBTS = np.zeros(5, dtype=np.int64)


def test_medians_of_others_are_those_of_brute_force() -> None:
    rng = np.random.default_rng(0)
    for count in range(2, 9):
        values = rng.integers(0, 4, (count, 3)).astype(float)  # with ties
        lower, upper = claims.medians_of_others(values)
        for row in range(count):
            others = np.sort(np.delete(values, row, axis=0), axis=0)
            np.testing.assert_array_equal(lower[row], others[(count - 2) // 2])
            np.testing.assert_array_equal(upper[row], others[(count - 1) // 2])


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", [1e30, np.inf, np.nan, -1.0])
def test_an_incredible_claim_is_replaced_by_the_last_value_or_by_the_median_of_the_others(field, value) -> None:
    known = honest()
    claimed = with_value(known, field, 3, value)
    later = next_statistics(known, claimed, EVERYBODY, NO_DOUBTS, RULES)
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(later.statistics, name), getattr(known, name))
    assert later.doubts.tolist() == [0, 0, 0, 1, 0]
    assert len(later.warnings) == 1
    assert later.warnings[0].startswith("client 3 reported ")
    assert "its last trusted value is used" in later.warnings[0]
    first = first_statistics(claimed, np.ones(5, dtype=bool), RULES)
    found, others = getattr(first.statistics, field), getattr(known, field)[[0, 1, 2, 4]]
    np.testing.assert_array_equal(found[3], np.median(others, axis=0))
    np.testing.assert_array_equal(np.delete(found, 3, axis=0), np.delete(getattr(known, field), 3, axis=0))
    assert "the median of the others is used" in first.warnings[0]


@pytest.mark.parametrize("subject", claims.SUBJECTS, ids=lambda one: one.name)
def test_limits_are_exact(subject) -> None:
    """Just inside the limit a claim is believed as it is, just outside it is not; the tolerance is a factor."""
    known, field = honest(), subject.fields[0]
    others = np.sort(np.delete(getattr(known, field), 3, axis=0), axis=0)
    for rules, factor in ((RULES, 1.0), (ClaimRules(tolerance=7.0), 7.0)):
        for share, believed in ((0.999, True), (1.001, False)):
            value = share * factor * subject.later * others[2]
            claimed = with_value(known, field, 3, value)
            after = next_statistics(known, claimed, np.array([3]), NO_DOUBTS, rules)
            assert np.array_equal(getattr(after.statistics, field)[3], getattr(claimed, field)[3]) == believed
            value = share * factor * subject.first * others[2]
            claimed = with_value(known, field, 3, value)
            first = first_statistics(claimed, np.ones(5, dtype=bool), rules)
            assert np.array_equal(getattr(first.statistics, field)[3], getattr(claimed, field)[3]) == believed


EQUAL = Statistics(*[np.ones(5)] * 5, np.ones((5, MAX_NUM_BITS)), np.ones((5, MAX_NUM_BITS)))
LIMITS = {
    "gradient_norms_sq": (20.0, 100.0),
    "gradient_variances": (20.0, 50.0),
    "weight_ranges": (10.0, 10.0),
    "error_scales": (20.0, 100.0),
    "upload_errors": (20.0, 100.0),
    "upload_bits": (10.0, 10.0),
}
"""The most that is believed of a first report and of a later one, in medians of the others."""


@pytest.mark.parametrize("field", LIMITS)
def test_a_claim_at_its_limit_is_believed_and_one_just_above_is_not(field: str) -> None:
    first, later = LIMITS[field]
    everybody = np.ones(5, dtype=bool)
    for limit, verdict in (
        (first, lambda claimed: first_statistics(claimed, everybody, RULES)),
        (later, lambda claimed: next_statistics(EQUAL, claimed, np.array([3]), NO_DOUBTS, RULES)),
    ):
        assert not verdict(with_value(EQUAL, field, 3, limit)).warnings
        above = verdict(with_value(EQUAL, field, 3, np.nextafter(limit, np.inf)))
        assert len(above.warnings) == 1
        assert above.doubts.tolist() == [0, 0, 0, 1, 0]
        np.testing.assert_array_equal(getattr(above.statistics, field), getattr(EQUAL, field))


@pytest.mark.parametrize("tolerance", [1.0, 4.0, 0.25])
@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_the_limit_below_is_exact(tolerance: float, scale: float) -> None:
    """It is a share of the others' median, and a tolerance lowers it."""
    known, limit = replace(EQUAL, gradient_norms_sq=np.full(5, scale)), 1e-3 / tolerance * scale
    for value, believed in ((limit, True), (np.nextafter(limit, 0.0), False)):
        claimed = with_value(known, "gradient_norms_sq", 3, value)
        after = next_statistics(known, claimed, np.array([3]), NO_DOUBTS, ClaimRules(tolerance))
        assert after.statistics.gradient_norms_sq[3] == (value if believed else scale)


@pytest.mark.parametrize("field", ["upload_errors", "upload_bits"])
@pytest.mark.parametrize("value", [1e30, np.nan, -1.0])
def test_one_wrong_number_of_bits_is_enough_not_to_believe_a_table(field: str, value: float) -> None:
    known = honest()
    table = getattr(known, field).copy()
    table[3, 6] = value
    after = next_statistics(known, replace(known, **{field: table}), EVERYBODY, NO_DOUBTS, RULES)
    np.testing.assert_array_equal(getattr(after.statistics, field), getattr(known, field))
    assert len(after.warnings) == 1
    if value == 1e30:
        assert after.warnings[0].startswith(f"client 3 reported {field} (q = 7) = 1e+30, and the limit is ")


@pytest.mark.parametrize("field", [name for name in FIELDS if name not in ("gradient_norms_sq", "upload_bits")])
def test_nothing_is_a_possible_value(field: str) -> None:
    """The gradients of a single batch do not vary, and a model of zeros has no range."""
    claimed = with_value(honest(), field, 3, 0.0)
    for after in (
        first_statistics(claimed, np.ones(5, dtype=bool), RULES),
        next_statistics(honest(), claimed, EVERYBODY, NO_DOUBTS, RULES),
    ):
        assert not after.warnings
        np.testing.assert_array_equal(getattr(after.statistics, field), getattr(claimed, field))


def test_where_gradients_of_the_others_do_not_vary_their_norms_limit_a_variance() -> None:
    known = replace(EQUAL, gradient_variances=np.zeros(5), gradient_norms_sq=np.full(5, 4.0))
    for value, believed in ((50.0 * 4.0, True), (201.0, False)):
        claimed = with_value(known, "gradient_variances", 3, value)
        after = next_statistics(known, claimed, np.array([3]), NO_DOUBTS, RULES)
        assert after.statistics.gradient_variances[3] == (value if believed else 0.0)


@pytest.mark.parametrize("field", ["weight_ranges", "error_scales", "upload_errors"])
def test_where_the_others_have_nothing_there_is_no_limit(field: str) -> None:
    known = replace(EQUAL, **{field: np.zeros_like(getattr(EQUAL, field))})
    claimed = with_value(known, field, 3, 1e6)
    after = next_statistics(known, claimed, np.array([3]), NO_DOUBTS, RULES)
    np.testing.assert_array_equal(getattr(after.statistics, field), getattr(claimed, field))


def test_the_limits_are_those_of_the_table_in_docs_security() -> None:
    assert {one.name: (one.first, one.later, one.least) for one in claims.SUBJECTS} == {
        "gradient_norm_sq": (20.0, 100.0, 1e-3),
        "gradient_variance": (20.0, 50.0, 0.0),
        "error_scale": (20.0, 100.0, 0.0),
        "upload_bits": (10.0, 10.0, 0.0),
        "weight_range": (10.0, 10.0, 0.0),
    }


def test_a_gradient_norm_far_below_the_others_is_not_believed() -> None:
    known = honest()
    for value, believed in ((1.1e-3, True), (0.7e-3, False), (0.0, False)):
        claimed = with_value(known, "gradient_norms_sq", 0, value)
        after = next_statistics(known, claimed, EVERYBODY, NO_DOUBTS, RULES).statistics.gradient_norms_sq[0]
        assert after == (value if believed else 0.8)


def test_one_liar_among_three_does_not_make_an_honest_claim_look_wrong() -> None:
    """The others of an honest client are one honest client and the liar."""
    known = honest(3)
    for lie in (0.0, 1e30):
        claimed = with_value(known, "gradient_norms_sq", 1, lie)
        first = first_statistics(claimed, np.ones(3, dtype=bool), RULES).statistics.gradient_norms_sq
        after = next_statistics(known, claimed, np.arange(3), NO_DOUBTS[:3], RULES).statistics.gradient_norms_sq
        assert first[[0, 2]].tolist() == after[[0, 2]].tolist() == [0.8, 1.2]
        assert after[1] == known.gradient_norms_sq[1]


def test_three_clients_can_tell_who_lies_from_the_start_and_two_cannot() -> None:
    known = honest(3)
    lie = with_value(known, "gradient_norms_sq", 1, 1e30)
    first = first_statistics(lie, np.ones(3, dtype=bool), RULES)
    assert first.statistics.gradient_norms_sq.tolist() == [0.8, 1.0, 1.2]
    assert first.doubts.tolist() == [0, 1, 0]
    two = with_value(honest(2), "gradient_norms_sq", 1, 1e30)
    first = first_statistics(two, np.ones(2, dtype=bool), RULES)
    later = next_statistics(honest(2), two, np.arange(2), first.doubts, RULES)
    for found in (first, later):
        assert found.statistics.gradient_norms_sq.tolist() == [0.8, 1e30]
        assert found.doubts.tolist() == [0, 0]
        assert not found.warnings


def test_what_reports_now_counts_as_much_as_what_was_reported_long_ago() -> None:
    """Gradients of a large federation fall while most clients sit out: a hundred of a thousand report."""
    known = replace(honest(1000), gradient_norms_sq=np.ones(1000), error_scales=np.ones(1000))
    reports = np.arange(100)
    claimed = replace(known, gradient_norms_sq=np.where(np.arange(1000) < 100, 1e-4, 1.0))
    after = next_statistics(known, claimed, reports, np.zeros(1000, dtype=np.int64), RULES)
    np.testing.assert_array_equal(after.statistics.gradient_norms_sq, claimed.gradient_norms_sq)
    assert not after.warnings


@pytest.mark.parametrize(("count", "believed"), [(3, False), (4, True)])
def test_three_others_that_report_now_are_a_reference_of_their_own(count: int, believed: bool) -> None:
    """The gradients of all that report are far below those of the six others, which reported long ago."""
    known = replace(honest(10), gradient_norms_sq=np.ones(10))
    claimed = replace(known, gradient_norms_sq=np.where(np.arange(10) < count, 1e-4, 1.0))
    after = next_statistics(known, claimed, np.arange(count), np.zeros(10, dtype=np.int64), RULES)
    assert (after.statistics.gradient_norms_sq[:count] == (1e-4 if believed else 1.0)).all()
    assert len(after.warnings) == (0 if believed else count)


def test_what_newcomers_report_is_a_vote_at_once_and_what_stood_for_them_is_none() -> None:
    """Three report for the first time, 300 each. The two others reported 1, which stood for the three as well."""
    known, doubts = replace(honest(), gradient_norms_sq=np.ones(5)), np.array([0, 0, *[claims.NEVER] * 3])
    claimed = replace(known, gradient_norms_sq=np.array([1.0, 1.0, 300.0, 300.0, 300.0]))
    after = next_statistics(known, claimed, np.array([2, 3, 4]), doubts, RULES)
    np.testing.assert_array_equal(after.statistics.gradient_norms_sq, claimed.gradient_norms_sq)
    assert after.doubts.tolist() == [0] * 5


def test_high_claims_must_agree_with_the_upload() -> None:
    known = honest()
    claimed = with_value(with_value(known, "error_scales", 3, 9.0), "weight_ranges", 3, 9.0)
    asked = []

    def examine(client: int) -> Evidence:
        asked.append(client)
        return Evidence(weight_range=8.0, error_scale=1.1)

    after = next_statistics(known, claimed, EVERYBODY, NO_DOUBTS, RULES, examine)
    assert asked == [3], "only what is high among the others is examined, and once"
    assert after.statistics.weight_ranges[3] == 9.0
    assert after.statistics.error_scales[3] == known.error_scales[3]
    np.testing.assert_array_equal(after.statistics.upload_errors, known.upload_errors)
    sizes = known.upload_bits.copy()
    sizes[3] *= 5.0
    for true_size, believed in ((5.0 * 4 * 1.1 / 2.0, False), (5.0 * 4 * 1.1, True)):
        after = next_statistics(
            known, replace(known, upload_bits=sizes), EVERYBODY, NO_DOUBTS, RULES,
            lambda _, size=true_size: Evidence(num_bits=4, size_bits=size * 0.9),
        )  # fmt: skip
        assert np.array_equal(after.statistics.upload_bits, sizes) == believed


SHOWN = [("weight_ranges", "weight_range"), ("error_scales", "error_scale"), ("upload_bits", "size_bits")]


@pytest.mark.parametrize(("field", "shown"), SHOWN)
@pytest.mark.parametrize(("tolerance", "factor"), [(1.0, 2.0), (0.5, 2.0), (2.0, 4.0)])
def test_a_claim_may_be_twice_what_its_upload_shows(field: str, shown: str, tolerance: float, factor: float) -> None:
    """It is examined if it is more than twice the median of the others; a tolerance above 1 is a factor here, too."""

    def is_believed(claim: float, evidence: float) -> bool:
        found, claimed = Evidence(num_bits=4)._replace(**{shown: evidence}), with_value(EQUAL, field, 3, claim)
        rules = ClaimRules(tolerance)
        after = next_statistics(EQUAL, claimed, np.array([3]), NO_DOUBTS, rules, lambda _: found)
        return np.array_equal(getattr(after.statistics, field), getattr(claimed, field))

    assert is_believed(4.5, 4.5 / factor)
    assert not is_believed(4.5, np.nextafter(4.5 / factor, 0.0))
    assert is_believed(2.0, 0.1), "not examined"
    assert not is_believed(np.nextafter(2.0, 3.0), 0.1)


def test_the_size_of_an_upload_is_compared_with_the_claim_about_its_bits() -> None:
    """The sizes that are claimed are 3, 6, 9, … and the upload has 4 bits."""
    known = replace(EQUAL, upload_bits=np.tile(np.arange(1.0, MAX_NUM_BITS + 1.0), (5, 1)))
    claimed = with_value(known, "upload_bits", 3, 3.0 * known.upload_bits[3])
    for size_bits, believed in ((6.0, True), (np.nextafter(6.0, 0.0), False)):
        found = Evidence(num_bits=4, size_bits=size_bits)
        after = next_statistics(known, claimed, np.array([3]), NO_DOUBTS, RULES, lambda _, one=found: one)
        assert (after.statistics.upload_bits[3, 3] == 12.0) == believed


@pytest.mark.parametrize("field", claims.EXAMINED)
def test_a_high_claim_is_believed_where_the_upload_shows_nothing_of_it(field: str) -> None:
    claimed = with_value(EQUAL, field, 3, 9.0)
    others = Evidence(weight_range=0.1, error_scale=0.1, num_bits=4, size_bits=0.1)
    for evidence in (Evidence(), Evidence(num_bits=4), others._replace(**{dict(SHOWN)[field]: None})):
        after = next_statistics(EQUAL, claimed, np.array([3]), NO_DOUBTS, RULES, lambda _, one=evidence: one)
        np.testing.assert_array_equal(getattr(after.statistics, field), getattr(claimed, field))


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("num_bits", [1, 3, 8])
def test_an_upload_confirms_what_an_honest_client_says_of_it(name: str, num_bits: int) -> None:
    rng = np.random.default_rng(0)
    codec, received = build_codec(name, 3000, [2000, 1000]), rng.normal(0.0, 0.1, 3000).astype(np.float32)
    vector = (0.01 * rng.standard_t(3, 3000)).astype(np.float32)
    model = vector + received if codec.relative else vector
    payload, forecast = codec.encode(vector, num_bits, 7), codec.forecast(vector)
    upload = Upload(payload, float(codec.size_bits(payload)), None, forecast)
    for one in (upload, replace(upload, payload=codec.decode(payload, num_bits))):
        found = uplink.examined(codec, one, num_bits, received, 3000)
        assert forecast.error_scale <= 1.1 * found.error_scale
        assert found.num_bits == num_bits
        assert found.size_bits == codec.size_bits(payload)
        if num_bits == 8:
            assert found.weight_range == pytest.approx(np.abs(model).max(), rel=0.05)
    raw = uplink.examined(codec, replace(upload, payload=model), uplink.RAW, received, 3000)
    assert raw == Evidence(weight_range=float(np.abs(model).max()))
    assert uplink.examined(codec, replace(upload, payload=None), num_bits, None, 3000).error_scale is None


def test_a_client_that_lies_again_and_again_is_distrusted_until_it_is_believed_again() -> None:
    known, doubts, said = honest(), NO_DOUBTS, []
    lie = with_value(known, "error_scales", 3, 1e9)
    others = [0, 1, 2, 4]
    for _ in range(8):
        moved = replace(lie, gradient_norms_sq=1.1 * lie.gradient_norms_sq)
        after = next_statistics(known, moved, EVERYBODY, doubts, RULES)
        known, doubts = after.statistics, after.doubts
        said.append(len(after.warnings))
    assert doubts.tolist() == [0, 0, 0, claims.MOST_DOUBTS, 0]
    assert said == [1, 1, 2, 0, 0, 0, 0, 0], "each lie, then the distrust, then nothing"
    assert known.gradient_norms_sq[3] == np.median(known.gradient_norms_sq[others])
    told = []
    for _ in range(4):
        after = next_statistics(known, honest(), EVERYBODY, doubts, RULES)
        known, doubts = after.statistics, after.doubts
        told += after.warnings
    assert told == ["client 3 is trusted again."]
    assert doubts.tolist() == [0, 0, 0, claims.MOST_DOUBTS - 4, 0], "each report that is believed takes one doubt back"
    assert known.gradient_norms_sq[3] == honest().gradient_norms_sq[3]


def test_where_everybody_is_distrusted_the_last_trusted_values_stay() -> None:
    doubts = np.full(5, claims.DISTRUSTED)
    wrong = replace(honest(), gradient_norms_sq=np.full(5, np.nan))
    after = next_statistics(honest(), wrong, EVERYBODY, doubts, RULES)
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(after.statistics, name), getattr(honest(), name))


def test_who_has_not_reported_starts_with_the_median_of_the_others() -> None:
    reported = np.array([True, False, True, True, False])
    blank = replace(honest(), error_scales=np.where(reported, honest().error_scales, 0.0))
    found = first_statistics(blank, reported, RULES).statistics
    assert found.error_scales[1] == found.error_scales[4] == np.median(honest().error_scales[reported])


@pytest.mark.parametrize("field", FIELDS)
def test_a_liar_of_two_that_were_measured_does_not_speak_for_the_others(field) -> None:
    """Clients 0 and 1 were measured and 1 lies: nobody can tell, but the others start with the lower value, and once
    one of them has reported, the lie is not believed any more, whether the liar reports again or not."""
    known, lie = honest(), 1e30
    if field in ("upload_errors", "upload_bits"):
        lie = np.full(MAX_NUM_BITS, lie)
    claimed = with_value(known, field, 1, lie)
    first = first_statistics(claimed, EVERYBODY < 2, RULES)
    assert first.doubts.tolist() == [claims.UNJUDGED] * 2 + [claims.NEVER] * 3
    np.testing.assert_array_equal(getattr(first.statistics, field)[2:], getattr(known, field)[[0, 0, 0]])
    assert (getattr(first.statistics, field)[1] == 1e30).all()
    for reports in ([2], [1, 2], [0, 2]):
        now = with_value(first.statistics, field, 2, getattr(known, field)[2])
        later = next_statistics(first.statistics, now, np.array(reports), first.doubts, RULES)
        assert (getattr(later.statistics, field)[1] < 10.0 * getattr(known, field)[0]).all()
        np.testing.assert_array_equal(getattr(later.statistics, field)[[0, 2]], getattr(known, field)[[0, 2]])
        assert later.doubts.tolist() == [0, 1, 0, claims.NEVER, claims.NEVER]
        assert len(later.warnings) == 1
        assert later.warnings[0].startswith("client 1 reported ")
        assert later.warnings[0].endswith("the median of the others is used.")


def test_nothing_is_no_value_that_stands_for_absent_clients() -> None:
    """Client 1 of the two that were measured reports 0."""
    known = honest()
    for field in ("gradient_norms_sq", "error_scales", "upload_errors"):
        first = first_statistics(with_value(known, field, 1, 0.0), EVERYBODY < 2, RULES)
        np.testing.assert_array_equal(getattr(first.statistics, field)[2:], getattr(known, field)[[0, 0, 0]])
    nothing = first_statistics(replace(known, gradient_variances=np.zeros(5)), EVERYBODY < 2, RULES)
    assert nothing.statistics.gradient_variances.tolist() == [0.0] * 5
    empty = first_statistics(with_value(known, "upload_bits", 1, 0.0), EVERYBODY < 2, RULES)
    assert empty.warnings == [
        "client 1 reported upload_bits = 0, and it must be finite and above 0: the median of the others is used."
    ]
    np.testing.assert_array_equal(empty.statistics.upload_bits, known.upload_bits[[0] * 5])


def test_where_nobody_is_believed_at_first_a_statistic_is_zero() -> None:
    wrong = replace(honest(), gradient_norms_sq=np.full(5, np.nan))
    assert not first_statistics(wrong, np.ones(5, dtype=bool), RULES).statistics.gradient_norms_sq.any()
    assert not first_statistics(honest(), np.zeros(5, dtype=bool), RULES).statistics.gradient_norms_sq.any()


def test_what_stands_for_absent_clients_is_no_vote() -> None:
    """Of ten clients two were measured. The others have the median of these, which nobody has said."""
    known = honest(10)
    first = first_statistics(known, np.arange(10) < 2, RULES)
    quiet = next_statistics(first.statistics, first.statistics, np.array([1]), first.doubts, RULES)
    assert quiet.doubts.tolist() == first.doubts.tolist(), "two clients still cannot tell"
    wild = with_value(first.statistics, "gradient_norms_sq", 1, 1000.0)
    believed = next_statistics(first.statistics, wild, np.array([1]), first.doubts, RULES)
    assert believed.statistics.gradient_norms_sq[1] == 1000.0, "so what one of them says is believed"
    assert believed.doubts.tolist() == first.doubts.tolist()
    higher = with_value(first.statistics, "gradient_norms_sq", 1, 1000.0)
    either = next_statistics(first.statistics, higher, np.array([1]), first.doubts, RULES)
    assert (either.statistics.gradient_norms_sq[1], either.warnings) == (1000.0, []), "it is not judged yet"
    high = with_value(first.statistics, "gradient_norms_sq", 5, 1000.0)
    alone = next_statistics(first.statistics, high, np.array([5]), first.doubts, RULES)
    assert alone.doubts[5] == 1, "two others have reported"
    assert alone.statistics.gradient_norms_sq[5] == pytest.approx(np.median(known.gradient_norms_sq[:2]))


def test_a_loss_far_beyond_the_others_is_ignored() -> None:
    losses = np.array([1.0, 2.0, 150.0, np.nan, 3.0])
    assert claims.believed_losses(losses, RULES)[0].tolist()[:3] == [1.0, 2.0, 150.0]
    for lie in (1e30, -1e30, 201.0):
        believed, said = claims.believed_losses(np.array([1.0, 2.0, lie, np.nan, 1.5]), RULES)
        np.testing.assert_array_equal(believed, [1.0, 2.0, np.nan, np.nan, 1.5])
        assert len(said) == 1
    assert np.array_equal(claims.believed_losses(np.array([1.0, 1e30]), RULES)[0], [1.0, 1e30])
    late = claims.believed_losses(np.array([0.01, 0.02, 30.0]), RULES)[0]
    np.testing.assert_array_equal(late, [0.01, 0.02, np.nan], "losses far below 1 limit the others, too")
    exact = np.array([0.0, 0.0, 30.0])
    assert np.array_equal(claims.believed_losses(exact, RULES)[0], exact), "losses of 0 limit nothing"


@pytest.mark.parametrize("tolerance", [1.0, 4.0, 0.25])
def test_the_limit_of_a_loss_is_exact(tolerance: float) -> None:
    limit = 100.0 * tolerance * 2.0
    for value, believed in ((limit, True), (np.nextafter(limit, np.inf), False)):
        found, said = claims.believed_losses(np.array([2.0, 2.0, value]), ClaimRules(tolerance))
        assert np.isnan(found).tolist() == [False, False, not believed]
        assert len(said) == (not believed)


def test_a_dataset_size_is_limited_by_the_others_or_announced() -> None:
    stated = {0: 100, 1: 1600, 2: 90, 3: 110}
    sizes, said = registered_sizes(stated, 5, RULES)
    assert sizes.tolist() == [100.0, 400.0, 90.0, 110.0, 100.0]
    assert len(said) == 1
    assert "client 1 states 1600 samples, and the limit is 400" in said[0]
    assert registered_sizes(stated, 5, ClaimRules(most_times_median=16.0))[0][1] == 1600.0
    announced = ClaimRules(dataset_sizes=(100, 120, 90, 110, 70))
    sizes, said = registered_sizes(stated, 5, announced)
    assert sizes.tolist() == [100.0, 120.0, 90.0, 110.0, 70.0]
    assert said == ["client 1 states 1600 samples, and claims.dataset_sizes announces 120, which is used."]
    assert registered_sizes({0: 5, 1: 10**9}, 2, RULES)[0].tolist() == [5.0, 1e9], "two cannot tell who lies"
    assert registered_sizes({0: 60, 1: 10**9}, 4, RULES)[0].tolist() == [60.0, 240.0, 60.0, 60.0], "two of four either"
    assert registered_sizes({1: 10**9}, 3, RULES)[0].tolist() == [1e9] * 3


def test_the_limit_of_a_dataset_size_is_a_whole_number_and_at_least_one() -> None:
    assert registered_sizes({0: 100, 1: 400, 2: 100}, 3, RULES)[1] == [], "exactly the limit"
    half = ClaimRules(most_times_median=1.5)
    assert registered_sizes({0: 3, 1: 9, 2: 3}, 3, half)[0].tolist() == [3.0, 4.0, 3.0], "4.5 samples"
    assert registered_sizes({0: 1, 1: 9, 2: 1}, 3, half)[0].tolist() == [1.0, 1.0, 1.0]
    assert registered_sizes({0: 0, 1: 9, 2: 0}, 3, half)[0].tolist() == [0.0, 1.0, 0.0]
    assert registered_sizes({0: 60, 1: 50, 3: 70}, 5, RULES)[0].tolist() == [60.0, 50.0, 60.0, 70.0, 60.0]


@pytest.mark.parametrize("name", RECORDINGS)
def test_recorded_clients_are_believed(name: str) -> None:
    """Of all that honest clients of four trainings reported, with every codec, nothing is even near a limit."""
    recording = bundled_recording(name)
    for tables in recording.codecs.values():
        known = None
        for n in range(len(recording.rounds)):
            series = {key: recording.series[key][n] for key in recording.series}
            bits = tables.bits_per_parameter
            claimed = Statistics(
                np.ones(recording.num_clients), series["gradient_norm_sq"], series["gradient_variance"],
                series["weight_range"], tables.error_scales[n], None if bits is None else bits[n], tables.errors[n],
            )  # fmt: skip
            strict = ClaimRules(tolerance=0.25)
            everybody = np.arange(recording.num_clients)
            if known is None:
                assert not first_statistics(claimed, np.ones(recording.num_clients, dtype=bool), strict).warnings
            else:
                assert not next_statistics(known, claimed, everybody, 0 * everybody, strict).warnings
            _, said = claims.believed_losses(series["loss"], strict)
            assert not said
            known = claimed


def test_clients_of_emnist_are_believed() -> None:
    with EMNIST.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    table = {name: np.array([float(row[name]) for row in rows]).reshape(-1, 10) for name in rows[0]}
    known = None
    for n in range(len(table["round"])):
        claimed = Statistics(
            np.ones(10), table["gradient_norm_sq"][n], table["gradient_variance"][n], table["weight_range"][n]
        )
        if known is not None:
            verdict = next_statistics(known, claimed, np.arange(10), np.zeros(10, dtype=np.int64), ClaimRules(0.5))
            assert not verdict.warnings
        known = claimed


def test_an_honest_run_is_the_same_bit_for_bit_without_any_limit() -> None:
    """A tolerance of 10^12 believes everything, so the runs differ only in what is checked."""
    for form in ("scale-free", "paper"):
        settings = ["codec.name=update+entropy", f"control.form={form}", "radio.num_channels=4"]
        runs = [
            simulate(tiny_scenario(*settings, *more), dataset=tiny_dataset())
            for more in ([], ["claims.tolerance=1e12"])
        ]
        for name, column in runs[0].client_columns.items():
            np.testing.assert_array_equal(column, runs[1].client_columns[name], err_msg=name)
        assert runs[0].weights.tobytes() == runs[1].weights.tobytes()


def test_the_bank_of_lies_has_all_cases() -> None:
    cases = bank()
    assert len(cases) == len(set(map(str, cases))) > 600
    assert {case.liars for case in cases} == {"1 of 3", "1 of 10", "2 of 10", "1 of 10, 8 late"}


@pytest.mark.parametrize("case", bank()[7::41], ids=str)
def test_liars_change_no_more_than_their_share(case: Case) -> None:
    """Some of the bank; `python -m benchmarks.faults --only reports` takes all of it."""
    assert not harm(case, measured(case))


@pytest.mark.parametrize(("form", "often"), [("scale-free", "always"), ("paper", "once")])
def test_the_bank_sees_what_a_lie_does_where_reports_are_believed(
    form: str, often: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case("error_scale", "1e30", often, "1 of 3", form)
    assert not harm(case, measured(case))
    monkeypatch.setattr("support.liars.claim_rules", lambda _: ClaimRules(1e40, 1e40))
    monkeypatch.setattr("qccf.rounds.setup.claim_rules", lambda _: ClaimRules(1e40, 1e40))
    decided.cache_clear()
    assert harm(case, measured(case))
    decided.cache_clear()
