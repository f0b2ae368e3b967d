"""Server optimizers in their published forms, two rounds of one parameter each by hand."""

import math

import numpy as np
import pytest

from qccf.core.errors import ConfigError
from qccf.learning.server.fedadam import FedAdam
from qccf.learning.server.fedavgm import FedAvgM
from qccf.learning.server.fedexp import FedExP
from qccf.learning.server.fedyogi import FedYogi
from qccf.learning.server.protocol import Aggregate
from qccf.rounds.setup import build_server_optimizer
from qccf.settings.loading import load_scenario


def rounds(optimizer, changes: list[float], start: float = 1.0, norm_sq: float = math.nan) -> list[float]:
    """The model after each round, where the clients move it by these changes."""
    model, state = np.array([start]), optimizer.init(1)
    found = []
    for change in changes:
        aggregate = Aggregate(model, model + change, lambda: norm_sq)
        model, state = optimizer.step(state, aggregate)
        found.append(float(model[0]))
    return found


def test_fedavgm_keeps_a_share_of_its_last_step() -> None:
    """v = 2, then 0.5·2 − 1 = 0, then 0.5·0 + 3 = 3; each step is 0.1·v."""
    found = rounds(FedAvgM(momentum=0.5, learning_rate=0.1), [2.0, -1.0, 3.0])
    assert found == pytest.approx([1.2, 1.2, 1.5])
    assert rounds(FedAvgM(momentum=0.0), [2.0, -1.0]) == pytest.approx([3.0, 2.0])


def test_fedadam_by_hand() -> None:
    """τ = 0.1: v starts at 0.01. m = 0.2·2 = 0.4, v = 0.75·0.01 + 0.25·4 = 1.0075; then Δ = −1."""
    optimizer = FedAdam(learning_rate=0.5, first_decay=0.8, second_decay=0.75, adaptivity=0.1)
    first = 1.0 + 0.5 * 0.4 / (math.sqrt(1.0075) + 0.1)
    mean, square = 0.8 * 0.4 - 0.2, 0.75 * 1.0075 + 0.25
    second = first + 0.5 * mean / (math.sqrt(square) + 0.1)
    assert rounds(optimizer, [2.0, -1.0]) == pytest.approx([first, second])


def test_fedyogi_by_hand() -> None:
    """v = 0.01 is below Δ² = 4 and rises by 0.25·4 to 1.01; that is above Δ² = 0.25 and falls by 0.25·0.25."""
    optimizer = FedYogi(learning_rate=0.5, first_decay=0.8, second_decay=0.75, adaptivity=0.1)
    first = 1.0 + 0.5 * 0.4 / (math.sqrt(1.01) + 0.1)
    mean, square = 0.8 * 0.4 + 0.2 * 0.5, 1.01 - 0.0625
    second = first + 0.5 * mean / (math.sqrt(square) + 0.1)
    assert rounds(optimizer, [2.0, 0.5]) == pytest.approx([first, second])


def test_fedexp_extrapolates_where_clients_differ_and_never_shortens() -> None:
    """Clients move by +3 and −1: Δ = 1, Σ w‖Δ_i‖² = 5, factor 5/(2·(1 + 0.25)) = 2. Equal clients: factor 1."""
    assert rounds(FedExP(epsilon=0.25), [1.0], norm_sq=5.0) == pytest.approx([3.0])
    assert rounds(FedExP(epsilon=0.25), [1.0], norm_sq=1.0) == pytest.approx([2.0])


def test_options_come_from_the_settings() -> None:
    settings = ["server.optimizer=fedavgm", "server.fedavgm.momentum=0.5", "server.fedavgm.learning_rate=0.7"]
    optimizer = build_server_optimizer(load_scenario("femnist", settings))
    assert isinstance(optimizer, FedAvgM)
    assert (optimizer.options.momentum, optimizer.options.learning_rate) == (0.5, 0.7)
    own = ["server.optimizer=tests.learning.test_server_optimizers:Own", "server.options.pull=0.25"]
    made = build_server_optimizer(load_scenario("femnist", own))
    assert isinstance(made, Own)
    assert made.pull == 0.25


class Own:
    def __init__(self, *, pull: float) -> None:
        self.pull = pull

    def init(self, num_parameters):
        return {}

    def step(self, state, aggregate):
        return aggregate.previous + self.pull * aggregate.change, state


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["server.optimizer=fedavg"], "server optimizer 'fedavg' is not one of average, fedavgm"),
        (["server.optimizer=fedavgm", "server.fedavgm.momentum=1.0"], "server.fedavgm.momentum = 1.0 .* less than 1"),
        (["server.fedadam.first_decay=0.5"], 'has no effect with server.optimizer = "average": set server.optimizer'),
        (["server.optimizer=fedadam", "server.fedadam.beta=1"], "server.fedadam.beta is not a setting"),
        (["server.optimizer=average", "server.options.x=1"], "and 'average' has no options: leave them out"),
    ],
)
def test_mistakes_get_a_sentence(settings: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build_server_optimizer(load_scenario("femnist", settings))
