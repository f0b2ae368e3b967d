"""Whether a run can get more rounds and be the same, bit for bit, as one that had them from the start.

The settings must be the same apart from `federation.rounds` and `evaluation.until_accuracy`, and nothing in a round may
depend on them. Only a policy can: it is built with `rounds`.
"""

from qccf.core.errors import RunFolderError
from qccf.rounds.run_folder import settings_difference
from qccf.rounds.setup import build_policy
from qccf.settings.loading import Scenario, run_digest


def require_extensible(held: Scenario, wanted: Scenario) -> None:
    """Refuse to continue the run `held` as the run `wanted`, with the setting that forbids it."""
    before, after = held.federation.rounds, wanted.federation.rounds
    if after < before:
        raise RunFolderError(
            f"--rounds {after} is less than the {before} rounds of this run, and a run cannot be shortened: start "
            "another one."
        )
    target, stop = held.evaluation.until_accuracy, wanted.evaluation.until_accuracy
    if stop != target and not (target and (stop == 0.0 or stop > target)):
        where = f"it stops at {target:g}" if target else "it runs all its rounds"
        raise RunFolderError(
            f"--until-accuracy {stop:g} would make this run shorter ({where}), and a run cannot be shortened: start "
            "another one."
        )
    longer = held.replaced(federation={"rounds": after}, evaluation={"until_accuracy": stop})
    if run_digest(longer) != run_digest(wanted):
        raise RunFolderError(
            f"the run to extend differs in more than its length ({settings_difference(longer, wanted)})."
        )
    if after > before and not _same_rule(held, wanted):
        name = wanted.policy.name
        remedy = "it was started with principle.patience = 0, a tenth of the rounds" if name == "principle" else (
            f"policy {name!r} is built from the number of rounds"
        )  # fmt: skip
        raise RunFolderError(
            f"this run cannot be extended from {before} to {after} rounds, because its rule depends on their number "
            f"({remedy}): start a new run."
        )


def _same_rule(held: Scenario, wanted: Scenario) -> bool:
    """Whether the policy is the same for both numbers of rounds.

    Policies keep no hidden state, so two whose attributes are equal decide alike. Attributes that cannot be compared
    count as different.
    """
    first, second = (build_policy(one.policy.name, one) for one in (held, wanted))
    try:
        return bool(vars(first) == vars(second))
    except (TypeError, ValueError):
        return False
