"""The study of accuracy: its runs, their order, and its table."""

from pathlib import Path

import pytest

from benchmarks.accuracy import STUDIES, collect, record_name, study_jobs, table
from qccf.devices.cost import training_cycles
from qccf.policies.registry import PAPERS_POLICIES
from qccf.rounds.run_record import RunRecords
from qccf.settings.loading import load_scenario
from tests.helpers.made_runs import made_record


@pytest.fixture(scope="module")
def jobs() -> dict:
    return study_jobs(list(STUDIES), Path("runs"), Path("data"))


def test_every_study_has_whole_seeds_in_order(jobs) -> None:
    assert len(jobs) == sum(study.seeds * len(study.kinds) for study in STUDIES.values())
    assert all(tuple(study.kinds) == PAPERS_POLICIES for study in STUDIES.values() if study.needed_accuracy is not None)
    seeds = [job.scenario.federation.seed for job in jobs.values()]
    assert seeds == sorted(seeds), "a stopped study has whole seeds"
    assert len({job.folder for job in jobs.values()}) == len(jobs)


def test_the_runs_are_the_papers(jobs) -> None:
    preset = load_scenario("femnist")
    for name, job in jobs.items():
        one = job.scenario
        weight = float(name.partition("V = ")[2].partition(",")[0] or 100.0)
        assert (one.control.form, one.codec.name, one.control.paper.energy_weight) == ("paper", "model", weight)
        assert one.data.dataset_size_std / one.data.dataset_size_mean == pytest.approx(300 / 1200)
        cycles = [training_cycles(s.data.dataset_size_mean, s.constants()) for s in (one, preset)]
        assert cycles[0] == pytest.approx(cycles[1])
        assert one.data.partition == ("writer" if "writers" in name else "dirichlet")
    policies = {job.scenario.policy.name for name, job in jobs.items() if " bits" in name}
    assert policies == {"fixed-bits"}
    emnist = STUDIES["emnist"]
    assert emnist.seeds >= 8
    assert emnist.rounds >= 150


def test_recorded_runs_are_not_repeated_and_a_new_size_is_a_new_name(jobs, tmp_path: Path) -> None:
    name = record_name("emnist", "qccf", 0)
    assert name == "emnist, 150 rounds, 480 samples, qccf, seed 0"
    assert name in jobs
    assert len(collect(jobs, tmp_path / "records.json")) == 0, "no run is finished"
    assert not (tmp_path / "records.json").exists()


@pytest.mark.parametrize(("ceiling", "judged"), [(0.9, "judged"), (0.6, "not measurable")])
def test_the_table_says_whether_accuracy_can_be_judged(ceiling: float, judged: str) -> None:
    runs = [made_record("no-quantization", seed, ceiling=ceiling, speed=1.0, first=32, rise=0.0) for seed in range(3)]
    for run in runs:
        run.round_columns["latency_s"] = run.energy_j * 0.0 + 0.1
    lines = table("emnist", {"no-quantization": runs})
    assert lines[-1].endswith(f"claims about accuracy are {judged}.")
    assert lines[3].startswith(f"| no-quantization | 3 | {100 * ceiling:.0f}.")
    assert "| 4 ± 0 |" in lines[3], "40 rounds of 0.1 s"


def test_the_committed_record_is_readable_and_small() -> None:
    file = Path("docs/results/accuracy.json")
    assert not file.exists() or file.stat().st_size / max(1, len(RunRecords(file))) < 16_000
