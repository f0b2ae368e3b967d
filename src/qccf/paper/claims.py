"""The claims of the paper as data, and their verdicts.

Each claim has a function that returns one finding per part of the claim (`qccf.paper.findings`). Numbers that rest on
one cause are a group: they are tested together, and a reader sees that one choice decides them all.

Paper: Section VI and the contributions in Section I.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from qccf.core.intervals import estimate
from qccf.paper import findings as measured
from qccf.paper import run_measures
from qccf.paper.families import Family
from qccf.paper.findings import Finding, Measure
from qccf.paper.run_measures import TARGET
from qccf.paper.verdicts import ENERGY, ROUNDS, Answer, adjusted_chances, answer, chances, combined
from qccf.policies.registry import codes
from qccf.settings.schema import PAPERS_CODEC

NEEDED_ACCURACY = {"emnist": 0.70, "femnist": 0.70, "mnist": 0.90, "cifar10": 0.60}
"""What the run without quantization must reach for claims about accuracy to be judged, stated before the runs."""

CAUSES = {
    "energy": "What QCCF spends",
    "same-size": "What same-size leaves out of its decision",
    "principle": "How fast principle's bits rise",
    "learning": "What bits and V do to learning",
    "bits": "What bits follow",
}
"""What claims rest on. One cause decides all numbers of its group."""

OF_ENERGY = ("energy", "same-size")
"""The causes of claims that compare energies."""


@dataclass(frozen=True)
class Claim:
    """`measure` gets the runs of one task; `paper` is the paper's number in words, empty if it gives none.

    `papers_value` is that number where it can stand beside ours, in the unit of the estimates. `cause` is one of
    `CAUSES`.
    """

    key: str
    words: str
    figure: str
    paper: str
    chart: str
    measure: Callable[[Family], list[Finding]]
    rule: str
    cause: str
    papers_value: float | None = None


@dataclass(frozen=True)
class Judged:
    """A claim with its findings; `family` are the runs that judge it. `reason` says why it cannot be judged."""

    claim: Claim
    family: Family
    findings: tuple[Finding, ...]
    reason: str = ""

    @property
    def verdict(self) -> Answer:
        return combined([finding.verdict for finding in self.findings])

    def deciding(self) -> tuple[str, Measure] | None:
        """The number that is worst for the claim, with its name; None if no number has an interval."""
        numbers = [
            (", ".join(filter(None, (finding.part, measure.against))), measure)
            for finding in self.findings
            for measure in finding.measures
            if measure.estimate.known
        ]
        return min(numbers, key=lambda pair: _rank(pair[1])) if numbers else None

    @property
    def why(self) -> str:
        """The verdict in one sentence."""
        decides = self.deciding()
        if self.reason or decides is None:
            return self.reason or "There is no interval: the runs that the claim compares are missing, or one seed."
        name, measure = decides
        shown = f"{name}{': ' if name else ''}{measure.quantity.shown(measure.estimate)}"
        numbers = [m.answer for finding in self.findings for m in finding.measures if m.estimate.known]
        agreeing = f"{sum(one == 'holds' for one in numbers)} of {len(numbers)} numbers agree"
        in_part = f"{agreeing}; the worst is {shown} ({measure.answer})."
        if set(numbers) <= {"holds", "holds in part"}:
            in_part = f"The direction holds, but not that it is the paper's number: {shown}."
        forced = next((f for f in self.findings if f.refuted and f.verdict == "refuted"), None)
        return {
            "holds": f"All numbers agree; the weakest is {shown}.",
            "holds in part": in_part,
            "tie": f"The difference is too small to matter: {shown}.",
            "refuted": f"{forced.part}{forced.after}." if forced else f"On the other side: {shown}.",
            "not settled": f"Too few seeds to tell: {shown}.",
            "not measurable": "No number could be judged.",
        }[self.verdict]


def _rank(measure: Measure) -> tuple[int, float]:
    """Worst first: of the numbers that refute a claim the largest, else the one nearest to zero."""
    order: tuple[Answer, ...] = ("refuted", "not settled", "tie", "holds in part", "holds", "not measurable")
    size = abs(measure.estimate.mean)
    return order.index(measure.answer), -size if measure.answer == "refuted" else size


def judge(family: Family) -> list[Judged]:
    """Judge every claim by the finished runs; where there are several codecs, by those with the paper's codec."""
    finished = [run for run in family.records if run.finished]
    if len({run.codec for run in finished}) > 1:
        finished = [run for run in finished if run.codec == PAPERS_CODEC or not codes(run.policy)]
    missing = (Finding(""),)
    if not finished:
        return [Judged(claim, family, missing) for claim in CLAIMS]
    judged = replace(family, records=tuple(finished))
    found = {claim.key: tuple(claim.measure(judged)) or missing for claim in CLAIMS}
    reason = too_little_learned(judged)
    found = answered(found, learned=not reason)
    return [
        Judged(claim, judged, found[claim.key], reason if all(one.about_accuracy for one in found[claim.key]) else "")
        for claim in CLAIMS
    ]


