"""Measures the claims of the paper on our runs: one finding per part of a claim.

One of the rules in `qccf.paper.verdicts` judges each part. Every number is measured per seed (a seed determines the
cell, its fading and its data). Where two runs are compared, the number is their difference on the same seed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from qccf.core.contracts import FloatArray
from qccf.core.correlation import relation, relation_within_rounds
from qccf.core.intervals import Estimate, estimate
from qccf.paper.families import Family, Setting, setting_of
from qccf.paper.verdicts import (
    ACCURACY,
    BITS,
    CORRELATION,
    ENERGY,
    ROUNDS,
    SIGNS,
    Answer,
    Quantity,
    direction,
    equivalence,
    magnitude,
    ordering,
)
from qccf.rounds.run import Run

BASELINES = ("same-size", "principle", "channel-allocate", "no-quantization")
PAPERS_SAVINGS = {"principle": 0.4821, "same-size": 0.3542}
FLAT_UP_TO = {"femnist": 100.0, "cifar10": 10.0}
"""The largest V up to which the paper finds that accuracy is flat."""
TARGET = 0.95
"""The target accuracy of a seed, as a share of the best final accuracy that a policy reaches on this seed."""
MISSING = "nothing to compare"


@dataclass(frozen=True)
class Measure:
    """One number of a part, compared with the policy `against` where there are several."""

    against: str
    quantity: Quantity
    estimate: Estimate
    answer: Answer


@dataclass(frozen=True)
class Finding:
    """One part of a claim: the measurement in words and as numbers, and the verdict."""

    part: str
    value: str
    verdict: Answer
    measures: tuple[Measure, ...] = ()
    setting: Setting | None = None
    rivals: tuple[str, ...] = ()
    """The baselines that QCCF does not beat, or not by as much as claimed."""

    def seeds_note(self, seeds: int) -> str:
        """Which numbers come from fewer seeds than there are, for the page."""
        counts = sorted({m.estimate.count for m in self.measures if 0 < m.estimate.count < seeds})
        return f" ({' or '.join(map(str, counts))} of {seeds} seeds)" if counts else ""


def rounds_to(run: Run, target: float) -> int | None:
    """The first round at which the mean of the last three evaluations reaches the target; None if there is none."""
    reached = np.flatnonzero(_smoothed(run.accuracy) >= target)
    return int(reached[0]) + 1 if len(reached) else None


def target_accuracies(family: Family, setting: Setting) -> dict[int, float]:
    """The target accuracy of each seed, the same for every policy."""
    best: dict[int, float] = {}
    for run in family.records:
        if setting_of(run) == setting:
            best[run.seed] = float(np.fmax(best.get(run.seed, np.nan), run.final_accuracy()))
    return {seed: TARGET * accuracy for seed, accuracy in best.items()}


def rounds_ahead(theirs: Run, ours: Run, target: float) -> float:
    """How many rounds earlier QCCF reaches the target. Never reached counts as one round after the last."""
    a, b = rounds_to(theirs, target), rounds_to(ours, target)
    if a is None and b is None:
        return np.nan
    return float((a or len(theirs.rounds) + 1) - (b or len(ours.rounds) + 1))


def energy_saved_to_target(theirs: Run, ours: Run, target: float) -> float:
    """The share of the baseline's energy that QCCF saves until it reaches the target.

    A baseline that never reaches the target counts with all the energy that it spent. If QCCF never reaches it, QCCF
    saves nothing, however little it spent.
    """
    a, b = rounds_to(theirs, target), rounds_to(ours, target)
    if a is None and b is None:
        return np.nan
    saved = float(1.0 - ours.energy_j[(b or 0) - 1] / theirs.energy_j[(a or 0) - 1])
    return min(0.0, saved) if b is None else saved


def energy_saved(theirs: Run, ours: Run) -> float:
    """The share of the baseline's energy that QCCF saves over all rounds."""
    return float(1.0 - ours.energy_j[-1] / theirs.energy_j[-1])


def _smoothed(accuracy: FloatArray) -> FloatArray:
    """The mean of the last three rounds. A round without an evaluation takes the previous value, if there is one."""
    held = accuracy[np.maximum.accumulate(np.where(np.isfinite(accuracy), np.arange(len(accuracy)), 0))]
    return np.array([held[max(0, n - 2) : n + 1].mean() for n in range(len(held))])


def _against(
    family: Family, a: tuple[Setting, str], b: tuple[Setting, str], difference: Callable[[Run, Run], float]
) -> Estimate:
    """The estimate of `difference(run of a, run of b)` over the seeds."""
    return estimate(difference(x, y) for x, y in family.paired(a, b))


def _found(part: str, e: Estimate, quantity: Quantity, answer: Answer, note: str = "") -> Finding:
    measures = (Measure("", quantity, e, answer),)
    return Finding(part, quantity.shown(e) + note if e.count else MISSING, answer, measures)


def _ahead(
    setting: Setting, leads: dict[str, Estimate], quantity: Quantity, before: str = "", after: str = ""
) -> Finding:
    """One part that is an ordering; `leads` are the leads over each rival."""
    if not any(e.count for e in leads.values()):
        return Finding(setting.beta_label, MISSING, "not measurable")
    answers = {name: direction(e, 1, quantity.margin) for name, e in leads.items()}
    shown = {name: quantity.shown(e) if e.count else "unknown" for name, e in leads.items()}
    listed = "; ".join(f"{name} {shown[name]} {SIGNS[answer]}" for name, answer in answers.items())
    measures = tuple(Measure(name, quantity, leads[name], answer) for name, answer in answers.items())
    rivals = tuple(name for name, answer in answers.items() if answer in ("does not hold", "not settled"))
    return Finding(setting.beta_label, before + listed + after, ordering(answers.values()), measures, setting, rivals)


