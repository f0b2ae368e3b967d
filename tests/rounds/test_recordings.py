"""Plans from recordings of real training: every codec has a price, and the recording fits any federation."""

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qccf.cli.main import main
from qccf.core.contracts import Decision
from qccf.core.errors import ConfigError
from qccf.quantization.costs import error_bound_table
from qccf.quantization.registry import CODECS
from qccf.rounds.recordings import (
    SERIES,
    bundled_recording,
    read_recording,
    recording_name,
    recording_words,
    write_recording,
)
from qccf.rounds.sources import BundledStatistics, fall_of_loss
from qccf.runtimes.planner import plan, planned_scenarios
from qccf.settings.loading import load_scenario
from qccf.settings.schema import DEFAULT_CODEC, RECORDINGS

FOLDER = Path(__file__).parents[2] / "src/qccf/settings/presets/recordings"


def source(*overrides: str, preset: str = "quick") -> BundledStatistics:
    scenario = load_scenario(preset, overrides)
    return BundledStatistics(scenario, np.full(scenario.federation.num_clients, 100.0))


def everybody(count: int, num_bits: int, *, raw: bool = False) -> Decision:
    return Decision(np.arange(count), np.full(count, num_bits), np.full(count, 1e9), raw=raw)


def test_the_files_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.npz")) < 400_000
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(RECORDINGS)


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_holds_every_codec_and_sensible_numbers(name: str) -> None:
    recording = bundled_recording(name)
    assert list(recording.codecs) == list(CODECS)
    assert recording.num_parameters == load_scenario(name).learning.num_parameters
    assert recording.rounds[0] == 0
    assert (np.diff(recording.rounds) > 0).all()
    shape = (len(recording.rounds), recording.num_clients)
    assert all(recording.series[key].shape == shape for key in SERIES)
    loss = recording.series["loss"].mean(axis=1)
    assert loss[-1] < 0.9 * loss[0], "it learned"
    for codec, tables in recording.codecs.items():
        bounds = error_bound_table(tables.error_scales[..., None])
        assert (tables.errors <= bounds * 1.01).all()
        assert (tables.errors > 0.0).all()
        assert (np.diff(tables.errors, axis=-1) <= 0.0).all()
        assert (tables.bits_per_parameter is not None) == codec.endswith(("entropy", "sparse"))
    small = recording.codecs["update+entropy"].bits_per_parameter
    assert (small[..., 0] < 1.5).all()
    for key in ("preset", "dataset", "data", "seed", "version", "samples_per_client", "rounds"):
        assert key in recording.about


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    recording = bundled_recording("quick")
    write_recording(tmp_path / "again.npz", recording)
    again = read_recording((tmp_path / "again.npz").read_bytes())
    assert again.about == recording.about
    for name, tables in recording.codecs.items():
        np.testing.assert_allclose(again.codecs[name].errors, tables.errors, rtol=2e-3)
        if tables.bits_per_parameter is not None:
            np.testing.assert_array_equal(again.codecs[name].bits_per_parameter, tables.bits_per_parameter)


