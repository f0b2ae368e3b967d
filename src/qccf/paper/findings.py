"""Measures the claims of the paper on our runs: one finding per part of a claim.

One of the rules in `qccf.paper.verdicts` judges each number, together with the other numbers that rest on the
same cause (`qccf.paper.claims.judge`). Every number is measured per seed (a seed determines the cell, its fading and
its data). Where two runs are compared, the number is their difference on the same seed.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from qccf.core.correlation import relation
from qccf.core.intervals import Estimate, correlation_estimate, estimate
from qccf.paper.families import Family, Setting
from qccf.paper.run_measures import (
    energy_saved,
    last_third_gain,
    missed_over_rounds,
    missed_over_sizes,
    rounds_to,
    target_accuracies,
)
from qccf.paper.verdicts import (
    ACCURACY,
    BITS,
    CORRELATION,
    DOWN,
    ENERGY,
    ROUNDS,
    SIGNS,
    UP,
    ZERO,
    Answer,
    Quantity,
    Rule,
    combined,
    ordering,
)
from qccf.rounds.run import Run

BASELINES = ("same-size", "principle", "channel-allocate", "no-quantization")
PAPERS_SAVINGS = {"principle": 0.4821, "same-size": 0.3542}
FLAT_UP_TO = {"femnist": 100.0, "cifar10": 10.0}
"""The largest V up to which the paper finds that accuracy is flat."""
MISSING = "nothing to compare"


@dataclass(frozen=True)
class Measure:
    """One number of a part, compared with the policy `against` where there are several. `answer` comes with the
    others of its group."""

    against: str
    quantity: Quantity
    estimate: Estimate
    rule: Rule
    answer: Answer = "not measurable"


@dataclass(frozen=True)
class Finding:
    """One part of a claim: the numbers, and words around them.

    `ordered` parts say that QCCF is first; `refuted` ones are refuted whatever the numbers are. Parts about accuracy
    cannot be judged where too little was learned.
    """

    part: str
    measures: tuple[Measure, ...] = ()
    setting: Setting | None = None
    ordered: bool = False
    before: str = ""
    after: str = ""
    refuted: bool = False
    about_accuracy: bool = False

    @property
    def verdict(self) -> Answer:
        answers = [measure.answer for measure in self.measures]
        if self.refuted and any(measure.estimate.known for measure in self.measures):
            return "refuted"
        return ordering(answers) if self.ordered else combined(answers)

    @property
    def value(self) -> str:
        """The numbers in words."""
        if not any(measure.estimate.count for measure in self.measures):
            return MISSING
        if not self.ordered:
            return self.before + "; ".join(m.quantity.shown(m.estimate) for m in self.measures) + self.after
        return self.before + "; ".join(_rival_words(measure) for measure in self.measures) + self.after

    @property
    def rivals(self) -> tuple[str, ...]:
        """The baselines that QCCF does not beat, or not by as much as claimed."""
        if self.setting is None:
            return ()
        return tuple(m.against for m in self.measures if m.answer not in ("holds", "not measurable"))

    def seeds_note(self, seeds: int) -> str:
        """Which numbers come from fewer seeds than there are, for the page."""
        counts = sorted({m.estimate.count for m in self.measures if 0 < m.estimate.count < seeds})
        return f" ({' or '.join(map(str, counts))} of {seeds} seeds)" if counts else ""


def _rival_words(measure: Measure) -> str:
    shown = measure.quantity.shown(measure.estimate) if measure.estimate.count else "unknown"
    return f"{measure.against} {shown} {SIGNS[measure.answer]}"


def _against(
    family: Family, a: tuple[Setting, str], b: tuple[Setting, str], difference: Callable[[Run, Run], float]
) -> Estimate:
    """The estimate of `difference(run of a, run of b)` over the seeds."""
    return estimate(difference(x, y) for x, y in family.paired(a, b))


def _found(
    part: str, e: Estimate, quantity: Quantity, rule: Rule, *, after: str = "", accuracy: bool = False
) -> Finding:
    return Finding(part, (Measure("", quantity, e, rule),), after=after, about_accuracy=accuracy)


def _ahead(
    setting: Setting, leads: dict[str, Estimate], quantity: Quantity, before: str = "", after: str = ""
) -> Finding:
    """One part that is an ordering; `leads` are the leads over each rival."""
    measures = tuple(Measure(name, quantity, e, UP) for name, e in leads.items())
    return Finding(setting.beta_label, measures, setting, ordered=True, before=before, after=after)


def to_target(family: Family, lead: Callable[[Run, Run, float], float], quantity: Quantity) -> list[Finding]:
    findings = []
    grain = quantity.grain * family.scenario.evaluation.every
    for setting in family.comparisons():
        targets = target_accuracies(family, setting)
        leads = {
            name: estimate(
                (lead(b, q, targets[q.seed]) for b, q in family.paired((setting, name), (setting, "qccf"))), grain
            )
            for name in BASELINES
        }
        took = [rounds_to(run, targets[run.seed]) for run in family.of(setting, "qccf")]
        ours = estimate(float(rounds) for rounds in took if rounds is not None)
        lead_words = "rounds ahead of" if quantity is ROUNDS else "energy saved until then, against"
        before = f"QCCF reaches {np.mean(list(targets.values())):.1%} after {ours.shown('.1f')} rounds; {lead_words}: "
        found = _ahead(setting, leads, quantity, before, _unreached(family, setting, targets))
        findings.append(_about_accuracy(found))
    return findings


def _about_accuracy(finding: Finding) -> Finding:
    return Finding(**vars(finding) | {"about_accuracy": True})


def _unreached(family: Family, setting: Setting, targets: dict[int, float]) -> str:
    """The policies that do not reach the target, and on how many seeds."""
    parts = []
    for name in family.labels(setting):
        runs = family.of(setting, name)
        missing = sum(rounds_to(run, targets[run.seed]) is None for run in runs)
        if missing:
            parts.append(f"{name} on {missing} of {len(runs)} seeds")
    return f". Never reached: {', '.join(parts)}" if parts else ""


def least_energy(family: Family) -> list[Finding]:
    return [
        _ahead(
            setting,
            {name: _against(family, (setting, name), (setting, "qccf"), energy_saved) for name in BASELINES},
            ENERGY,
            "QCCF saves, against: ",
        )
        for setting in family.comparisons()
    ]


def saving(baseline: str, family: Family) -> list[Finding]:
    rule = Rule("magnitude", papers=PAPERS_SAVINGS[baseline])
    findings = []
    for setting in family.comparisons():
        e = _against(family, (setting, baseline), (setting, "qccf"), energy_saved)
        measure = Measure(baseline, ENERGY, e, rule)
        findings.append(Finding(setting.beta_label, (measure,), setting, after=_compared(e, rule.papers)))
    return findings


def _compared(e: Estimate, papers: float) -> str:
    if not e.known or e.low <= papers <= e.high:
        return ""
    return ", more than the paper's" if e.low > papers else ", less than the paper's"


def energy_over_beta(family: Family) -> list[Finding]:
    """The change of energy from the lowest to the highest β at the same V."""
    findings = []
    settings = family.comparisons()
    for weight in sorted({s.energy_weight for s in settings}):
        same = [s for s in settings if s.energy_weight == weight]
        low, high = same[0], same[-1]
        if low == high:
            continue
        for name in ("same-size", "principle", "qccf"):
            e = _against(family, (high, name), (low, name), lambda b, a: float(b.energy_j[-1] / a.energy_j[-1] - 1.0))
            findings.append(_found(name, e, ENERGY, ZERO if name == "qccf" else UP))
    return findings


def late_slowdown(family: Family) -> list[Finding]:
    findings = []
    for setting in family.comparisons():
        runs = family.of(setting, "principle")
        gain = _against(
            family, (setting, "principle"), (setting, "qccf"), lambda p, q: last_third_gain(p) - last_third_gain(q)
        )
        over_rounds = correlation_estimate(missed_over_rounds(run) for run in runs)
        over_sizes = correlation_estimate(missed_over_sizes(run) for run in runs)
        lost = any(run.missed_share() for run in runs)
        for part, e, quantity, rule, after in (
            ("gain in the last third, minus QCCF's", gain, ACCURACY, DOWN, ", but no upload is lost"),
            ("lost uploads ~ round", over_rounds, CORRELATION, UP, ", no upload is lost"),
            ("lost uploads ~ D", over_sizes, CORRELATION, UP, ", no upload is lost"),
        ):
            measures = (Measure("", quantity, e, rule),)
            findings.append(
                Finding(
                    f"{setting.beta_label}: {part}",
                    measures,
                    after="" if lost else after,
                    refuted=not lost,  # lost uploads cannot be the reason
                    about_accuracy=quantity is ACCURACY,
                )
            )
    return findings


def over_weights(family: Family) -> list[Finding]:
    settings = family.weights()
    if len(settings) < 3:
        return []
    columns = [{run.seed: run for run in family.of(setting, "qccf")} for setting in settings]
    seeds = sorted(set.intersection(*(set(column) for column in columns)))
    weights = np.array([s.energy_weight for s in settings])
    measures: dict[str, Callable[[Run], float]] = {
        "energy ~ V": lambda r: float(r.energy_j[-1]),
        "accuracy ~ V": Run.final_accuracy,
    }
    findings = []
    for part, of in measures.items():
        each = [relation(weights, np.array([of(column[seed]) for column in columns])) for seed in seeds]
        accuracy = part.startswith("accuracy")
        findings.append(_found(part, correlation_estimate(each), CORRELATION, DOWN, accuracy=accuracy))
    return findings


def flat_accuracy(family: Family) -> list[Finding]:
    """Every V below the paper's limit, and the largest V, against the limit."""
    by_weight = {s.energy_weight: s for s in family.weights()}
    limit = FLAT_UP_TO[family.task]
    if limit not in by_weight:
        return []
    findings = []
    for weight, setting in by_weight.items():
        if weight == limit or limit < weight < max(by_weight):
            continue
        e = _against(
            family,
            (setting, "qccf"),
            (by_weight[limit], "qccf"),
            lambda a, b: a.final_accuracy() - b.final_accuracy(),
        )
        below = weight < limit
        part = f"V = {weight:g} against {limit:g}" + (", flat" if below else ", where it should fall")
        findings.append(_found(part, e, ACCURACY, ZERO if below else DOWN, accuracy=True))
    return findings


