"""What may change when a run gets more rounds, without running any."""

import numpy as np
import pytest

from qccf.core.errors import RunFolderError
from qccf.policies.qccf import Qccf
from qccf.rounds.extension import require_extensible
from qccf.settings.loading import Scenario
from tests.helpers.tiny import tiny_scenario


def until(accuracy: float, rounds: int = 8, *more: str) -> Scenario:
    return tiny_scenario(f"evaluation.until_accuracy={accuracy}", f"federation.rounds={rounds}", *more)


@pytest.mark.parametrize(
    ("held", "wanted"),
    [(0.0, 0.0), (0.4, 0.4), (0.4, 0.5), (0.4, 0.0)],
)
def test_a_run_may_stop_later(held: float, wanted: float) -> None:
    require_extensible(until(held), until(wanted))
    require_extensible(until(held), until(wanted, 9))


@pytest.mark.parametrize(("held", "wanted"), [(0.0, 0.4), (0.4, 0.3)])
def test_a_run_may_not_stop_earlier(held: float, wanted: float) -> None:
    with pytest.raises(RunFolderError, match=f"--until-accuracy {wanted:g} would make this run shorter"):
        require_extensible(until(held), until(wanted))
    with pytest.raises(RunFolderError, match="--rounds 7 is less than the 8 rounds"):
        require_extensible(until(held), until(held, 7))


class Weighted(Qccf):
    """A policy with an attribute that cannot be compared."""

    def __init__(self, constants, *, rounds):
        super().__init__(constants, rounds=rounds)
        self.weights = np.ones(3)


def test_a_policy_that_cannot_be_compared_may_depend_on_the_rounds() -> None:
    own = f"policy.name={__name__}:Weighted"
    with pytest.raises(RunFolderError, match="Weighted' is built from the number of rounds"):
        require_extensible(until(0.0, 8, own), until(0.0, 9, own))
    require_extensible(until(0.4, 8, own), until(0.5, 8, own))
