"""When an accuracy counts as reached, and what it took: by hand."""

from dataclasses import replace

import numpy as np

from qccf.rounds.run import Run
from qccf.rounds.targets import (
    Reached,
    cost_to,
    default_targets,
    least_energy_sentence,
    may_stop,
    reached_round,
    smoothed,
    target_cells,
    targets_json,
    until_sentence,
)
from qccf.settings.loading import load_scenario

NAN = np.nan


def made_run(accuracies: list[float], energy_j: float = 2.0, averaged: int = 2, label: str = "") -> Run:
    """Each round takes half a second and the same energy."""
    count = len(accuracies)
    rounds = {
        "round": np.arange(count),
        "test_accuracy": np.array(accuracies),
        "cumulative_energy_j": energy_j * np.arange(1.0, count + 1.0),
        "latency_s": np.full(count, 0.5),
    }
    scenario = load_scenario("femnist", {"evaluation.averaged": averaged, "policy.label": label})
    return Run(scenario, {}, rounds, {})


def test_the_mean_of_the_last_evaluations_counts_and_rounds_without_one_do_not() -> None:
    found = smoothed([0.1, NAN, 0.5, 0.3, NAN, 0.7], 2)
    np.testing.assert_allclose(found, [NAN, NAN, 0.3, 0.4, NAN, 0.5])
    np.testing.assert_allclose(smoothed([0.1, 0.5], 1), [0.1, 0.5])
    assert np.isnan(smoothed([0.9, NAN], 2)).all()
    assert smoothed([], 3).tolist() == []


def test_one_lucky_round_does_not_count() -> None:
    accuracies = [0.5, 0.8, 0.5, 0.7, 0.7]
    assert reached_round(accuracies, 0.7, 1) == 2
    assert reached_round(accuracies, 0.7, 2) == 5
    assert reached_round(accuracies, 0.7, 3) is None


def test_a_run_stops_only_if_it_is_asked_to() -> None:
    evaluation = load_scenario("femnist", ["evaluation.averaged=2"]).evaluation
    assert not may_stop([0.9, 0.9], evaluation)
    wanted = evaluation.model_copy(update={"until_accuracy": 0.7})
    assert not may_stop([0.9], wanted)
    assert not may_stop([0.9, 0.4], wanted)
    assert may_stop([0.9, 0.4, 1.0], wanted)


def test_a_run_that_stops_at_an_accuracy_says_whether_it_was_reached() -> None:
    run = made_run([0.2, 0.4, 0.6, 0.8])
    assert until_sentence(run) == ""
    mean = "mean of 2 evaluations on 1,000 test samples"
    half, most = (replace(run, scenario=run.scenario.replaced(evaluation={"until_accuracy": a})) for a in (0.5, 0.75))
    assert until_sentence(half) == f"50 % was reached after 3 rounds, 1.50 s simulated and 6.00 J ({mean})."
    assert until_sentence(most) == f"75 % was not reached in 4 rounds: the best {mean} was 70.0%."
    short = made_run([0.9])
    short = replace(short, scenario=short.scenario.replaced(evaluation={"until_accuracy": 0.5}))
    assert until_sentence(short) == f"50 % was not reached in 1 round: there was no {mean}."


def test_what_a_target_took() -> None:
    run = made_run([0.2, 0.4, 0.6, 0.8])
    assert cost_to(run, 0.5) == Reached(3, 1.5, 6.0)
    assert cost_to(run, 0.75) is None
    assert targets_json(run, [0.5, 0.75]) == {"0.5": {"rounds": 3, "seconds": 1.5, "energy_j": 6.0}, "0.75": None}


def test_default_targets_are_the_highest_that_a_run_reached() -> None:
    assert default_targets([made_run([0.2, 0.4, 0.6, 0.8])]) == [0.6, 0.65, 0.7]
    assert default_targets([made_run([0.06, 0.06]), made_run([0.01, 0.01])]) == [0.05]
    assert default_targets([made_run([0.01, 0.02])]) == []
    assert default_targets([made_run([NAN, NAN])]) == []
    assert default_targets([]) == []
    assert default_targets([made_run([0.15, 0.15])]) == [0.05, 0.1, 0.15], "although 0.15 / 0.05 is below 3"
    assert default_targets([made_run([0.04996, 0.04996])]) == [], "almost is not enough"


def test_cells_have_intervals_over_seeds_and_say_what_was_not_reached() -> None:
    """3 and 4 rounds: mean 3.5, standard error 0.5, t = 12.706."""
    quick, slow = made_run([0.2, 0.4, 0.6, 0.8]), made_run([0.1, 0.3, 0.4, 0.6, 0.6], energy_j=2.0)
    assert target_cells([quick], 0.5) == ["3", "1.50 s", "6.00 J"]
    assert target_cells([quick, slow], 0.5) == ["3.5±6.4", "1.8±3.2 s", "7±13 J"]
    assert target_cells([quick, slow], 0.7) == ["reached by 1 of 2 seeds", "–", "–"]
    assert target_cells([slow], 0.9) == ["not reached", "–", "–"]


def test_the_sentence_names_the_least_energy_to_the_highest_common_target() -> None:
    first, second = made_run([0.2, 0.4, 0.6, 0.8]), made_run([0.6, 0.6], energy_j=0.1, label="lean")
    assert least_energy_sentence([first, second], [0.4, 0.5, 0.7]) == (
        "Remember: to 50 % accuracy, lean qccf took 200 mJ, 3.3 % of the 6.00 J that qccf took."
    )
    assert least_energy_sentence([second, first], [0.4, 0.5, 0.7]).startswith("Remember: to 50 % accuracy, lean qccf")
    assert least_energy_sentence([first, second], [0.7]) == ""
    assert least_energy_sentence([first], [0.5]) == ""
    nearly = made_run([0.6, 0.6], energy_j=0.0997, label="nearly")
    assert least_energy_sentence([made_run([0.6, 0.6], energy_j=0.1), nearly], [0.5]) == "", "the same within 5 %"


def test_the_sentence_is_about_a_target_that_most_have_reached() -> None:
    """Not about the highest, which the cheapest may be too slow to reach."""
    first, cheap = made_run([0.5, 0.5, 0.9, 0.9]), made_run([0.5, 0.5], energy_j=0.1, label="cheap")
    dear = made_run([0.5, 0.5, 0.9, 0.9], energy_j=9.0, label="dear")
    assert least_energy_sentence([first, cheap, dear], [0.4, 0.5, 0.8]) == (
        "Remember: to 50 % accuracy, cheap qccf took 200 mJ, 5 % of the 4.00 J that qccf took."
    )


def test_the_sentence_counts_what_all_seeds_reached_and_compares_with_the_dearest() -> None:
    first = made_run([0.6, 0.6], energy_j=0.1)
    dear, dearer = (made_run([0.6, 0.6], energy_j=joules, label=f"{joules:g} J") for joules in (1.0, 2.0))
    assert least_energy_sentence([first, dear, dearer], [0.5]) == (
        "Remember: to 50 % accuracy, qccf took 200 mJ, 5 % of the 4.00 J that 2 J qccf took."
    )
    unlucky = made_run([0.1, 0.1], label="1 J")
    assert least_energy_sentence([first, dear, unlucky], [0.5]) == ""