def test_a_recording_with_a_pickle_is_not_read() -> None:
    file = io.BytesIO()
    np.savez(file, header=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        read_recording(file.getvalue())


def test_values_are_interpolated_between_stored_rounds_and_held_after_the_last() -> None:
    recording = bundled_recording("femnist")
    ranges, rounds = recording.series["weight_range"], recording.rounds
    place = int(np.argmax(np.diff(rounds) > 1))  # a gap
    known = source(preset="femnist")
    for at in (0, 1, -1):
        np.testing.assert_allclose(known.known(int(rounds[at])).weight_ranges, ranges[at])
    middle = rounds[place] + 1.0
    expected = [np.interp(middle, rounds, ranges[:, client]) for client in range(10)]
    np.testing.assert_allclose(known.known(int(middle)).weight_ranges, expected)
    np.testing.assert_array_equal(known.known(10_000).weight_ranges, ranges[-1])
    np.testing.assert_allclose(known.losses(0), recording.series["loss"][1])
    known.recording = replace(recording, rounds=10.0 * rounds)
    np.testing.assert_allclose(known.known(5).weight_ranges, (ranges[0] + ranges[1]) / 2.0)


def test_after_its_last_round_the_loss_of_a_recording_goes_on_falling() -> None:
    """As 8/n: what falls by half from round 4 to round 8 falls by half again to round 16."""
    rounds = np.array([0.0, 4.0, 6.0, 8.0])
    losses = 8.0 / np.maximum(rounds, 1.0)[:, None] * np.array([1.0, 3.0])
    known = source()
    series = {**known.recording.series, "loss": losses}
    known.recording = replace(known.recording, rounds=rounds, series=series)
    known._clients = np.array([0, 1])
    assert known.losses(7) == pytest.approx([1.0, 3.0])
    assert known.losses(15) == pytest.approx([0.5, 1.5])
    assert fall_of_loss(rounds, losses[:, 0]) == pytest.approx(1.0)
    assert fall_of_loss(rounds, losses[::-1, 0]) == 0.0, "a loss that rises is held"
    assert fall_of_loss(rounds[:2], losses[:2, 0]) == 0.0, "one point has no slope"


@pytest.mark.parametrize(("codec", "shrinks"), [("update", True), ("model", False)])
def test_in_plans_updates_shrink_with_the_learning_rate(codec: str, shrinks: bool) -> None:
    """What is known in round 4 was measured in round 3, at η·0.5³."""
    usual, slower = (
        source(f"codec.name={codec}", f"learning.decay={decay}", preset="femnist").known(4) for decay in (1.0, 0.5)
    )
    assert slower.gradient_norms_sq == pytest.approx(usual.gradient_norms_sq / 64.0)
    assert slower.gradient_variances == pytest.approx(usual.gradient_variances / 64.0)
    ratio = 64.0 if shrinks else 1.0
    assert slower.upload_errors == pytest.approx(usual.upload_errors / ratio)
    assert slower.error_scales == pytest.approx(usual.error_scales / ratio)
    assert slower.weight_ranges.tolist() == usual.weight_ranges.tolist()


def test_clients_repeat_and_sizes_and_errors_scale_with_the_parameters() -> None:
    ten, many = source(), source("federation.num_clients=23", "learning.num_parameters=493_180")
    one, other = ten.known(3), many.known(3)
    index = np.arange(23) % 10
    np.testing.assert_array_equal(other.gradient_norms_sq, one.gradient_norms_sq[index])
    for name in ("upload_bits", "upload_errors", "error_scales"):
        np.testing.assert_allclose(getattr(other, name), 2.0 * getattr(one, name)[index])


@pytest.mark.parametrize(("codec", "ratio"), [("update+entropy", 0.04), ("model+entropy", 1.0)])
def test_errors_of_updates_follow_the_squares_of_learning_rate_and_steps(codec: str, ratio: float) -> None:
    """A tenth of the learning rate and twice the steps: updates have a fifth of the length."""
    common = {"codec.name": codec}
    changed = {"learning.learning_rate": 0.01, "learning.local_updates": 12}
    before, after = (
        BundledStatistics(load_scenario("femnist", common | more), np.full(10, 1200.0)).known(5)
        for more in ({}, changed)
    )
    assert after.upload_errors == pytest.approx(ratio * before.upload_errors)
    assert after.error_scales == pytest.approx(ratio * before.error_scales)
    assert after.gradient_norms_sq.tolist() == before.gradient_norms_sq.tolist()


def test_the_margin_is_known_and_not_sent() -> None:
    plain, wide = source("codec.safety_margin=0.0"), source("codec.safety_margin=0.5")
    np.testing.assert_allclose(wide.known(4).upload_bits, 1.5 * plain.known(4).upload_bits)
    sent = wide.sizes_bits(3, everybody(10, 5))
    np.testing.assert_array_equal(sent, plain.known(4).upload_bits[:, 4])
    assert np.isnan(wide.sizes_bits(3, everybody(10, 32, raw=True))).all()
    assert np.isnan(source("codec.name=model").sizes_bits(3, everybody(10, 5))).all()


def test_every_codec_has_a_price_and_the_default_is_the_scenarios() -> None:
    scenario = load_scenario("quick", ["federation.rounds=2"])
    runs = plan(scenario, ["qccf"], 1, codecs=list(CODECS))
    assert [run.codec for run in runs] == list(CODECS)
    energies = {run.codec: run.summary["energy_j"] for run in runs}
    assert energies["update+entropy"] < energies["update"] < energies["model"]
    (default,) = plan(scenario, ["qccf"], 1)
    assert default.codec == DEFAULT_CODEC
    assert default.summary["energy_j"] == energies[DEFAULT_CODEC]
    assert default.scenario.codec.safety_margin == scenario.codec.safety_margin


def test_principle_sees_a_loss_that_falls() -> None:
    scenario = load_scenario("quick", ["codec.name=model"])
    (recorded,) = plan(scenario, ["principle"], 1)
    constant = load_scenario("quick", ["codec.name=model", "statistics.model=constant"])
    (held,) = plan(constant, ["principle"], 1)
    assert recorded.round_columns["train_loss"][-1] < recorded.round_columns["train_loss"][0]
    assert recorded.mean_bits[-1] < held.mean_bits[-1], "a constant loss raises the bits every few rounds"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["statistics.model=constant"], "statistics.model = \"constant\" cannot price codec 'update.entropy'"),
        (["codec.name=examples.custom_codec:Signs"], "is not in the recorded statistics"),
        (["codec.name=block", "codec.options={block = 64}"], "'block' with codec.options is not in the recorded"),
    ],
)
def test_a_codec_without_a_price_is_refused_with_the_remedy(settings: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"{sentence}.*--statistics-from RUN"):
        planned_scenarios(load_scenario("quick", settings))


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("statistics.trace=mine.csv", 'trace = "mine.csv" is not a recording'),
        ("statistics.weight_range=0.7", 'no effect with statistics.model = "recorded"'),
    ],
)
def test_settings_that_a_recording_does_not_use_are_refused(setting: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load_scenario("quick", [setting])


def test_the_recording_is_that_of_the_preset_or_the_model() -> None:
    assert [recording_name(load_scenario(name)) for name in RECORDINGS] == list(RECORDINGS)
    words = recording_words(load_scenario("cifar10"))
    assert "CIFAR-10 itself was not recorded" in words
    assert "mnist" in words
    scaled = recording_words(load_scenario("quick", ["learning.num_parameters=1000", "federation.rounds=50"]))
    assert (
        "recorded for 246,590 parameters; scaled; after that the last values are held, and the loss goes on falling"
        in scaled
    )
    assert "scaled" not in recording_words(load_scenario("quick"))
    count = bundled_recording("quick").about["rounds"]
    for rounds, held in ((count, False), (count + 1, True)):
        words = recording_words(load_scenario("quick", [f"federation.rounds={rounds}"]))
        assert ("after that the last values are held, and the loss goes on falling" in words) == held
    faster = recording_words(load_scenario("quick", ["learning.learning_rate=0.3"]))
    assert faster.endswith("errors of updates are scaled with the squares of learning rate and steps")
    assert "local steps" not in recording_words(load_scenario("quick"))
    assert "recorded with 6 local steps, not the 60 of this scenario" in recording_words(load_scenario("lean"))


def test_the_command_prices_codecs_and_says_which(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["plan", "quick", "--rounds", "2", "--seeds", "1", "--policy", "qccf", "--policy", "principle"]
    assert main([*command, "--codec", "model,update+entropy"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "qccf, model" in shown
    assert "model, model" not in shown
    assert "qccf, update+entropy" in shown
    assert "recorded for 246,590 parameters." in shown
    (folder,) = Path("runs").iterdir()
    report = json.loads((folder / "plan.json").read_text())
    assert [(row["policy"], row["codec"]) for row in report["summary"]] == [
        (policy, codec) for codec in ("model", "update+entropy") for policy in ("qccf", "principle")
    ]
    before = (folder / "plan.json").read_bytes()
    assert main([*command, "--codec", "model"]) == 0
    assert main(command) == 0
    assert len(list(Path("runs").iterdir())) == 3, "each settings have their own folder"
    assert (folder / "plan.json").read_bytes() == before
    capsys.readouterr()
    assert main([*command, "--out", str(folder)]) == 2
    assert "holds a plan of other settings" in capsys.readouterr().err
    assert main([*command, "--out", str(folder), "--force"]) == 0
    assert (folder / "plan.json").read_bytes() != before
