"""Rate models: by hand, against the standard's own figures, and against simulated blocks."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from qccf.core.errors import ConfigError
from qccf.rounds.world import build_world
from qccf.settings.loading import load_scenario
from qccf.wireless.radio import resource_blocks_hz
from qccf.wireless.rates import mcs
from qccf.wireless.rates.mcs import Mcs
from qccf.wireless.rates.shannon import Shannon
from qccf.wireless.rates.shannon_gap import ShannonGap

ENDLESS_DB = 60.0


def ratio(db: float) -> float:
    return 10.0 ** (db / 10.0)


def test_shannon_by_hand() -> None:
    """1 W over a gain of 1e-9 in 1 MHz with 1e-18 W/Hz of noise is an SNR of 1000: log2(1001) b/s/Hz."""
    assert float(Shannon().rates_bps(1000.0, bandwidth_hz=1e6)) == pytest.approx(1e6 * np.log2(1001.0))
    settings = ["radio.transmit_power_w=1.0", "radio.bandwidth_hz=1e6", "radio.noise_dbm_per_hz=-150"]
    assert float(load_scenario("femnist", settings).radio_link().rates_bps(1e-9)) == pytest.approx(
        1e6 * np.log2(1001.0)
    )


def test_a_gap_divides_the_signal_and_the_limit_caps_the_rate() -> None:
    """An SNR of 30 dB with a gap of 20 dB is an SNR of 10: log2(11) = 3.459 b/s/Hz."""
    model = ShannonGap(gap_db=20.0, efficiency_max=5.0)
    assert float(model.rates_bps(1000.0, bandwidth_hz=2e6)) == pytest.approx(2e6 * 3.459432)
    assert float(model.rates_bps(1e9, bandwidth_hz=2e6)) == pytest.approx(2e6 * 5.0)


def test_the_highest_rates_are_those_of_ts_38306() -> None:
    """TS 38.306, 4.1.2: 8 · 948/1024 · 273 · 12 · 28,000 symbols/s · (1 − 0.08) = 625.0 Mb/s in 100 MHz at 30 kHz."""
    bandwidth_hz = resource_blocks_hz(273, 1)
    rate_bps = float(Mcs().rates_bps(ratio(ENDLESS_DB), bandwidth_hz=bandwidth_hz))
    assert rate_bps == pytest.approx(8 * 948 / 1024 * 273 * 12 * 28_000 * 0.92, rel=1e-12)
    assert rate_bps / 1e6 == pytest.approx(625.0, abs=0.05)
    downlink = Mcs(overhead=0.14)
    assert 4 * float(downlink.rates_bps(ratio(ENDLESS_DB), bandwidth_hz=bandwidth_hz)) / 1e6 == pytest.approx(
        2337.0, abs=0.5
    )


def test_the_tables_are_those_of_an_independent_implementation() -> None:
    """Sionna's tables of TS 38.214: modulation order and code rate by table index."""
    utils = pytest.importorskip("sionna.phy.nr.utils")
    import torch

    for index, name in enumerate(("qam64", "qam256", "qam64-low"), start=1):
        orders, rates = zip(*((o, r) for o, row in mcs.TABLES[name] for r in row), strict=True)
        theirs = utils.decode_mcs_index(torch.arange(len(orders)), table_index=index, is_pusch=False)
        assert list(orders) == theirs[0].tolist()
        np.testing.assert_allclose(np.array(rates) / 1024.0, theirs[1].numpy(), rtol=1e-6)


def test_efficiencies_by_hand() -> None:
    """First and last spectral efficiencies that the standard prints beside each scheme."""
    printed = {"qam64": (0.2344, 5.5547), "qam256": (0.2344, 7.4063), "qam64-low": (0.0586, 4.5234)}
    for table, ends in printed.items():
        found = mcs.efficiencies(table)
        assert (found[0], found[-1]) == pytest.approx(ends, abs=5e-5)
        assert len(found) == {"qam256": 28}.get(table, 29)


def test_thresholds_solve_the_normal_approximation() -> None:
    """An independent solution: the rate that Polyanskiy, Poor and Verdú give for n symbols and an error probability."""
    options, symbols = Mcs(table="qam64", block_error_rate=0.01, margin_db=2.0), 500.0
    for threshold_db, bits in zip(mcs.thresholds_db(options, symbols), mcs.efficiencies("qam64"), strict=True):
        n = min(symbols, 8448.0 / bits)

        def excess(db: float, n: float = n, bits: float = bits) -> float:
            s = ratio(db)
            dispersion = s * (s + 2.0) / (s + 1.0) ** 2 * np.log2(np.e) ** 2
            return np.log2(1.0 + s) - np.sqrt(dispersion / n) * norm.isf(0.01) + np.log2(n) / (2 * n) - bits

        assert threshold_db == pytest.approx(2.0 + brentq(excess, -40.0, 60.0), abs=1e-6)


def test_retransmissions_by_hand() -> None:
    """At its threshold the last scheme fails once in ten first transmissions, and never after combining two."""
    for most, factor in ((1, 0.9), (2, 1.0 / 1.1), (4, 1.0 / 1.1)):
        options = Mcs(table="qam64-low", transmissions_max=most, margin_db=0.0, overhead=0.0)
        symbols = mcs.block_symbols(1e6)
        threshold_db = mcs.thresholds_db(options, symbols)[0]
        rate_bps = float(options.rates_bps(ratio(threshold_db + 1e-9), bandwidth_hz=1e6))
        failing = mcs.block_error_rate(2.0 * ratio(threshold_db), 2 * 30 / 1024, symbols)
        assert rate_bps / 1e6 / (14 / 15) == pytest.approx(2 * 30 / 1024 * factor, rel=2.0 * failing + 1e-6)