def to_target(family: Family, lead: Callable[[Run, Run, float], float], quantity: Quantity) -> list[Finding]:
    findings = []
    for setting in family.comparisons():
        targets = target_accuracies(family, setting)
        leads = {
            name: estimate(
                (lead(b, q, targets[q.seed]) for b, q in family.paired((setting, name), (setting, "qccf"))),
                quantity.grain,
            )
            for name in BASELINES
        }
        took = [rounds_to(run, targets[run.seed]) for run in family.of(setting, "qccf")]
        ours = estimate(float(rounds) for rounds in took if rounds is not None)
        lead_words = "rounds ahead of" if quantity is ROUNDS else "energy saved until then, against"
        before = f"QCCF reaches {np.mean(list(targets.values())):.1%} after {ours.shown('.1f')} rounds; {lead_words}: "
        findings.append(_ahead(setting, leads, quantity, before, _unreached(family, setting, targets)))
    return findings


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
    papers = PAPERS_SAVINGS[baseline]
    findings = []
    for setting in family.comparisons():
        e = _against(family, (setting, baseline), (setting, "qccf"), energy_saved)
        answer = magnitude(e, papers, ENERGY.margin)
        rivals = () if answer in ("holds", "not measurable") else (baseline,)
        found = _found(setting.beta_label, e, ENERGY, answer, _compared(e, papers) if answer == "partly" else "")
        findings.append(replace(found, setting=setting, rivals=rivals))
    return findings


def _compared(e: Estimate, papers: float) -> str:
    if e.low > papers or e.high < papers:
        return ", more than the paper's" if e.low > papers else ", less than the paper's"
    return ", too wide to confirm the paper's"


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
            stable = name == "qccf"
            answer = equivalence(e, ENERGY.margin) if stable else direction(e, 1, ENERGY.margin)
            findings.append(_found(name, e, ENERGY, answer))
    return findings


def late_slowdown(family: Family) -> list[Finding]:
    findings = []
    for setting in family.comparisons():
        runs = family.of(setting, "principle")
        gain = _against(
            family, (setting, "principle"), (setting, "qccf"), lambda p, q: _last_third_gain(p) - _last_third_gain(q)
        )
        over_rounds = estimate(relation(_column(r.rounds, "round"), _column(r.rounds, "missed")) for r in runs)
        over_sizes = estimate(_relation_to_sizes(r, "missed", varying_only=True) for r in runs)
        lost = any(r.missed_share() for r in runs)
        note = "" if lost else ", no upload is lost"
        for part, e, quantity, sign, more in (
            ("gain in the last third, minus QCCF's", gain, ACCURACY, -1, "" if lost else ", but no upload is lost"),
            ("lost uploads ~ round", over_rounds, CORRELATION, 1, note),
            ("lost uploads ~ D", over_sizes, CORRELATION, 1, note),
        ):
            answer = direction(e, sign, quantity.margin)
            if e.known and not lost:
                answer = "does not hold"  # lost uploads cannot be the reason
            findings.append(_found(f"{setting.beta_label}: {part}", e, quantity, answer, more))
    return findings


def _last_third_gain(run: Run) -> float:
    smooth = _smoothed(run.accuracy)
    return float(smooth[-1] - smooth[-max(1, len(smooth) // 3) - 1]) if len(smooth) > 3 else np.nan


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
        e = estimate(relation(weights, np.array([of(column[seed]) for column in columns])) for seed in seeds)
        findings.append(_found(part, e, CORRELATION, direction(e, -1, CORRELATION.margin)))
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
        answer = equivalence(e, ACCURACY.margin) if below else direction(e, -1, ACCURACY.margin)
        part = f"V = {weight:g} against {limit:g}" + (", flat" if below else ", where it should fall")
        findings.append(_found(part, e, ACCURACY, answer))
    return findings


def _relation_to_sizes(run: Run, column: str, *, varying_only: bool = False) -> float:
    rounds, sizes, values = (_column(run.uploads, name) for name in ("round", "dataset_size", column))
    return relation_within_rounds(rounds.astype(int), sizes, values, varying_only=varying_only)


def _column(frame: pd.DataFrame, name: str) -> FloatArray:
    return frame[name].to_numpy(dtype=float)


def bits_over_rounds(run: Run) -> float:
    """Rank correlation of a round's mean bits with its number."""
    return relation(_column(run.rounds, "round"), run.mean_bits)


def bits_over_sizes(run: Run) -> float:
    """Rank correlation of bits with dataset sizes among the uploads of a round, averaged over rounds."""
    return _relation_to_sizes(run, "num_bits")


def correlations(part: str, expected: dict[str, int], of: Callable[[Run], float], family: Family) -> list[Finding]:
    """Rank correlations of each policy; `expected` is the sign in the paper, 0 for no correlation."""
    findings = []
    for setting in family.comparisons():
        for name, sign in expected.items():
            e = estimate(of(run) for run in family.of(setting, name))
            answer = direction(e, sign, CORRELATION.margin) if sign else equivalence(e, CORRELATION.margin)
            findings.append(_found(f"{setting.beta_label}, {part}: {name}", e, CORRELATION, answer))
    return findings


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
        judged = _ahead(setting, above, BITS, "principle's bits minus those of: ", after)
        findings.append(replace(judged, setting=None, rivals=()))
    return findings
