"""Aggregation rules by hand."""

import numpy as np
import pytest

from qccf.core.errors import AggregationError, ConfigError, DivergedError
from qccf.learning.aggregation.krum import Krum
from qccf.learning.aggregation.mean import Mean
from qccf.learning.aggregation.median import Median
from qccf.learning.aggregation.multi_krum import MultiKrum, scores
from qccf.learning.aggregation.protocol import Combined
from qccf.learning.aggregation.trimmed_mean import TrimmedMean
from qccf.learning.server.average import Average
from qccf.quantization.registry import CODECS
from qccf.rounds import setup
from qccf.rounds.aggregation import Aggregator
from qccf.runtimes.simulator import simulate
from qccf.settings.loading import load_scenario
from tests.helpers.arrivals import made_arrivals
from tests.helpers.tiny import tiny_dataset, tiny_scenario


def combined(rule, arrivals, state=None):
    return rule.combine(rule.init(10) if state is None else state, arrivals)[0]


def test_the_mean_is_weighted_and_a_long_change_is_clipped() -> None:
    """Lengths 5, 5, 500 with weights 1/4, 1/4, 1/2: the usual length is 5, so 500 becomes 5."""
    arrivals = made_arrivals([[3.0, 4.0], [5.0, 0.0], [0.0, 500.0]], sizes=[1.0, 1.0, 2.0])
    made = combined(Mean(most_norm=2.0), arrivals)
    np.testing.assert_allclose(made.model, [3 / 4 + 5 / 4, 4 / 4 + 5 / 2])
    np.testing.assert_allclose(made.kept, [1.0, 1.0, 5.0 / 500.0])
    assert made.mean_norm_sq() == pytest.approx(25.0)
    plain = combined(Mean(most_norm=0.0), arrivals)
    np.testing.assert_allclose(plain.model, [2.0, 251.0])
    assert plain.kept.tolist() == [1.0, 1.0, 1.0]
    assert plain.mean_norm_sq() == pytest.approx(25 / 4 + 25 / 4 + 250000 / 2)
    assert Mean(most_norm=0.0).init(10) == {}


def test_a_change_at_the_limit_is_not_touched_and_nobody_longer_means_the_plain_mean_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(5, 1000))
    values[0] *= 3.0
    arrivals = made_arrivals(values, sizes=[3, 1, 4, 1, 5], previous=rng.normal(size=1000))
    made = combined(Mean(), arrivals)
    assert made.model.tobytes() == arrivals.mean().tobytes()
    edge = made_arrivals([[1.0], [1.0], [4.0]])
    assert combined(Mean(most_norm=4.0), edge).kept.tolist() == [1.0, 1.0, 1.0]
    assert combined(Mean(most_norm=3.9), edge).kept.tolist() == [1.0, 1.0, pytest.approx(1.0 / 4.0)]
    assert combined(Mean(most_norm=0.5), edge).kept.tolist() == pytest.approx([0.5, 0.5, 0.5 / 4.0])


def test_clipped_changes_start_from_the_previous_model() -> None:
    arrivals = made_arrivals([[1.0], [1.0], [100.0]], previous=[10.0])
    assert combined(Mean(most_norm=2.0), arrivals).model.tolist() == pytest.approx([10.0 + (1 + 1 + 1) / 3])


def test_coarse_uploads_may_be_as_long_as_their_noise() -> None:
    """E(1) = 99, E(4) = 0: a change of length 1 has length 10 with 1 bit, and 10 with 4 bits is ten times too long."""
    errors = np.tile([99.0, 0.0, 0.0, 0.0], (4, 1))
    values = [[1.0], [1.0], [10.0], [1.0]]
    coarse = combined(Mean(most_norm=2.0), made_arrivals(values, errors=errors, bits=[4, 4, 1, 4]))
    assert coarse.kept.tolist() == [1.0, 1.0, 1.0, 1.0]
    fine = combined(Mean(most_norm=2.0), made_arrivals(values, errors=errors, bits=[4, 4, 4, 4]))
    assert fine.kept.tolist() == [1.0, 1.0, pytest.approx(0.1), 1.0]
    errors[2, 3] = 1e12
    lying = combined(Mean(most_norm=2.0), made_arrivals(values, errors=errors, bits=[4, 4, 4, 4]))
    assert lying.kept.tolist() == fine.kept.tolist(), "one client's forecast does not move the median"


def test_noise_of_the_others_does_not_make_a_fine_upload_long() -> None:
    """Three clients send 10 with 1 bit, of which noise usually is 10.5, so that nothing remains: they vote 0.1·10²."""
    errors = np.tile([110.25, 0.0, 0.0, 0.0], (4, 1))
    values = [[10.0], [10.0], [10.0], [3.0]]
    made, state = Mean(most_norm=1.0).combine(Mean().init(4), made_arrivals(values, errors=errors, bits=[1, 1, 1, 4]))
    np.testing.assert_allclose(state["parameters_sq"], [10.0, 10.0, 10.0, 9.0])
    assert made.kept.tolist() == [1.0] * 4


