"""The example of a policy whose share of clients follows the loss."""

from dataclasses import replace

import numpy as np
import pytest

from examples.growing_share import GrowingShare
from qccf.core.streams import stream
from qccf.devices.cost import settle
from qccf.rounds.sources import StatisticsModel
from qccf.rounds.world import build_world
from qccf.settings.loading import load_scenario

SCENARIO = load_scenario("femnist", ["federation.rounds=40"])
WORLD = build_world(SCENARIO, 0)
STATISTICS = StatisticsModel(SCENARIO, WORLD.dataset_sizes)


def participants_after(reports: list[float]) -> list[int]:
    """The participants of each round and of the next one, where all clients of a round report the same loss, plus what
    tells them apart."""
    policy = GrowingShare(SCENARIO.constants(), rounds=40)
    state, found = policy.init(STATISTICS.known(0)), []
    apart = 3.0 * np.arange(len(WORLD.dataset_sizes))
    for index, loss in enumerate(reports):
        known = STATISTICS.known(0)
        decision = policy.decide(state, WORLD.observe(index, known), stream(0, "policy", index))
        found.append(int(decision.participates.sum()))
        outcome = settle(decision, WORLD.observe(index, known), SCENARIO.constants())
        losses = np.where(decision.participates, loss + apart, np.nan)
        state = policy.update(state, decision, replace(outcome, losses=losses))
    return [*found, state["participants"]]


def test_one_client_is_enough_while_the_loss_falls() -> None:
    """Clients differ far more than the loss falls, which does not matter: each is compared with itself."""
    assert participants_after([4.0 - 0.1 * n for n in range(35)]) == [1] * 36


def test_participants_double_once_each_client_on_average_has_reported_twice() -> None:
    """Ten clients have turns one after another, so ten differences are known after about twenty rounds."""
    found = participants_after([2.0 + 0.5 * (-1) ** (n // 10) for n in range(60)])
    assert found[:18] == [1] * 18
    assert sorted(set(found)) == [1, 2, 4, 8, 10]
    assert found == sorted(found)


def test_a_loss_that_stands_still_asks_for_more_clients() -> None:
    assert participants_after([2.0] * 30)[-1] > 1


@pytest.mark.parametrize("options", [{"form": "paper"}, {"share": 0.5}])
def test_what_contradicts_a_growing_share_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="leave them out"):
        GrowingShare(SCENARIO.constants(), rounds=40, **options)


def test_an_unknown_option_is_refused_before_the_first_round() -> None:
    with pytest.raises(TypeError, match="colour"):
        GrowingShare(SCENARIO.constants(), rounds=40, colour=1)
