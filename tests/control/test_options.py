"""The options of the paper's form and of its genetic solver: defaults and limits."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qccf.control.bits_exact import ExactPairs
from qccf.control.channels_genetic import GeneticSettings, solve_genetic
from qccf.control.paper_form import PaperForm, PaperOptions
from qccf.core.errors import ConfigError
from qccf.settings.loading import scenario_from_dict
from support.problems import CONSTANTS, equal_statistics, random_problem

SECTIONS = {"genetic": GeneticSettings(), "paper": PaperOptions()}


def read_option(section: str, name: str, value: Any) -> Any:
    """The option as a scenario with this value has it."""
    own = {name: value} | ({"population": 100_000} if name == "elitism" else {})
    scenario = scenario_from_dict({"control": {"form": "paper", section: own}})
    return getattr(getattr(scenario.control, section), name)


def use_option(section: str, name: str, value: Any) -> None:
    """The least value that is accepted works."""
    if section == "paper":
        state = PaperForm(CONSTANTS, replace(PaperOptions(), **{name: value})).init(equal_statistics(100.0, 300.0))
        assert np.isfinite(list(state.values())).all()
    else:
        settings = replace(GeneticSettings(population=4, generations=2), **{name: value})
        problem = random_problem(np.random.default_rng(0), num_clients=3, num_channels=2)
        found = solve_genetic(problem, ExactPairs(problem), np.random.default_rng(0), settings)
        assert len(found.channels) == 3


@pytest.mark.parametrize(
    ("section", "name", "default", "accepted", "refused"),
    [
        ("genetic", "population", 50, (2, 100_000), (1, 100_001)),
        ("genetic", "generations", 50, (1, 100_000), (0, 100_001)),
        ("genetic", "crossover_probability", 0.9, (0.0, 1.0), (-1e-9, 1.001)),
        ("genetic", "mutation_probability", 0.05, (0.0, 1.0), (-1e-9, 1.001)),
        ("genetic", "fitness_exponent", 1.0, (1e-9, 100.0), (0.0, 100.1)),
        ("genetic", "elitism", 0, (0, 99_999), (-1, 100_000, 100_001)),
        ("paper", "energy_weight", 100.0, (1e-9, 1e12), (0.9e-9, 1.1e12)),
        ("paper", "quantization_budget", 0.03, (0.0, 1e9), (-1e-9, 1.1e9)),
        ("paper", "data_budget", "auto", (0.0, 1e15, "auto"), (-1e-9, 1.1e15, "none")),
        ("paper", "participation_margin", 0.01, (1e-9, 1e3), (0.0, 1.1e3)),
        ("paper", "quantization_margin", 0.5, (1e-9, 1e6), (0.0, 1.1e6)),
    ],
)
def test_options_have_these_defaults_and_limits(
    section: str, name: str, default: Any, accepted: tuple[Any, ...], refused: tuple[Any, ...]
) -> None:
    assert getattr(SECTIONS[section], name) == default
    for value in accepted:
        assert read_option(section, name, value) == value
    for value in refused:
        with pytest.raises(ConfigError, match=name):
            read_option(section, name, value)
    use_option(section, name, accepted[0])


def test_the_best_chromosomes_leave_room_for_children() -> None:
    assert GeneticSettings(population=5, elitism=4).elitism == 4
    for kept in (5, 6):
        with pytest.raises(ValueError, match=f"elitism = {kept} leaves no room for children in population = 5"):
            GeneticSettings(population=5, elitism=kept)