def test_a_client_alone_in_its_round_is_compared_with_the_last_lengths_of_the_others() -> None:
    rule, state = Mean(most_norm=3.0), Mean().init(5)
    for client in (0, 1):
        first, state = rule.combine(state, made_arrivals([[1.0]], clients=[client]))
        assert first.kept.tolist() == [1.0]
    unknown, after_two = Mean(most_norm=1.0).combine(state, made_arrivals([[100.0]], clients=[0]))
    assert unknown.kept.tolist() == [1.0], "of two lengths either may be the wrong one"
    assert after_two["parameters_sq"][:2].tolist() == [1e4, 1.0]
    _, state = rule.combine(state, made_arrivals([[1.0]], clients=[2]))
    alone, state = rule.combine(state, made_arrivals([[100.0]], clients=[3]))
    assert alone.model.tolist() == pytest.approx([1.0])
    again, _ = rule.combine(state, made_arrivals([[100.0]], clients=[3]))
    assert again.model.tolist() == pytest.approx([1.0]), "each client has one vote"


def test_the_third_long_change_is_clipped_at_half_of_the_limit() -> None:
    """Limit 8, half of it 4: client 2 sends 5, 5, 5, 5, then 4, which takes one of four strikes back, and 5 again."""
    rule, state = Mean(most_norm=8.0), Mean().init(3)
    kept = []
    for length in (5.0, 5.0, 5.0, 5.0, 4.0, 5.0, 5.0, 5.0):
        made, state = rule.combine(state, made_arrivals([[1.0], [1.0], [length]]))
        kept.append(made.kept[2])
    assert kept == pytest.approx([1.0, 1.0, 0.2, 0.2, 1.0, 0.2, 0.2, 0.2])
    assert state["strikes"].tolist() == [0.0, 0.0, 6.0]
    _, state = rule.combine(state, made_arrivals([[1.0], [1.0]], clients=[0, 1]))
    assert state["strikes"].tolist() == [0.0, 0.0, 6.0], "a client that sat out keeps its strikes"
    _, state = rule.combine(state, made_arrivals([[1.0], [1.0], [5.0]]))
    assert state["strikes"].tolist() == [0.0, 0.0, 6.0], "a client that turns honest is trusted after three rounds"


def test_a_short_change_now_and_then_does_not_hide_long_ones() -> None:
    """Two long changes of three: the strikes are 1, 2, 1, 2, 3, 2, 3, 4, 3."""
    rule, state = Mean(most_norm=8.0), Mean().init(3)
    kept = []
    for length in (5.0, 5.0, 0.0) * 3:
        made, state = rule.combine(state, made_arrivals([[1.0], [1.0], [length]]))
        kept.append(made.kept[2])
    assert kept == pytest.approx([1.0, 1.0, 1.0, 1.0, 0.2, 1.0, 0.2, 0.2, 1.0])


def test_a_client_with_much_data_may_send_less_long_changes() -> None:
    """Client 3 has four times the usual data: h = 2, so its limit is 3 usual lengths instead of 6, and 1.5 lasting."""
    sizes = [1.0, 1.0, 1.0, 4.0]
    for length, kept in ((3.0, 1.0), (3.1, 1.0 / 3.1)):
        made = combined(Mean(), made_arrivals([[1.0], [1.0], [1.0], [length]], sizes=sizes))
        assert made.kept.tolist() == pytest.approx([1.0, 1.0, 1.0, kept])
    rule, state = Mean(), Mean().init(4)
    for kept in (1.0, 1.0, 1.0 / 1.6):
        made, state = rule.combine(state, made_arrivals([[1.0], [1.0], [1.0], [1.6]], sizes=sizes))
        assert made.kept[3] == pytest.approx(kept)
    twice = combined(Mean(), made_arrivals([[1.0], [1.0], [1.0], [6.0]], sizes=[1.0, 1.0, 1.0, 2.0]))
    assert twice.kept.tolist() == [1.0] * 4
    lasting = Mean(most_norm=1.0).combine({**Mean().init(4), "strikes": np.full(4, 6.0)}, made_arrivals([[0.6]] * 4))[0]
    assert lasting.kept.tolist() == [1.0] * 4, "a change that is shorter than usual is never made longer"


