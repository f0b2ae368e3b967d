"""The claims of the paper as data, and their verdicts.

Each claim has a function that returns one finding per part of the claim (`qccf.paper.findings`).

Paper: Section VI and the contributions in Section I.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from qccf.paper import findings as measured
from qccf.paper.families import Family
from qccf.paper.findings import MISSING, TARGET, Finding
from qccf.paper.verdicts import ENERGY, ROUNDS, Verdict, combined
from qccf.policies.registry import codes
from qccf.settings.schema import PAPERS_CODEC


@dataclass(frozen=True)
class Claim:
    """`measure` gets the runs of one task; `paper` is the paper's number in words, empty if it gives none.

    `papers_value` is that number where it can stand beside ours, in the unit of the estimates.
    """

    key: str
    words: str
    figure: str
    paper: str
    chart: str
    measure: Callable[[Family], list[Finding]]
    rule: str
    papers_value: float | None = None


@dataclass(frozen=True)
class Judged:
    """A claim with its findings; `family` are the runs that judge it."""

    claim: Claim
    family: Family
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        return combined([finding.verdict for finding in self.findings])


def judge(family: Family) -> list[Judged]:
    """Judge every claim by the finished runs; where there are several codecs, by those with the paper's codec."""
    finished = [run for run in family.records if run.finished]
    if len({run.codec for run in finished}) > 1:
        finished = [run for run in finished if run.codec == PAPERS_CODEC or not codes(run.policy)]
    missing = (Finding("", MISSING, "not measurable"),)
    if not finished:
        return [Judged(claim, family, missing) for claim in CLAIMS]
    judged = replace(family, records=tuple(finished))
    return [Judged(claim, judged, tuple(claim.measure(judged)) or missing) for claim in CLAIMS]


_TARGET_RULE = (
    f"The target of a seed is {TARGET:.0%} of the best final accuracy of any policy on this seed. A run reaches it "
    "when the mean of three evaluations does. "
)
_SAVING_RULE = (
    "Magnitude, at each β that was run, because the paper does not say at which. Accumulated energy after the last "
    "round."
)

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "fastest",
        "QCCF needs the fewest rounds to learn.",
        "Figs. 3, 4 (a), (c)",
        "",
        "policies",
        partial(measured.to_target, lead=measured.rounds_ahead, quantity=ROUNDS),
        f"Ordering. {_TARGET_RULE}A run that never reaches it counts as one round after its last; seeds on which "
        "neither run reaches it are left out.",
    ),
    Claim(
        "least-energy",
        "QCCF spends the least energy over all rounds.",
        "Figs. 3, 4 (b), (d)",
        "",
        "policies",
        measured.least_energy,
        "Ordering. Accumulated energy after the last round.",
    ),
    Claim(
        "least-energy-to-target",
        "QCCF spends the least energy to reach the same accuracy.",
        "Figs. 3, 4",
        "",
        "efficiency",
        partial(measured.to_target, lead=measured.energy_saved_to_target, quantity=ENERGY),
        f"Ordering. {_TARGET_RULE}A baseline that never reaches it counts with all the energy that it spent, which "
        "favours the baseline; QCCF saves nothing where it never reaches it.",
    ),
    Claim(
        "saves-principle",
        "QCCF takes 48.21 % less energy than principle.",
        "Section I",
        "48.21 %",
        "policies",
        partial(measured.saving, "principle"),
        _SAVING_RULE,
        measured.PAPERS_SAVINGS["principle"],
    ),
    Claim(
        "saves-same-size",
        "QCCF takes 35.42 % less energy than same-size.",
        "Section I",
        "35.42 %",
        "policies",
        partial(measured.saving, "same-size"),
        _SAVING_RULE,
        measured.PAPERS_SAVINGS["same-size"],
    ),
    Claim(
        "beta",
        "With more uneven datasets (larger β) same-size and principle spend more, and QCCF the same.",
        "Figs. 3, 4 (b) against (d)",
        "",
        "policies",
        measured.energy_over_beta,
        "Change of energy from the lowest β to the highest: direction for same-size and principle, equivalence for "
        "QCCF.",
    ),
    Claim(
        "late-slowdown",
        "Principle learns too slowly late in training, because clients with much data miss the deadline.",
        "Figs. 3, 4 (a), (c)",
        "",
        "lost",
        measured.late_slowdown,
        "Three directions: accuracy gained in the last third of the rounds, below QCCF's; rank correlations of lost "
        "uploads with the round, and within a round with the dataset size, above 0. If no upload is lost, none of them "
        "holds.",
    ),
    Claim(
        "weights",
        "Both accuracy and energy fall as V grows.",
        "Fig. 2",
        "",
        "weights",
        measured.over_weights,
        "Directions of rank correlations over the values of V.",
    ),
    Claim(
        "flat",
        "Accuracy is flat up to V = 100 on the first task and V = 10 on the second, and falls beyond.",
        "Fig. 2",
        "V = 100, 10",
        "weights",
        measured.flat_accuracy,
        "Differences of final accuracies: equivalence for every smaller V, direction for the largest V.",
    ),
    Claim(
        "bits-rounds",
        "Bits rise with the rounds for principle, same-size and QCCF, and do not for channel-allocate.",
        "Fig. 5 (a)",
        "",
        "bits",
        partial(
            measured.correlations,
            "bits ~ round",
            {"principle": 1, "same-size": 1, "qccf": 1, "channel-allocate": 0},
            measured.bits_over_rounds,
        ),
        "Rank correlation of a round's mean bits with its number: direction, and equivalence for channel-allocate.",
    ),
    Claim(
        "bits-sizes",
        "Bits fall with the dataset size for channel-allocate and QCCF, do not depend on it for same-size, and rise "
        "with it for principle.",
        "Fig. 5 (b)",
        "",
        "bits",
        partial(
            measured.correlations,
            "bits ~ D",
            {"channel-allocate": -1, "qccf": -1, "same-size": 0, "principle": 1},
            measured.bits_over_sizes,
        ),
        "Rank correlation of bits with dataset sizes among the uploads of a round, on average over the rounds: "
        "direction, and equivalence for same-size.",
    ),
    Claim(
        "final-bits",
        "Principle ends with more bits than QCCF and same-size.",
        "Fig. 5 (a)",
        "",
        "bits",
        measured.final_bits,
        "Ordering of mean bits in the last tenth of the rounds, against the two policies that the paper names.",
    ),
)
