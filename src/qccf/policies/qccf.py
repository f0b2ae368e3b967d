"""QCCF: decides bits, clients, channels and frequencies together in each round.

Paper: Section V. The default form is scale-free; the paper's own is an option.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from qccf.control.channels_genetic import GeneticSettings
from qccf.control.paper_form import PaperForm, PaperOptions
from qccf.control.scale_free_form import ScaleFreeForm
from qccf.control.solve import Inner, Solver, solve_round
from qccf.core.contracts import Constants, Decision, Observation, Outcome, PolicyState, Statistics
from qccf.core.options import option

Form = Literal["scale-free", "paper"]
Power = Literal["fixed", "adapted"]


@dataclass(frozen=True)
class QccfOptions:
    """Options of the policies qccf and same-size; docs/controller.md says what each does."""

    form: Form = option("scale-free", "form of the controller: scale-free, or as in the paper")
    slack: float = option(4.0, "error budget of a round as a multiple of the least error its links carry", gt=1, le=1e3)
    share: float = option(1.0, "participants as a share of what channels and links allow", gt=0, le=1)
    energy_weight: float = option(
        1.0, "weight of energy against accuracy; 1 is balanced, 2 tolerates twice the error", ge=0.02, le=50
    )
    power: Power = option(
        "fixed",
        "transmit power in the scale-free form: fixed, or adapted between radio.transmit_power_min_w and "
        "radio.transmit_power_w so that computing and uploading together take the least energy",
    )
    battery_weight: float = option(
        0.0,
        "how much more the energy of a client counts in the scale-free form as its battery empties, where not all "
        "clients take part: the share that is left to the power of minus this",
        ge=0,
        le=10,
    )
    solver: Solver = option("assignment", "solver for clients and channels in the paper's form")
    inner: Inner = option("exact", "solver for bits and frequency of one client on one channel in the paper's form")
    genetic: GeneticSettings = option(GeneticSettings(), "options of the genetic solver in the paper's form")
    paper: PaperOptions = option(PaperOptions(), "options of the paper's form")

    def __post_init__(self) -> None:
        if self.form == "paper" and self.power != "fixed":
            raise ValueError(
                f'power = "{self.power}" has no effect in form = "paper", which has one power for all: set form = '
                '"scale-free", or leave it out'
            )
        if self.form == "paper" and self.battery_weight:
            raise ValueError(
                f'battery_weight = {self.battery_weight:g} has no effect in form = "paper": set form = "scale-free", '
                "or leave it out"
            )
        for name, usual in (("solver", "assignment"), ("inner", "exact")):
            value = getattr(self, name)
            if self.form != "paper" and value != usual:
                raise ValueError(
                    f'{name} = "{value}" has no effect in form = "{self.form}", which serves given clients by one '
                    'exact assignment: set form = "paper", or leave it out'
                )


class Qccf:
    """The policy. State: that of its form, and each client's last bits."""

    Options = QccfOptions
    section = "control"
    colour, marker = "#0072B2", "o"

    def __init__(self, constants: Constants, *, rounds: int, **options: Any) -> None:
        self.options = QccfOptions(**options)
        self.constants = replace(constants, adapt_power=True) if self.options.power == "adapted" else constants
        constants = self.constants
        self.form: PaperForm | ScaleFreeForm = (
            PaperForm(constants, self.options.paper)
            if self.options.form == "paper"
            else ScaleFreeForm(
                constants,
                slack=self.options.slack,
                share=self.options.share,
                energy_weight=self.options.energy_weight,
                battery_weight=self.options.battery_weight,
            )
        )

    def init(self, statistics: Statistics) -> PolicyState:
        return {**self.form.init(self.assumed(statistics)), "last_num_bits": [0] * statistics.num_clients}

    def decide(self, state: PolicyState, observation: Observation, rng: np.random.Generator) -> Decision:
        known = replace(observation, statistics=self.assumed(observation.statistics))
        if isinstance(self.form, ScaleFreeForm):
            return self.form.decide(state, known)
        return solve_round(
            self.form.problem(state, known),
            solver=self.options.solver,
            inner=self.options.inner,
            rng=rng,
            genetic=self.options.genetic,
            last_bits=np.array(state["last_num_bits"]),
        )

    def update(self, state: PolicyState, decision: Decision, outcome: Outcome) -> PolicyState:
        known = replace(outcome, statistics=self.assumed(outcome.statistics))
        last = np.where(decision.participates, decision.num_bits, state["last_num_bits"])
        return {**self.form.update(state, decision, known), "last_num_bits": last.tolist()}

    def assumed(self, statistics: Statistics) -> Statistics:
        """The statistics that the decision uses; a variant may replace them by assumptions."""
        return statistics