def cause_of(own: str, rival: str) -> str:
    """What a number rests on: energies of same-size or principle, or compared with theirs, rest on that baseline; any
    other number rests on the cause of its claim."""
    baseline = rival.partition(",")[0]
    return baseline if own in OF_ENERGY and baseline in CAUSES else own


def number_cause(claim: Claim, finding: Finding, measure: Measure) -> str:
    """What a number of a claim rests on."""
    return cause_of(claim.cause, measure.against or finding.part)


def answered(found: Mapping[str, tuple[Finding, ...]], *, learned: bool) -> dict[str, tuple[Finding, ...]]:
    """The findings of all claims with the answers on their numbers; the numbers of one cause are tested together."""
    numbers = [
        (number_cause(claim, one, m), m)
        for claim in CLAIMS
        for one in found[claim.key]
        if learned or not one.about_accuracy
        for m in one.measures
    ]
    answers: dict[int, Answer] = {}
    for cause in CAUSES:
        mine = [(place, m) for place, (rests_on, m) in enumerate(numbers) if rests_on == cause]
        adjusted = adjusted_chances([chances(m.estimate, m.rule, m.quantity.margin) for _, m in mine])
        for (place, m), tests in zip(mine, adjusted, strict=True):
            answers[place] = answer(m.estimate, m.rule, tests)
    in_order = iter(answers[place] for place in range(len(numbers)))
    return {
        claim.key: tuple(
            replace(one, measures=tuple(replace(m, answer=next(in_order)) for m in one.measures))
            if learned or not one.about_accuracy
            else replace(one, refuted=False)
            for one in found[claim.key]
        )
        for claim in CLAIMS
    }


def too_little_learned(family: Family) -> str:
    """Why claims about accuracy cannot be judged; empty where they can. Without a raw run all runs count."""
    needed = NEEDED_ACCURACY.get(family.scenario.data.dataset)
    raw = [run for run in family.records if run.policy == "no-quantization"] or family.records
    reached = estimate(run.final_accuracy() for run in raw)
    if needed is None or not reached.count or reached.mean >= needed:
        return ""
    return (
        f"Without quantization the runs reach {reached.mean:.1%}, and {needed:.0%} was required before the runs for "
        "claims about accuracy."
    )


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
        partial(measured.to_target, lead=run_measures.rounds_ahead, quantity=ROUNDS),
        f"Ordering. {_TARGET_RULE}A run that never reaches it counts as one round after its last; seeds on which "
        "neither run reaches it are left out.",
        "learning",
    ),
    Claim(
        "least-energy",
        "QCCF spends the least energy over all rounds.",
        "Figs. 3, 4 (b), (d)",
        "",
        "policies",
        measured.least_energy,
        "Ordering. Accumulated energy after the last round.",
        "energy",
    ),
    Claim(
        "least-energy-to-target",
        "QCCF spends the least energy to reach the same accuracy.",
        "Figs. 3, 4",
        "",
        "efficiency",
        partial(measured.to_target, lead=run_measures.energy_saved_to_target, quantity=ENERGY),
        f"Ordering. {_TARGET_RULE}A baseline that never reaches it counts with all the energy that it spent, which "
        "favours the baseline; QCCF saves nothing where it never reaches it.",
        "energy",
    ),
    Claim(
        "saves-principle",
        "QCCF takes 48.21 % less energy than principle.",
        "Section I",
        "48.21 %",
        "policies",
        partial(measured.saving, "principle"),
        _SAVING_RULE,
        "principle",
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
        "same-size",
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
        "energy",
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
        "principle",
    ),
    Claim(
        "weights",
        "Both accuracy and energy fall as V grows.",
        "Fig. 2",
        "",
        "weights",
        measured.over_weights,
        "Directions of rank correlations over the values of V.",
        "learning",
    ),
    Claim(
        "flat",
        "Accuracy is flat up to V = 100 on the first task and V = 10 on the second, and falls beyond.",
        "Fig. 2",
        "V = 100, 10",
        "weights",
        measured.flat_accuracy,
        "Differences of final accuracies: equivalence for every smaller V, direction for the largest V.",
        "learning",
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
            run_measures.bits_over_rounds,
        ),
        "Rank correlation of a round's mean bits with its number: direction, and equivalence for channel-allocate.",
        "bits",
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
            run_measures.bits_over_sizes,
        ),
        "Rank correlation of bits with dataset sizes among the uploads of a round, on average over the rounds: "
        "direction, and equivalence for same-size.",
        "bits",
    ),
    Claim(
        "final-bits",
        "Principle ends with more bits than QCCF and same-size.",
        "Fig. 5 (a)",
        "",
        "bits",
        measured.final_bits,
        "Ordering of mean bits in the last tenth of the rounds, against the two policies that the paper names.",
        "principle",
    ),
)
