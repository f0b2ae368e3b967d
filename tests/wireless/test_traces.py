"""Traces in every form, what is refused, and that a trace belongs to the identity of a run."""

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from qccf.core.errors import ConfigError, InfeasibleError, RunFolderError
from qccf.devices.clients_table import read_clients
from qccf.rounds.run_folder import begin_run, read_scenario, require_same_run
from qccf.rounds.sources import read_trace
from qccf.rounds.world import build_world
from qccf.settings.loading import Scenario, load_scenario, run_digest
from qccf.wireless.traces import trace as limits

CLIENTS, CHANNELS, ROUNDS = 3, 2, 4
RATES = 1e6 * (100.0 + np.arange(ROUNDS * CLIENTS * CHANNELS).reshape(ROUNDS, CLIENTS, CHANNELS))
UCC_HEADER = (
    "Timestamp,Longitude,Latitude,Speed,Operatorname,CellID,NetworkMode,RSRP,RSRQ,SNR,CQI,RSSI,DL_bitrate,UL_bitrate,"
    "State,PINGAVG,PINGMIN,PINGMAX,PINGSTDEV,PINGLOSS,CELLHEX,NODEHEX,LACHEX,RAWCELLID,NRxRSRP,NRxRSRQ\n"
)


def scenario(path: Path, *more: str) -> Scenario:
    settings = [f"federation.num_clients={CLIENTS}", f"radio.num_channels={CHANNELS}", f"radio.trace={path}"]
    return load_scenario("femnist", [*settings, *more])


def rates_bps(path: Path, round_index: int, *more: str) -> np.ndarray:
    return build_world(scenario(path, *more), 0).cell.round_rates_bps(round_index)


def csv_lines(values: np.ndarray = RATES, column: str = "rate_bps") -> list[str]:
    rows = [f"{n},{i},{c},{float(values[n, i, c])!r}" for n, i, c in np.ndindex(values.shape)]
    return [f"round,client,channel,{column}", *rows]


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_csv_parquet_and_npz_give_the_same_rates(tmp_path: Path) -> None:
    import pandas as pd

    table = written(tmp_path / "rates.csv", csv_lines())
    shuffled = pd.read_csv(table).sample(frac=1.0, random_state=1)
    shuffled.to_parquet(tmp_path / "rates.parquet")
    np.savez(tmp_path / "rates.npz", rates_bps=RATES)
    for name in ("rates.csv", "rates.parquet", "rates.npz"):
        for n in range(ROUNDS):
            np.testing.assert_array_equal(rates_bps(tmp_path / name, n), RATES[n])


def test_a_trace_wraps_around_or_ends(tmp_path: Path) -> None:
    np.savez(tmp_path / "rates.npz", rates_bps=RATES)
    np.testing.assert_array_equal(rates_bps(tmp_path / "rates.npz", ROUNDS + 1), RATES[1])
    stop = "radio.trace_end=stop"
    np.testing.assert_array_equal(rates_bps(tmp_path / "rates.npz", 3, stop, "federation.rounds=4"), RATES[3])
    with pytest.raises(ConfigError, match=r"ends after 4 rounds, but federation.rounds = 5: lower it, or set"):
        rates_bps(tmp_path / "rates.npz", 0, stop, "federation.rounds=5")


def test_without_channels_all_are_alike(tmp_path: Path) -> None:
    np.savez(tmp_path / "rates.npz", rates_bps=RATES[:, :, 0])
    np.testing.assert_array_equal(rates_bps(tmp_path / "rates.npz", 2), np.repeat(RATES[2, :, :1], CHANNELS, axis=1))


def test_gains_become_rates_by_the_rate_model(tmp_path: Path) -> None:
    """A gain of -90 dB with 0.2 W in 10 MHz: SNR 0.2e-9/(1e7·10^-20.4) = 5024, with 10 dB of antenna gain 50238."""
    written(tmp_path / "gains.csv", csv_lines(np.full_like(RATES, -90.0), "gain_db"))
    found = rates_bps(tmp_path / "gains.csv", 0, "radio.gain_db=10")
    np.testing.assert_allclose(found, 1e7 * np.log2(1.0 + 0.2e-8 / (1e7 * 10**-20.4)))
    np.savez(tmp_path / "gains.npz", gains=np.full_like(RATES, 1e-9))
    np.testing.assert_allclose(rates_bps(tmp_path / "gains.npz", 0, "radio.gain_db=10"), found)


