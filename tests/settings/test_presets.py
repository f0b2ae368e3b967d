"""Every preset runs as shipped."""

import json
from pathlib import Path

import numpy as np
import pytest

from qccf.cli.main import main
from qccf.learning.datasets import DATASETS, Dataset
from qccf.learning.models.registry import count_values
from qccf.rounds.setup import check_scenario
from qccf.settings.loading import PRESETS, load_scenario, with_layer


class RandomImages:
    """As many images of CIFAR-10's form as the preset's clients need."""

    name = "cifar10"
    description = "random images"

    def load(self, folder: Path, *, seed: int) -> Dataset:
        rng = np.random.default_rng(0)
        images = rng.integers(0, 256, (15_000, 32, 32, 3), dtype=np.uint8)
        labels = rng.integers(0, 10, 15_000)
        names = tuple("abcdefghij")
        return Dataset(
            "cifar10", images[:14_000], labels[:14_000], None, images[14_000:], labels[14_000:], names, True, ""
        )

    def fetch(self, folder: Path, progress: object) -> list[Path]:
        return []

    def check(self, folder: Path) -> list[str]:
        return []


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_states_its_models_parameters(preset: str) -> None:
    learning = load_scenario(preset).learning
    assert learning.num_parameters == count_values(learning.model).parameters


TAKE_PART = {"femnist": 1.0, "cifar10": 1.0, "quick": 1.0, "iot": 1.0, "lean": 0.2}


@pytest.mark.parametrize("preset", list(TAKE_PART))
def test_one_planned_round(preset: str, tmp_path: Path) -> None:
    assert main(["plan", preset, "--rounds", "1", "--seeds", "1", "--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "plan.json").read_text())["summary"]
    assert rows[0]["participation"]["mean"] == TAKE_PART[preset]
    if preset != "lean":  # some baselines have no share of clients
        assert {row["participation"]["mean"] for row in rows} == {1.0}


@pytest.mark.parametrize("settings", [["paper-table"], ["femnist", "control.form=paper", "codec.name=model"]])
def test_lean_can_stand_beside_the_papers_form_and_table(settings: list[str]) -> None:
    """It brings its codec and its form of the controller along, without which it could not run there."""
    layered = with_layer(load_scenario(settings[0], settings[1:]), "lean")
    assert (layered.codec.name, layered.control.form, layered.control.power) == (
        "update+entropy",
        "scale-free",
        "adapted",
    )
    check_scenario(layered)


@pytest.mark.slow
@pytest.mark.parametrize("preset", list(TAKE_PART))
def test_one_trained_round(preset: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("QCCF_DATA", str(tmp_path / "no-data"))
    monkeypatch.setitem(DATASETS, "cifar10", RandomImages)
    few = [
        "--set",
        "data.dataset_size_mean=120",
        "--set",
        "data.dataset_size_std=20",
        "--set",
        "evaluation.samples=100",
    ]
    assert main(["run", preset, "--rounds", "1", *few, "--out", str(tmp_path / "run")]) == 0
    warned = capsys.readouterr().err
    assert ("Using handwriting instead" in warned) == (preset in ("femnist", "lean"))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["participation"] == TAKE_PART[preset]
    assert summary["dataset"] == ("cifar10" if preset == "cifar10" else "handwriting")


def test_the_literal_table_is_refused_with_the_papers_codec(tmp_path: Path, capsys) -> None:
    assert main(["run", "paper-table", "--rounds", "1", "--out", str(tmp_path / "run")]) == 2
    assert "needs 28 Mb/s" in capsys.readouterr().err


def test_data_that_is_not_there_says_how_to_get_it(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("QCCF_DATA", str(tmp_path / "no-data"))
    assert main(["run", "cifar10", "--rounds", "1", "--out", str(tmp_path / "run")]) == 2
    assert "qccf data fetch cifar10" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_another_model_drops_the_presets_count_and_another_dataset_its_fallbacks() -> None:
    own = load_scenario("femnist", ["learning.model=tests.helpers.tiny:Tiny", "data.dataset=mnist"])
    assert own.learning.num_parameters == 0
    assert own.data.fallbacks == []
    assert load_scenario("femnist", ["learning.model=femnist-cnn"]).learning.num_parameters == 246_590


def test_the_order_of_overrides_does_not_matter() -> None:
    count, model = "learning.num_parameters=5", "learning.model=cifar10-cnn"
    assert load_scenario("femnist", [count, model]) == load_scenario("femnist", [model, count])
