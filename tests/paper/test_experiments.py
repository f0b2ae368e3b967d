"""The plan of the paper's experiments."""

from pathlib import Path

import pytest

from qccf.core.errors import ConfigError
from qccf.learning.datasets import DATASETS
from qccf.paper.experiments import (
    FIGURES,
    SCALES,
    TASKS,
    ChosenTask,
    choose_data,
    figure_tasks,
    reproduction_jobs,
    task_scenario,
    varied_jobs,
)
from qccf.paper.families import dotted
from qccf.paper.studies import FACTORS
from qccf.policies.registry import PAPERS_POLICIES
from qccf.settings.loading import load_scenario

FEMNIST = ChosenTask(TASKS["femnist"], "handwriting")
CIFAR = ChosenTask(TASKS["cifar10"], "cifar10")


def plan(figures, scale="small", chosen=(FEMNIST, CIFAR), overrides=()):
    return reproduction_jobs(figures, SCALES[scale], chosen, overrides, runs=Path("runs"), data_dir=Path("data"))


def cases(jobs) -> set[tuple]:
    return {
        (
            j.scenario.data.dataset,
            j.scenario.data.dataset_size_std / j.scenario.data.dataset_size_mean * 1200,
            j.scenario.control.paper.energy_weight,
            j.scenario.policy.name,
            j.scenario.federation.seed,
        )
        for j in jobs
    }


def test_figures_need_the_papers_runs_and_share_them() -> None:
    third = plan(["fig3"])
    assert cases(third) == {
        ("handwriting", beta, 100.0, policy, seed)
        for beta in (150, 300)
        for policy in PAPERS_POLICIES
        for seed in range(3)
    }
    assert cases(plan(["fig5"])) == cases(third)
    assert len(plan(["fig3", "fig5"])) == len(third) == 30
    second = plan(["fig2"])
    weights = {(d, v) for d, _, v, _, _ in cases(second)}
    assert {v for d, v in weights if d == "handwriting"} == {1, 10, 100, 1000, 10000}
    assert {v for d, v in weights if d == "cifar10"} == {0.1, 1, 10, 100, 1000}
    assert {policy for _, _, _, policy, _ in cases(second)} == {"qccf"}
    assert {d for d, *_ in cases(plan(["fig4"]))} == {"cifar10"}
    everything = plan(list(FIGURES))
    assert len({job.folder for job in everything}) == len(everything) == 2 * (30 + 12)
    assert {job.scenario.federation.seed for job in everything[:28]} == {0}, (
        "seed by seed, so that a part is a comparison"
    )


def test_varied_runs_change_one_setting_of_the_first_task() -> None:
    """Each changes a value that the savings study tries as well, so that it has a place in that figure."""
    jobs = varied_jobs(SCALES["small"], [CIFAR, FEMNIST], ["federation.seed=7"], runs=Path("v"), data_dir=Path("d"))
    assert len({job.folder for job in jobs}) == len(jobs) == 4 * 3
    assert {job.scenario.policy.name for job in jobs} == {"qccf", "principle", "same-size"}
    assert {job.scenario.federation.seed for job in jobs} == {7}
    usual = task_scenario(FEMNIST, SCALES["small"], ["federation.seed=7"], beta=300, weight=100.0).model_dump()
    factors = {factor.key: factor.values for factor in FACTORS}
    for job in jobs:
        assert job.scenario.learning.model == "femnist-cnn"
        own = job.scenario.replaced(policy={"name": "qccf"}).model_dump()
        own, base = dict(dotted(own)), dict(dotted(usual))
        changed = {key: value for key, value in own.items() if base[key] != value}
        assert len(changed) == 1
        ((key, value),) = changed.items()
        assert value in factors[key]
        assert key in job.label
    assert len(varied_jobs(SCALES["smoke"], [FEMNIST], [], runs=Path("v"), data_dir=Path("d"))) == 3
    again = varied_jobs(
        SCALES["small"], [FEMNIST], ["control.paper.quantization_margin=1.0"], runs=Path("v"), data_dir=Path("d")
    )
    assert again == [], "two settings would be changed"
    assert len(varied_jobs(SCALES["full"], [FEMNIST], [], runs=Path("v"), data_dir=Path("d"))) == 36