def ucc_row(kbps: str, second: int) -> str:
    """A row as the app writes it: a missing value is a hyphen."""
    return (
        f"2019.12.16_13.40.{second:02d},-8.394207,51.888103,0,B,12,5G,-99,-13,6.0,11,-,5000,{kbps},D,"
        "-,-,-,-,-,C,A,B,1,-100,-1\n"
    )


def test_throughput_of_phones(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    sessions = {"B_2019.csv": ["41000", "-", "38000"], "A_2019.csv": ["52000", "50500", "0", "51000"]}
    for name, cells in sessions.items():
        (folder / name).write_text(UCC_HEADER + "".join(ucc_row(cell, n) for n, cell in enumerate(cells)))
    form = "radio.trace_form=ucc-5g"
    found = np.array([rates_bps(folder, n, form) for n in range(4)])
    first, second = [52e6, 50.5e6, 0.0, 52e6], [41e6, 0.0, 38e6, 41e6]  # cut to three rows, then from the start
    for client, expected in ((0, first), (1, second), (2, first)):
        np.testing.assert_array_equal(found[:, client, 0], expected)
        np.testing.assert_array_equal(found[:, client, 1], expected)
    np.testing.assert_array_equal(rates_bps(folder / "A_2019.csv", 1, form)[:, 0], [50.5e6] * 3)
    (folder / "A_2019.csv").write_text(UCC_HEADER.replace("UL_bitrate", "UL") + ucc_row("1", 0))
    with pytest.raises(ConfigError, match=r"has no column UL_bitrate in A_2019.csv: ucc-5g needs Timestamp"):
        rates_bps(folder, 0, form)
    (folder / "A_2019.csv").write_text(UCC_HEADER + ucc_row("fast", 0))
    with pytest.raises(ConfigError, match="neither a number nor '-'"):
        rates_bps(folder, 0, form)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"is a folder without \.csv files"):
        rates_bps(tmp_path / "empty", 0, form)


def as_a_spreadsheet_writes(text: str) -> str:
    """The same table with a byte-order mark, blanks after commas, and blank lines after it."""
    return "\ufeff" + text.replace(",", ", ") + "\n  \n"


def test_what_a_spreadsheet_writes_is_read(tmp_path: Path) -> None:
    """Traces of rates and of phones, tables of clients and traces of statistics."""
    written(tmp_path / "rates.csv", [as_a_spreadsheet_writes("\n".join(csv_lines()) + "\n")])
    np.testing.assert_array_equal(rates_bps(tmp_path / "rates.csv", 2), RATES[2])
    rows = "".join(ucc_row(cell, n) for n, cell in enumerate(["52000", "-"]))
    written(tmp_path / "phone.csv", [as_a_spreadsheet_writes(UCC_HEADER + rows)])
    found = [rates_bps(tmp_path / "phone.csv", n, "radio.trace_form=ucc-5g")[0, 0] for n in range(3)]
    assert found == [52e6, 0.0, 52e6]
    written(
        tmp_path / "clients.csv", [as_a_spreadsheet_writes("cycles_per_sample,profile\nauto,laptop\n700,pixel-2\n")]
    )
    assert read_clients(str(tmp_path / "clients.csv")).rows == (
        {"cycles_per_sample": "auto", "profile": "laptop"},
        {"cycles_per_sample": 700.0, "profile": "pixel-2"},
    )
    written(tmp_path / "losses.csv", [as_a_spreadsheet_writes("round,loss\n0,2\n5,1\n")])
    rounds, losses = read_trace(str(tmp_path / "losses.csv"), 3)["loss", None]
    assert (rounds.tolist(), losses.tolist()) == ([0.0, 5.0], [2.0, 1.0])