def correlations(part: str, expected: dict[str, int], of: Callable[[Run], float], family: Family) -> list[Finding]:
    """Rank correlations of each policy; `expected` is the sign in the paper, 0 for no correlation."""
    rules = {1: UP, -1: DOWN, 0: ZERO}
    return [
        _found(
            f"{setting.beta_label}, {part}: {name}",
            correlation_estimate(of(run) for run in family.of(setting, name)),
            CORRELATION,
            rules[sign],
        )
        for setting in family.comparisons()
        for name, sign in expected.items()
    ]


def final_bits(family: Family) -> list[Finding]:
    """The paper compares principle with qccf and same-size. Channel-allocate is shown, not judged."""
    findings = []
    for setting in family.comparisons():
        above = {
            name: _against(
                family, (setting, "principle"), (setting, name), lambda a, b: a.final_bits() - b.final_bits()
            )
            for name in ("qccf", "same-size", "channel-allocate")
        }
        other = above.pop("channel-allocate")
        after = f"; channel-allocate {BITS.shown(other)} (not judged)" if other.count else ""
        measures = tuple(Measure(name, BITS, e, UP) for name, e in above.items())
        before = "principle's bits minus those of: "
        findings.append(Finding(setting.beta_label, measures, ordered=True, before=before, after=after))
    return findings