def test_every_run_is_of_the_papers_codec_and_exactly_solved() -> None:
    for job in plan(list(FIGURES), "full"):
        assert job.scenario.codec.name == "model"
        assert (job.scenario.control.solver, job.scenario.control.inner) == ("assignment", "exact")
        assert job.scenario.data.dataset_size_mean == 1200
    cifar = plan(["fig4"], "full")[0].scenario
    assert (cifar.learning.model, cifar.learning.num_parameters, cifar.device.deadline_s) == (
        "cifar10-cnn",
        576778,
        0.05,
    )


def test_a_smaller_scale_keeps_the_work_of_a_round() -> None:
    """Cycles of a mean client, which computing energy and time hang on, are the same at every scale."""
    for task in (FEMNIST, CIFAR):
        work = set()
        for scale in SCALES.values():
            s = task_scenario(task, scale, [], beta=300, weight=10.0)
            work.add(round(s.data.dataset_size_mean * s.device.cycles_per_sample))
            assert s.data.dataset_size_std / s.data.dataset_size_mean == pytest.approx(0.25)
        assert len(work) == 1
    small = [task_scenario(task, SCALES["small"], [], beta=150, weight=1.0) for task in (FEMNIST, CIFAR)]
    assert [s.data.dataset_size_mean for s in small] == [480.0, 240.0]


def test_a_scale_changes_how_much_is_run_and_nothing_else() -> None:
    """What is learnt from, for how long and how often it is looked at; never how."""
    allowed = {
        "data.dataset", "data.fallbacks", "data.dataset_size_mean", "data.dataset_size_std", "data.dataset_size_min",
        "device.cycles_per_sample", "federation.rounds", "evaluation.samples", "codec.name", "control.form",
        "statistics.model",
    }  # fmt: skip
    for task in (FEMNIST, CIFAR):
        preset = load_scenario(task.task.name).model_dump()
        for scale in SCALES.values():
            ours = task_scenario(task, scale, [], beta=150, weight=task.task.energy_weight).model_dump()
            changed = {f"{a}.{b}" for a, part in ours.items() for b, value in part.items() if preset[a][b] != value}
            assert changed <= allowed, scale.name


def test_small_takes_about_two_hours_a_task() -> None:
    """Arithmetic of `Scale`: seconds of a round with all the data on two cores, by the network's cost of a sample."""
    round_s = {"femnist": 6.3, "cifar10": 2.1 * 6.3}
    for task, figures in ((FEMNIST, ["fig2", "fig3", "fig5"]), (CIFAR, ["fig2", "fig4"])):
        jobs = plan(figures, chosen=[task])
        share = jobs[0].scenario.data.dataset_size_mean / 1200
        hours = sum(job.steps for job in jobs) * share * round_s[task.task.name] / 3600
        assert len(jobs) == 42
        assert 1.5 <= hours <= 2.0, task.task.name


def test_overrides_come_last_and_change_the_folder() -> None:
    changed = plan(["fig3"], overrides=["radio.gain_db=10.0"])
    assert {job.scenario.radio.gain_db for job in changed} == {10.0}
    assert not {job.folder for job in changed} & {job.folder for job in plan(["fig3"])}
    workers = plan(["fig3"], overrides=["execution.workers=1"])
    assert {job.folder for job in workers} == {job.folder for job in plan(["fig3"])}, "how it is run is no setting"


def test_unknown_figures_and_tasks_without_data() -> None:
    with pytest.raises(ConfigError, match="fig9"):
        plan(["fig9"])
    absent = ChosenTask(TASKS["cifar10"], "", "not here")
    assert plan(["fig4"], chosen=[FEMNIST, absent]) == []
    assert figure_tasks("fig2", ["cifar10", "femnist"]) == ["cifar10", "femnist"]


def test_data_is_real_where_it_is_here(tmp_path: Path, monkeypatch) -> None:
    assert choose_data(TASKS["femnist"], tmp_path).dataset == "handwriting"
    absent = choose_data(TASKS["cifar10"], tmp_path)
    assert absent.dataset == ""
    assert "qccf data fetch cifar10" in absent.reason
    assert str(tmp_path) not in absent.reason, "a report must not name a machine's folders"

    class Here:
        def check(self, folder):
            return ["whole"]

        load = fetch = check

    monkeypatch.setitem(DATASETS, "emnist", Here)
    assert choose_data(TASKS["femnist"], tmp_path).dataset == "emnist"
    monkeypatch.setitem(DATASETS, "femnist", Here)
    assert choose_data(TASKS["femnist"], tmp_path).dataset == "femnist"