@pytest.mark.parametrize("uplink", [False, True])
def test_ray_traced_as_sionna_exports_it(tmp_path: Path, uplink: bool) -> None:
    """[rx, rx antenna, tx, tx antenna, time step, frequency], complex64; the base station is the single device."""
    rng = np.random.default_rng(5)
    shape = (1, 4, CLIENTS, 2, ROUNDS, 7) if uplink else (CLIENTS, 2, 1, 4, ROUNDS, 7)
    cfr = (1e-5 * (rng.standard_normal(shape) + 1j * rng.standard_normal(shape))).astype(np.complex64)
    np.savez(tmp_path / "cfr.npz", cfr=cfr)
    cell = build_world(scenario(tmp_path / "cfr.npz", "radio.trace_form=ray-traced"), 0).cell
    for n, i in np.ndindex(ROUNDS, CLIENTS):
        one = cfr[0, :, i, :, n, :] if uplink else cfr[i, :, 0, :, n, :]
        power = np.abs(one.astype(complex)) ** 2
        expected = [power[..., :4].mean(), power[..., 4:].mean()]  # 7 frequencies on 2 channels
        np.testing.assert_allclose(cell.trace.gains[n, i], expected, rtol=1e-6)
    np.testing.assert_allclose(cell.round_rates_bps(1), cell.radio.rates_bps(cell.trace.gains[1]))


def test_ray_traced_as_deepmimo_exports_it(tmp_path: Path) -> None:
    """[user, rx antenna, tx antenna, subcarrier], complex; one scene for all rounds."""
    channel = np.zeros((CLIENTS, 1, 2, 4), dtype=np.complex128)
    channel[:, 0, :, :2] = 3e-5 + 4e-5j  # |H|² = 25e-10
    channel[:, 0, 0, 2:] = 2e-5  # the other antenna receives nothing there: mean 2e-10
    np.save(tmp_path / "channel.npy", channel)
    cell = build_world(scenario(tmp_path / "channel.npy", "radio.trace_form=ray-traced"), 0).cell
    np.testing.assert_allclose(cell.trace.gains, np.broadcast_to([25e-10, 2e-10], (1, CLIENTS, 2)))
    np.testing.assert_array_equal(cell.round_rates_bps(0), cell.round_rates_bps(9))