def test_before_three_lengths_are_known_gradients_tell_what_to_expect() -> None:
    """ℓ² = 4: the only change of the first round has a length of 1000 and counts as 2; one of 12 is at the limit."""
    alone = combined(Mean(), made_arrivals([[1000.0]], expected=4.0))
    assert alone.model.tolist() == pytest.approx([2.0])
    assert combined(Mean(), made_arrivals([[12.0]], expected=4.0)).kept.tolist() == [1.0]
    assert combined(Mean(), made_arrivals([[1000.0]])).kept.tolist() == [1.0], "nothing is known"
    three = combined(Mean(), made_arrivals([[1000.0], [1000.0], [1000.0]], expected=4.0))
    assert three.kept.tolist() == [1.0] * 3, "three clients know better"
    two, _ = Mean().combine(Mean().init(2), made_arrivals([[1000.0], [1.0]], expected=4.0))
    assert two.kept.tolist() == [1.0, 1.0], "with two clients nothing is ever clipped"


@pytest.mark.parametrize("rule", [Krum(), MultiKrum(), Median(), TrimmedMean(), Mean()])
def test_one_attacker_among_few_arrivals_does_not_pass(rule) -> None:
    for count in (1, 2, 3, 4):
        values = np.ones((count, 2))
        values[0] = -1e9
        model = combined(rule, made_arrivals(values, expected=2.0)).model
        assert np.abs(model).max() <= 1.0, f"of {count}"


def test_buffers_have_a_limit_of_their_own_and_stay_between_old_and_new() -> None:
    values = [[1.0, 1e3], [1.0, 1e3], [1.0, 1e9], [50.0, 1e3]]
    made = combined(Mean(most_norm=2.0), made_arrivals(values, buffers=1))
    np.testing.assert_allclose(made.model, [(1 + 1 + 1 + 1) / 4, 4e3 / 4])
    np.testing.assert_allclose(made.kept, [1.0, 1.0, 1e-6, 1.0 / 50.0])


def test_where_the_usual_length_is_0_nothing_is_clipped() -> None:
    made = combined(Mean(), made_arrivals([[0.0], [0.0], [0.0], [1.0]]))
    assert made.kept.tolist() == [1.0] * 4


def test_the_trimmed_mean_leaves_out_both_ends_of_each_value() -> None:
    values = [[1.0, 50.0], [2.0, 40.0], [3.0, 30.0], [100.0, 20.0], [-100.0, -1e9]]
    made = combined(TrimmedMean(trimmed_share=0.2), made_arrivals(values, sizes=[1, 2, 3, 4, 5]))
    np.testing.assert_allclose(made.model, [2.0, 30.0])
    assert np.isnan(made.kept).all()
    two = combined(TrimmedMean(trimmed_share=0.4), made_arrivals(values))
    np.testing.assert_allclose(two.model, [2.0, 30.0])
    np.testing.assert_allclose(combined(TrimmedMean(trimmed_share=0.0), made_arrivals(values)).model[0], 1.2)
    np.testing.assert_allclose(combined(TrimmedMean(trimmed_share=0.21), made_arrivals(values)).model, [2.0, 30.0])
    few = combined(TrimmedMean(trimmed_share=0.49), made_arrivals([[1.0], [3.0]], sizes=[1, 3]))
    np.testing.assert_allclose(few.model, [2.5])  # the mean


def test_the_number_that_is_trimmed_is_rounded_up() -> None:
    values = [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0], [1000.0]]
    for share, expected in ((0.1, 3.0), (2 / 7, 3.0), (0.3, 3.0)):
        assert combined(TrimmedMean(trimmed_share=share), made_arrivals(values)).model.tolist() == [expected]
    skewed = [[0.0], [0.0], [0.0], [7.0], [8.0], [9.0], [9.0]]
    assert combined(TrimmedMean(trimmed_share=2 / 7), made_arrivals(skewed)).model.tolist() == [5.0]
    assert combined(TrimmedMean(trimmed_share=0.29), made_arrivals(skewed)).model.tolist() == [7.0]


def test_the_median_of_each_value() -> None:
    made = combined(Median(), made_arrivals([[1.0, 5.0], [2.0, -1e9], [9.0, 7.0]]))
    assert made.model.tolist() == [2.0, 5.0]
    even = combined(Median(), made_arrivals([[1.0], [2.0], [4.0], [100.0]]))
    assert even.model.tolist() == [3.0]
    assert even.mean_norm_sq() == pytest.approx((4.0 + 16.0) / 2.0)


LINE = [[0.0], [1.0], [2.5], [4.5], [1000.0]]
"""With f = 1 of 5 a score has two neighbours: 1 + 6.25, 1 + 2.25, 2.25 + 4, 4 + 12.25, 991020.25 + 995006.25 + …"""