@pytest.mark.parametrize("options", [Mcs(), Mcs(table="qam64-low", block_error_rate=0.5), Mcs(transmissions_max=1)])
@pytest.mark.parametrize("bandwidth_hz", [180e3, 10e6])
def test_rates_never_fall_and_stay_below_shannon(options: Mcs, bandwidth_hz: float) -> None:
    ratios = 10.0 ** np.linspace(-4.0, 6.0, 40_001)
    rates_bps = options.rates_bps(ratios, bandwidth_hz=bandwidth_hz)
    assert (np.diff(rates_bps) >= 0.0).all()
    assert (rates_bps <= Shannon().rates_bps(ratios, bandwidth_hz=bandwidth_hz)).all()
    assert rates_bps[0] == 0.0
    assert rates_bps.shape == ratios.shape


def test_short_blocks_need_more_power() -> None:
    narrow, wide = (mcs.thresholds_db(Mcs(), mcs.block_symbols(hz)) for hz in (180e3, 10e6))
    assert (narrow > wide).all()
    assert narrow[0] - wide[0] > 0.5


def test_resource_blocks_by_hand() -> None:
    """One block of numerology 0 is 180 kHz; 273 of numerology 1 are 98.28 MHz of a 100 MHz carrier."""
    assert resource_blocks_hz(1, 0) == 180e3
    assert resource_blocks_hz(273, 1) == 98.28e6
    scenario = load_scenario("femnist", ["radio.resource_blocks=4", "radio.numerology=2"])
    assert scenario.radio.bandwidth_hz == 4 * 12 * 60e3
    radio = scenario.radio_link()
    noise_w = 4 * 12 * 60e3 * 10 ** (-20.4)
    assert float(radio.rates_bps(1e-10)) == pytest.approx(4 * 12 * 60e3 * np.log2(1 + 0.2e-10 / noise_w))


def test_blocks_replace_the_bandwidth_of_a_preset_and_survive_a_round_trip(tmp_path) -> None:
    from qccf.settings.loading import scenario_to_toml

    scenario = load_scenario("paper-table", ["radio.resource_blocks=10"])
    assert scenario.radio.bandwidth_hz == 1.8e6
    (tmp_path / "it.toml").write_text(scenario_to_toml(scenario))
    assert load_scenario(tmp_path / "it.toml") == scenario
    assert load_scenario(scenario, ["radio.resource_blocks=20"]).radio.bandwidth_hz == 3.6e6
    assert load_scenario(scenario, ["radio.resource_blocks=10", "radio.numerology=1"]).radio.bandwidth_hz == 3.6e6
    in_hertz = load_scenario("3gpp", ["radio.bandwidth_hz=2e7"]).radio
    assert (in_hertz.bandwidth_hz, in_hertz.resource_blocks, in_hertz.numerology) == (2e7, 0, 0), "instead of blocks"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["radio.numerology=1"], "numerology = 1 has no effect without resource_blocks: set both or none"),
        (["radio.resource_blocks=1", "radio.bandwidth_hz=1e6"], "which are 180000 Hz: leave one of them out"),
        (["radio.resource_blocks=300"], "radio.resource_blocks = 300 is out of range: it must be at most 275"),
        (["radio.numerology=9", "radio.resource_blocks=1"], "radio.numerology = 9 is out of range"),
        (
            ["radio.num_channels=100", "radio.resource_blocks=273", "radio.numerology=1"],
            "are 9.83e+09 Hz, more than cell.carrier_hz = 2.4e+09: take fewer channels or blocks",
        ),
        (["cell.neighbours=6", "radio.interference_margin_db=3"], "contradicts radio.interference_margin_db = 3.0"),
        (["cell.neighbours=6", "radio.trace=gains.npz"], "contradicts radio.trace = 'gains.npz'"),
        (["radio.rate=mcs", "radio.rate_options={a = 1}"], "use radio.mcs"),
        (["radio.mcs.table=qam64"], 'radio.mcs.table has no effect with radio.rate = "shannon"'),
        (["radio.rate=mcs", "radio.mcs.table=qam1024"], "radio.mcs.table = 'qam1024' is not one of"),
        (["radio.rate=mcs", "radio.mcs.margin_db=-1"], "radio.mcs.margin_db = -1 is out of range"),
        (["radio.rate=shanon"], "did you mean 'shannon'"),
    ],
)
def test_mistakes_are_refused(overrides: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_scenario("femnist", overrides).radio_link()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


class HalfShannon:
    """A user's own model."""

    def __init__(self, share: float = 0.5) -> None:
        self.share = share

    def rates_bps(self, signal_to_noise, *, bandwidth_hz):
        return self.share * bandwidth_hz * np.log2(1.0 + signal_to_noise)


def test_a_users_own_model_is_used_in_the_cell() -> None:
    plain = build_world(load_scenario("femnist"), 0).cell.round_rates_bps(2)
    own = [f"radio.rate={__name__}:HalfShannon", "radio.rate_options={share = 0.25}"]
    rates_bps = build_world(load_scenario("femnist", own), 0).cell.round_rates_bps(2)
    np.testing.assert_allclose(rates_bps, 0.25 * plain)