def huge_header() -> bytes:
    """An .npy file that claims 10^12 values and holds none."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)})
    return buffer.getvalue()


def npz_of(path: Path, name: str, content: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, content)
    return path


def saved(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)
    return path


def parquet(path: Path) -> Path:
    import pandas as pd

    pd.DataFrame({"round": [0], "client": [0], "rate_bps": ["fast"]}).to_parquet(path)
    return path


def cut(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def changed(values: np.ndarray, value: float) -> np.ndarray:
    values = values.copy()
    values[1, 2, 0] = value
    return values


BAD = {
    "absent": (lambda p: p / "none.csv", "cannot be read: No such file or directory."),
    "ending": (lambda p: written(p / "t.txt", csv_lines()), "does not end in .csv, .parquet or .npz"),
    "no rows": (lambda p: written(p / "t.csv", csv_lines()[:1]), "has no rows."),
    "empty": (lambda p: written(p / "t.csv", []), "has the columns (none), but needs round, client"),
    "columns": (
        lambda p: written(p / "t.csv", ["round,client,speed", "0,0,1"]),
        "the columns round, client, speed",
    ),
    "both": (
        lambda p: written(p / "t.csv", ["round,client,rate_bps,gain_db", "0,0,1,1"]),
        "rate_bps or gain_db",
    ),
    "twice": (lambda p: written(p / "t.csv", ["round,round,rate_bps", "0,0,1"]), "has a column twice."),
    "row missing": (lambda p: written(p / "t.csv", csv_lines()[:-1]), "4 × 3 × 2 = 24 combinations"),
    "row twice": (lambda p: written(p / "t.csv", [*csv_lines()[:-1], csv_lines()[1]]), "give each exactly one row."),
    "ragged": (lambda p: written(p / "t.csv", [*csv_lines(), "5,1"]), "has 2 cells in row 25, but 4 columns."),
    "text": (lambda p: written(p / "t.csv", [csv_lines()[0], "0,0,0,fast"]), "rate_bps that is not a number."),
    "half": (lambda p: written(p / "t.csv", [csv_lines()[0], "0.5,0,0,1"]), "the column round that is not a whole"),
    "index": (lambda p: written(p / "t.csv", [csv_lines()[0], "1e300,0,0,1"]), "not a whole number from 0 to"),
    "sparse": (lambda p: written(p / "t.csv", [csv_lines()[0], "9999999,9999999,0,1"]), "values, more than 50,000,000"),
    "binary": (lambda p: Path(p / "t.csv").write_bytes(b"\xff\xfe\x00") and p / "t.csv", "is not a CSV file in UTF-8."),
    "negative": (lambda p: saved(p / "t.npz", rates_bps=changed(RATES, -1.0)), "a rate of -1 in round 1 for client 2"),
    "infinite": (lambda p: saved(p / "t.npz", rates_bps=changed(RATES, np.inf)), "a rate of inf in round 1"),
    "nan": (lambda p: saved(p / "t.npz", rates_bps=changed(RATES, np.nan)), "a rate of nan in round 1"),
    "in bytes": (lambda p: saved(p / "t.npz", rates_bps=RATES * 1e9), "it must be from 0 to 1e+13."),
    "decibels": (lambda p: saved(p / "t.npz", gains=RATES * 0 + 90.0), "a gain of 90 in round 0"),
    "zeros": (lambda p: saved(p / "t.npz", rates_bps=RATES * 0), "has no rate above 0, so nobody could ever upload."),
    "clients": (lambda p: saved(p / "t.npz", rates_bps=RATES[:, :2]), "has 2 clients, but federation.num_clients = 3"),
    "channels": (lambda p: saved(p / "t.npz", rates_bps=np.ones((4, 3, 5))), "has 5 channels, but radio.num_channels"),
    "axes": (lambda p: saved(p / "t.npz", rates_bps=np.ones(3)), "has the shape (3,)"),
    "two arrays": (lambda p: saved(p / "t.npz", rates_bps=RATES, gains=RATES), "holds rates_bps, gains, but needs one"),
    "objects": (lambda p: saved(p / "t.npz", rates_bps=np.array([{}, {}])), "an array of type object"),
    "words": (lambda p: saved(p / "t.npz", rates_bps=np.array(["a"])), "but needs numbers."),
    "complex": (lambda p: saved(p / "t.npz", rates_bps=RATES * 1j), "of type complex128, but needs real numbers."),
    "cut npz": (lambda p: cut(saved(p / "t.npz", rates_bps=RATES)), "is not a whole file of NumPy arrays"),
    "claims": (
        lambda p: npz_of(p / "t.npz", "rates_bps.npy", huge_header()),
        "1,000,000,000,000 values, more than",
    ),
    "no npy": (lambda p: npz_of(p / "t.npz", "rates_bps.npy", b"hello there"), "is not a whole file of NumPy arrays"),
    "words in parquet": (lambda p: parquet(p / "t.parquet"), "has a column rate_bps of type"),
    "parquet": (lambda p: written(p / "t.parquet", ["PAR1"]), "is not a whole Parquet file"),
}


@pytest.mark.parametrize("kind", list(BAD))
def test_what_cannot_be_used_is_refused_in_one_sentence(kind: str, tmp_path: Path) -> None:
    make, words = BAD[kind]
    with pytest.raises(ConfigError) as caught:
        rates_bps(make(tmp_path), 0)
    assert words in str(caught.value)
    assert str(caught.value).startswith("radio.trace = ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (np.ones((CLIENTS, 1, 1, 4)), "ray-traced channels are one complex array."),
        (np.ones((CLIENTS, 4), dtype=complex), "Sionna RT has six axes"),
        (np.ones((3, 1, 2, 1, 1, 4), dtype=complex), "has 3 receivers and 2 transmitters"),
        (np.ones((CLIENTS, 1, 1, 1), dtype=complex), "has 1 frequencies, fewer than radio.num_channels = 2"),
    ],
)
def test_ray_traced_files_that_are_refused(response: np.ndarray, words: str, tmp_path: Path) -> None:
    np.save(tmp_path / "h.npy", response)
    with pytest.raises(ConfigError) as caught:
        rates_bps(tmp_path / "h.npy", 0, "radio.trace_form=ray-traced")
    assert words in str(caught.value)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "t.npz", rates_bps=np.ones((100, CLIENTS, CHANNELS)))
    monkeypatch.setattr("qccf.wireless.traces.arrays.MAX_BYTES", 4000)
    with pytest.raises(ConfigError, match="unpacks to more than 4,000 bytes"):
        rates_bps(tmp_path / "t.npz", 0)
    table = written(tmp_path / "t.csv", csv_lines())
    monkeypatch.setattr(limits, "MAX_TEXT_BYTES", 100)
    with pytest.raises(ConfigError, match="more than 100: write it as Parquet or NPZ, or cut it"):
        rates_bps(table, 0)
    monkeypatch.setattr(limits, "MAX_BYTES", 100)
    with pytest.raises(ConfigError, match="more than 100: cut it into smaller parts"):
        rates_bps(tmp_path / "t.npz", 0)


def test_a_trace_too_slow_for_the_deadline_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", rates_bps=RATES / 1e6)
    with pytest.raises(InfeasibleError, match=r"the best link of radio.trace has .* Mb/s: raise the deadline"):
        rates_bps(tmp_path / "t.npz", 0)


def test_another_trace_is_another_run(tmp_path: Path) -> None:
    path = saved(tmp_path / "t.npz", rates_bps=RATES)
    first = scenario(path)
    assert len(first.radio.trace_digest) == 64
    begin_run(tmp_path / "run", first)
    (tmp_path / "run" / "checkpoints").mkdir()
    (tmp_path / "run" / "checkpoints" / "round-000001.npz").touch()
    require_same_run(tmp_path / "run", scenario(path))
    held = read_scenario(tmp_path / "run")
    saved(path, rates_bps=RATES * 1.01)
    assert run_digest(scenario(path)) != run_digest(first)
    with pytest.raises(RunFolderError, match=r"radio.trace_digest = .* there"):
        require_same_run(tmp_path / "run", scenario(path))
    with pytest.raises(ConfigError, match="is not the trace with which this run began"):
        build_world(held, 0)
    saved(path, rates_bps=RATES)
    build_world(held, 0)
    path.unlink()
    assert read_scenario(tmp_path / "run") == held, "a report needs no trace"
    other = saved(tmp_path / "other.npz", rates_bps=2.0 * RATES)
    assert load_scenario(held, [f"radio.trace={other}"]).radio.trace_digest == scenario(other).radio.trace_digest


def own_form(path: Path, *, num_clients: int, num_channels: int) -> limits.Trace:
    """A user's own form: one number for all."""
    return limits.Trace(rates_bps=np.full((1, num_clients, num_channels), float(path.read_text())))


def test_a_users_own_form(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("5e7")
    np.testing.assert_array_equal(
        rates_bps(tmp_path / "one.txt", 3, f"radio.trace_form={__name__}:own_form"), np.full((CLIENTS, CHANNELS), 5e7)
    )


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zero.npz").symlink_to("/dev/zero")
    for name in ("pipe.csv", "zero.npz"):
        chosen = scenario(tmp_path / name)
        assert chosen.radio.trace_digest == ""
        with pytest.raises(ConfigError, match=rf"{name}' cannot be read: it is not a regular file\."):
            build_world(chosen, 0)


def test_a_file_that_is_too_large_has_no_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "t.npz", rates_bps=RATES)
    known = scenario(path)
    assert known.radio.trace_digest
    monkeypatch.setattr(limits, "MAX_BYTES", 100)
    assert limits.trace_digest(str(path)) == ""
    with pytest.raises(ConfigError, match="more than 100: cut it"):
        build_world(known, 0)
