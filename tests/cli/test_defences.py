"""Aggregation, attacks and privacy from the command line: run, resume, compare, sweep, report."""

import json
from pathlib import Path

import pandas as pd
import pytest
import tomli_w

from qccf.cli.main import main
from qccf.settings.loading import _parsed
from tests.helpers.tiny import SETTINGS, tiny_arguments

pytestmark = pytest.mark.usefixtures("tiny_source")

PRIVATE = ["privacy.clip_norm=0.5", "privacy.noise_multiplier=0.5"]


def test_epsilon_is_printed_recorded_and_reported(tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    assert main(["run", "femnist", *tiny_arguments(*PRIVATE), "--rounds", "3", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "Privacy: ε = " in shown
    assert "at δ = 1e-05 against the server, for a client with 4 uploads" in shown
    assert "no ε is stated, because it needs" in shown
    epsilon = json.loads((out / "summary.json").read_text())["privacy"]["epsilon_server"]
    assert main(["report", str(out), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "ε against the server" in page
    assert f"{epsilon:.3g} (δ = 1e-05)" in page


def test_comparisons_and_reports_without_privacy_do_not_mention_it(tmp_path: Path, capsys) -> None:
    assert main(["run", "femnist", *tiny_arguments(), "--rounds", "2", "--out", str(tmp_path / "run")]) == 0
    assert "Privacy" not in capsys.readouterr().out
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html")]) == 0
    assert "ε against the server" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_clipped_attacker_is_named_and_recorded(tmp_path: Path, capsys) -> None:
    attack = ["attack.kind=scaled-update", "attack.clients=[2]"]
    out = tmp_path / "run"
    assert main(["run", "femnist", *tiny_arguments(*attack), "--rounds", "4", "--out", str(out)]) == 0
    assert "those of 1 of 5 clients (2)" in capsys.readouterr().out
    kept = pd.read_parquet(out / "clients.parquet").groupby("client")["kept"].min()
    assert kept[2] < 0.5
    assert (kept.drop(2) == 1.0).all()


def test_a_sweep_over_rules_and_attackers(tmp_path: Path) -> None:
    settings = [*SETTINGS, "data.dataset=tiny", "attack.kind=noise", "federation.rounds=2"]
    grid = {"aggregation.rule": ["mean", "multi-krum"], "attack.clients": [1, 2]}
    file = tmp_path / "grid.toml"
    file.write_text(tomli_w.dumps({"scenario": "femnist", "settings": dict(map(_parsed, settings)), "grid": grid}))
    assert main(["sweep", str(file), "--out", str(tmp_path / "out"), "--jobs", "1"]) == 0
    table = pd.read_parquet(tmp_path / "out" / "results.parquet")
    assert set(zip(table["aggregation.rule"], table["attack.clients"], strict=True)) == {
        (rule, count) for rule in ("mean", "multi-krum") for count in (1, 2)
    }