def test_krum_takes_the_client_that_is_nearest_to_the_others() -> None:
    points = np.array(LINE)
    np.testing.assert_allclose(scores(points @ points.T, 1)[:4], [7.25, 3.25, 6.25, 16.25])
    made = combined(Krum(attacker_share=0.2), made_arrivals(LINE, sizes=[1, 1, 9, 1, 1]))
    assert made.model.tolist() == [1.0]
    assert made.kept.tolist() == [0.0, 1.0, 0.0, 0.0, 0.0]
    assert made.mean_norm_sq() == 1.0


def test_multi_krum_is_the_mean_of_all_but_f() -> None:
    made = combined(MultiKrum(attacker_share=0.2), made_arrivals(LINE))
    np.testing.assert_allclose(made.model, [(0.0 + 1.0 + 2.5 + 4.5) / 4])
    assert made.kept.tolist() == [1.0, 1.0, 1.0, 1.0, 0.0]
    assert made.mean_norm_sq() == pytest.approx((1.0 + 6.25 + 20.25) / 4)


def test_krum_believes_in_no_more_attackers_than_it_can_withstand() -> None:
    """2·f + 2 < n: of five at most one, so a share of 0.4 is the same as 0.2, and of three and four one as well."""
    for rule in (Krum, MultiKrum):
        many, one = (combined(rule(attacker_share=share), made_arrivals(LINE)) for share in (0.4, 0.2))
        assert many.kept.tolist() == one.kept.tolist()
    for few in (3, 2):
        made = combined(MultiKrum(attacker_share=0.4), made_arrivals([*LINE[:few], [1000.0]]))
        assert made.kept.tolist() == [1.0] * few + [0.0]
    assert combined(MultiKrum(attacker_share=0.0), made_arrivals(LINE[:4])).kept.tolist() == [1.0] * 4


def test_krum_chooses_by_parameters_and_takes_the_median_of_buffers() -> None:
    values = [[0.0, 1.0], [1.0, 1e9], [2.5, 2.0], [4.5, 3.0], [1000.0, 4.0]]
    made = combined(Krum(attacker_share=0.2), made_arrivals(values, buffers=1))
    assert made.model.tolist() == [1.0, 3.0]


def test_settings_name_the_rule_and_its_options() -> None:
    scenario = load_scenario("quick", ["aggregation.rule=trimmed-mean", "aggregation.trimmed_mean.trimmed_share=0.1"])
    rule = setup.build_aggregation_rule(scenario)
    assert isinstance(rule, TrimmedMean)
    assert rule.options.trimmed_share == 0.1
    own = load_scenario("quick", [f"aggregation.rule={__name__}:Own", "aggregation.options.value=3.0"])
    assert setup.build_aggregation_rule(own).value == 3.0
    with pytest.raises(ConfigError, match=r"set aggregation.rule = \"krum\""):
        load_scenario("quick", ["aggregation.krum.attacker_share=0.1"])
    with pytest.raises(ConfigError, match=r"aggregation rule 'mode' is not one of mean, trimmed-mean, median"):
        setup.build_aggregation_rule(load_scenario("quick", ["aggregation.rule=mode"]))


class Own:
    def __init__(self, value: float = 0.0, kept=None) -> None:
        self.value = value
        self.kept = kept

    def init(self, num_clients):
        return {}

    def combine(self, state, updates):
        kept = np.ones(len(updates.clients)) if self.kept is None else self.kept
        return Combined(np.full(updates.num_values, self.value), kept, lambda: 1.0), state


@pytest.mark.parametrize(
    ("rule", "error", "words"),
    [
        (Own(np.nan), DivergedError, "'Own' made values that are not finite"),
        (Own(1e39), DivergedError, 'withstands outliers, such as aggregation.rule = "median"'),
        (Own(1.0, np.ones(2)), AggregationError, "made no model of 1 values with a verdict on each of 3 clients"),
    ],
)
def test_a_faulty_rule_gets_a_sentence(rule, error, words: str) -> None:
    with pytest.raises(error, match=words):
        Aggregator(rule, Average()).next_model({}, {}, made_arrivals([[1.0], [2.0], [3.0]]))


@pytest.mark.parametrize(
    ("codec", "settings"),
    [
        *((codec, ()) for codec in CODECS),
        ("model", ("radio.num_channels=1",)),
        *((codec, ("policy.name=fixed-bits", "fixed_bits.bits=1")) for codec in ("model", "update", "sparse")),
    ],
)
def test_clipping_changes_no_bit_of_an_honest_run(codec: str, settings: tuple[str, ...]) -> None:
    common = (f"codec.name={codec}", "federation.rounds=4", *settings)
    clipped, plain = (
        simulate(tiny_scenario(*common, *more), dataset=tiny_dataset())
        for more in ((), ("aggregation.mean.most_norm=0",))
    )
    assert clipped.weights.tobytes() == plain.weights.tobytes()
    assert set(clipped.clients["kept"].dropna()) <= {1.0}
