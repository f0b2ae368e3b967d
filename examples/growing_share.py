"""QCCF with a share of clients that follows what it measures: one client per round at first, and twice as many whenever
it is no longer certain that the loss falls. docs/lean.md says why this is not the preset.
Its options are those of `Qccf`, in `policy.options`; settings of `control` have no effect on it.
Try it: qccf compare quick --policy qccf,examples.growing_share:GrowingShare --set "policy.options={power = 'adapted'}"
Then only the growing share adapts powers; with --set control.power=adapted as well, both do.
"""

from functools import partial

import numpy as np

from qccf import Constants, Decision, Observation, Outcome, Statistics
from qccf.policies.qccf import Qccf


class GrowingShare:
    """Losses of different clients say more about their data than about progress, so each loss is compared with the last
    one of the same client. As many of these differences as there are clients are judged together: they cost the same
    energy however many clients take part in a round. If their mean does not exceed its standard error, the noise of few
    clients hides the progress, and the participants are doubled.
    """

    def __init__(self, constants: Constants, *, rounds: int, **options: object) -> None:
        if options.get("form") == "paper" or "share" in options:
            raise ValueError("form = 'paper' and share contradict a share that grows: leave them out")
        self.qccf = partial(Qccf, constants, rounds=rounds, **options)
        self.qccf()  # so that an unknown option is refused here

    def init(self, statistics: Statistics) -> dict:
        count = statistics.num_clients
        return {**self.qccf().init(statistics), "participants": 1, "losses": [None] * count, "progress": []}

    def decide(self, state: dict, observation: Observation, rng: np.random.Generator) -> Decision:
        most = min(observation.num_clients, observation.num_channels)
        return self.qccf(share=min(state["participants"] / most, 1.0)).decide(state, observation, rng)

    def update(self, state: dict, decision: Decision, outcome: Outcome) -> dict:
        losses, progress, participants = list(state["losses"]), list(state["progress"]), state["participants"]
        for client in np.flatnonzero(np.isfinite(outcome.losses)):
            loss = float(outcome.losses[client])
            if losses[client] is not None:
                progress.append(losses[client] - loss)
            losses[client] = loss
        judged = max(len(losses), 4)
        progress = progress[-judged:]
        enough = len(progress) == judged and participants < len(losses)
        if enough and np.mean(progress) <= np.std(progress, ddof=1) / judged**0.5:
            participants, progress = min(2 * participants, len(losses)), []
        after = self.qccf().update(state, decision, outcome)
        return {**after, "participants": participants, "losses": losses, "progress": progress}
