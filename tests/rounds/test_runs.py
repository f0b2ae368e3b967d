"""Several runs together: which ones are selected, and the numbers of their table."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from qccf.rounds.run import Run
from qccf.rounds.runs import Runs
from tests.helpers.made_tables import made_scenario


def made(policy: str, seed: int, accuracy: float) -> Run:
    scenario = made_scenario(f"policy.name={policy}", f"federation.seed={seed}", "codec.name=update")
    shares = {"participation": 0.4, "missed": 0.1}
    return Run(scenario, {"test_accuracy": accuracy, "energy_j": 2.0, "mean_bits": 3.0, **shares}, {}, {})


RUNS = Runs([made(policy, seed, 0.50 + 0.01 * seed) for policy in ("qccf", "principle") for seed in (0, 1)])


def test_what_is_selected_has_all_that_is_asked_for() -> None:
    assert list(RUNS.select()) == list(RUNS)
    assert list(RUNS.select(policy="principle")) == [RUNS[2], RUNS[3]]
    assert list(RUNS.select(seed=0)) == [RUNS[0], RUNS[2]], "0 is a seed like any other"
    assert list(RUNS.select(policy="principle", codec="update", seed=1)) == [RUNS[3]]
    assert list(RUNS.select(policy="principle", codec="model")) == []


def test_the_table_of_a_notebook_has_means_and_intervals_over_seeds() -> None:
    """50 % and 51 %: the mean is 50.5 %, its standard error 0.5 %, and Student's t with one degree of freedom 12.7."""
    shown = RUNS._repr_html_()
    assert "<td>qccf</td><td>2</td><td>50.5±6.4</td><td>2.00 J</td><td>3.00</td><td>40</td><td>10</td>" in shown
    assert "<td>qccf</td><td>1</td><td>50.0</td><td>2.00 J</td>" in Runs([RUNS[0], RUNS[2]])._repr_html_()


def test_one_run_shows_its_numbers_its_folder_and_what_is_wrong_with_it() -> None:
    sick = {"health": [{"kind": "empty-rounds", "message": "3 < 4 rounds: act."}], "test_accuracy": None}
    run = replace(RUNS[0], round_columns={"round": np.arange(7)}, folder=Path("here"))
    shown = replace(run, summary=run.summary | sick)._repr_html_()
    assert shown.startswith("<table><tbody><tr><td>policy</td><td>qccf</td></tr>")
    for cells in (("rounds", "7"), ("energy", "2.00 J"), ("participation (%)", "40"), ("folder", "here")):
        assert "<tr>{}</tr>".format("".join(f"<td>{cell}</td>" for cell in cells)) in shown
    assert shown.endswith("<p>Health: 3 &lt; 4 rounds: act.</p>")
    assert "<tr><td>accuracy (%)</td><td>50.0</td></tr>" in run._repr_html_()
