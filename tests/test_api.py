"""qccf from Python: what a user of a notebook calls, and what runs show of themselves."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import qccf
from qccf.core.errors import ConfigError
from qccf.policies.registry import with_codecs
from qccf.rounds.run import run_labels
from tests.helpers.tiny import tiny_dataset, tiny_scenario

PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def compared() -> qccf.Runs:
    return qccf.compare(
        tiny_scenario(), {"federation.rounds": 3}, policies=["qccf", "same-size"], seeds=2, dataset=tiny_dataset()
    )


def test_settings_are_given_as_a_mapping() -> None:
    scenario = qccf.load_scenario("quick", {"federation.rounds": 3, "codec.name": "model"})
    assert (scenario.federation.rounds, scenario.codec.name) == (3, "model")
    assert qccf.load_scenario("quick", ["federation.rounds=3", "codec.name=model"]) == scenario
    again = qccf.load_scenario(scenario, {"federation.rounds": 4})
    assert (again.federation.rounds, again.codec.name) == (4, "model")
    with pytest.raises(ConfigError, match=r"federation\.round is not a setting; did you mean federation\.rounds"):
        qccf.load_scenario("quick", {"federation.round": 3})


def test_a_run_from_a_preset_or_a_scenario() -> None:
    run = qccf.simulate(tiny_scenario(), {"federation.rounds": 2}, policy="same-size", seed=5, dataset=tiny_dataset())
    assert (run.policy, run.seed, run.num_rounds, run.codec) == ("same-size", 5, 2, "model")
    assert list(run.to_frame()["round"]) == [0, 1]
    assert repr(run) == (
        f"Run(same-size, codec model, seed 5: rounds 2, accuracy {run.summary['test_accuracy']:.1%}, "
        f"energy {1e3 * run.energy_j[-1]:.1f} mJ)"
    )


def test_a_comparison_has_every_policy_in_every_world(compared: qccf.Runs) -> None:
    assert [(run.policy, run.seed) for run in compared] == [
        ("qccf", 0), ("same-size", 0), ("qccf", 1), ("same-size", 1),
    ]  # fmt: skip
    frame = compared.to_frame()
    assert list(frame["policy"]) == [run.policy for run in compared]
    np.testing.assert_array_equal(frame["energy_j"], [run.energy_j[-1] for run in compared])
    assert repr(compared) == "Runs(4; policies qccf, same-size; codecs model; seeds 0, 1)"
    assert [run.seed for run in compared.select(policy="qccf")] == [0, 1]
    assert repr(compared[:2]) == "Runs(2; policies qccf, same-size; codecs model; seeds 0)"
    assert repr(compared[:0]) == "Runs(0)"
    assert len(compared.select(codec="update")) == 0


def test_a_policy_that_uploads_raw_floats_is_compared_once() -> None:
    runs = qccf.plan(
        "quick", {"federation.rounds": 3}, policies=["qccf", "no-quantization"], codecs=["model", "update"], seeds=1
    )
    assert [(run.policy, run.codec) for run in runs] == [
        ("qccf", "model"), ("no-quantization", "model"), ("qccf", "update"),
    ]  # fmt: skip
    assert run_labels(runs) == ["qccf, model", "no-quantization", "qccf, update"]
    assert with_codecs(["no-quantization", "same-size"], ["a", "b"]) == [
        ("no-quantization", "a"), ("same-size", "a"), ("same-size", "b"),
    ]  # fmt: skip


@pytest.mark.parametrize("call", [qccf.simulate, qccf.compare, qccf.plan])
def test_a_setting_given_as_a_keyword_is_refused_with_its_name(call) -> None:
    with pytest.raises(ConfigError, match=r"settings are given as \{'federation.rounds': 2\}"):
        call("quick", rounds=2)


def test_a_comparison_resumes_from_its_folder(tmp_path: Path, compared: qccf.Runs) -> None:
    arguments = {"policies": "qccf", "codecs": ["model", "update"], "dataset": tiny_dataset(), "out": tmp_path}
    runs = qccf.compare(tiny_scenario(), {"federation.rounds": 3}, **arguments)
    assert [run.codec for run in runs] == ["model", "update"]
    assert runs[0].summary["energy_j"] == compared[0].summary["energy_j"]
    loaded = qccf.load_runs(tmp_path)
    assert {run.codec for run in loaded} == {"model", "update"}
    assert qccf.load_run(str(loaded[0].folder)).summary == loaded[0].summary
    trained: list[int] = []
    qccf.compare(
        tiny_scenario(),
        {"federation.rounds": 3},
        **arguments,
        callbacks=[lambda event: trained.append(len(event.ledger))],
    )
    assert trained == [], "nothing is trained again"


def test_a_plan_of_policies() -> None:
    runs = qccf.plan("quick", {"federation.rounds": 3}, policies=["qccf", "same-size"], seeds=2)
    assert [(run.policy, run.seed) for run in runs] == [
        ("qccf", 0), ("qccf", 1), ("same-size", 0), ("same-size", 1),
    ]  # fmt: skip
    assert runs.plot()._repr_png_().startswith(PNG)
    with pytest.raises(ConfigError, match="seeds = 0 is out of range: give at least 1"):
        qccf.plan("quick", seeds=0)


def test_runs_show_themselves(compared: qccf.Runs) -> None:
    table = compared._repr_html_()
    assert table.count("<tr>") == 3, "a heading and one row per policy"
    assert "<td>same-size</td><td>2</td>" in table, "means over two seeds"
    one = compared[0]._repr_html_()
    assert "<td>policy</td><td>qccf</td>" in one
    assert "<td>rounds</td><td>3</td>" in one
    assert compared.plot()._repr_png_().startswith(PNG)
    assert compared[0].plot()._repr_png_().startswith(PNG)


def test_what_a_run_says_is_escaped(compared: qccf.Runs) -> None:
    run = compared[0]
    hostile = replace(run, scenario=run.scenario.replaced(policy={"name": "<script>x</script>"}))
    for shown in (hostile._repr_html_(), qccf.Runs([hostile])._repr_html_()):
        assert "<script>" not in shown
        assert "&lt;script&gt;" in shown


def test_health_is_shown(compared: qccf.Runs) -> None:
    bad = {"kind": "empty-rounds", "message": "3 of 8 rounds had no participant: act."}
    run = replace(compared[0], summary=compared[0].summary | {"health": [bad]})
    assert qccf.Runs([run]).health == ["3 of 8 rounds had no participant: act."]
    assert "Health: 3 of 8 rounds" in qccf.Runs([run])._repr_html_()
    assert "Health: 3 of 8 rounds" in run._repr_html_()
    assert "Health" not in compared[1]._repr_html_()


def test_a_report_from_runs_or_a_folder(compared: qccf.Runs, tmp_path: Path) -> None:
    page = qccf.report(compared, tmp_path / "page" / "report.html")
    assert "same-size" in page.read_text(encoding="utf-8")
    assert list((tmp_path / "page" / "figures").glob("*.svg")), "the figures that the page offers"
    assert "qccf" in qccf.report(compared[0], tmp_path / "one.html").read_text(encoding="utf-8")
    with pytest.raises(ConfigError, match="there is no run to report"):
        qccf.report(compared[:0])
