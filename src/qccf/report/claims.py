"""What the paper claims, as data, and what our runs say to it.

Each claim has one function from a family of runs to findings, one for each part of it. A part is judged by a 95 %
interval over seeds, paired by seed wherever two runs are compared: every seed is a cell, its fading and its data. A
claim holds if all its parts do, and does not if none does.

Paper: Section VI and the contributions in Section I.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from qccf.contracts import FloatArray
from qccf.report.intervals import Estimate, estimate, rank_correlation
from qccf.report.records import Family, Record, Setting

Verdict = Literal["holds", "partly", "does not hold", "not measurable"]

BASELINES = ("same-size", "principle", "channel-allocate", "no-quantization")
TARGET = 0.95
"""A target accuracy is this part of the best final accuracy among the policies."""
STABLE = 0.05
"""Energy is stable if it moves by less than this part."""
FLAT = 0.01
"""Accuracy is flat if it moves by less than this."""
UNRELATED = 0.2
"""Rank correlations whose whole interval is nearer to 0 than this are no relation."""


@dataclass(frozen=True)
class Finding:
    """One part of a claim: what was measured, and whether it agrees."""

    part: str
    value: str
    verdict: Verdict
    estimate: Estimate | None = None


@dataclass(frozen=True)
class Claim:
    """`measure` gets the runs of one task; `paper` is the number that the paper gives, where it does."""

    key: str
    words: str
    figure: str
    paper: str
    chart: str
    measure: Callable[[Family], list[Finding]]
    rule: str
    tasks: tuple[str, ...] = ("femnist", "cifar10")
    one_is_enough: bool = False
    """The paper does not say of which setting it speaks: one in which it holds is enough."""


@dataclass(frozen=True)
class Judged:
    """A claim set against the runs of one task."""

    claim: Claim
    family: Family
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        verdicts = [finding.verdict for finding in self.findings]
        return "holds" if self.claim.one_is_enough and "holds" in verdicts else combined(verdicts)


def judge(family: Family) -> list[Judged]:
    """Every claim that is about this task."""
    return [
        Judged(
            claim, family, tuple(claim.measure(family)) or (Finding("", "these runs are missing", "not measurable"),)
        )
        for claim in CLAIMS
        if family.task in claim.tasks
    ]


def combined(verdicts: Iterable[Verdict]) -> Verdict:
    """All parts hold, some do, none does; what could not be measured counts only if there is nothing else."""
    known = [verdict for verdict in verdicts if verdict != "not measurable"]
    if not known:
        return "not measurable"
    if all(verdict == "holds" for verdict in known):
        return "holds"
    return "does not hold" if all(verdict == "does not hold" for verdict in known) else "partly"


def positive(e: Estimate) -> Verdict:
    """Is it above 0: surely, as far as the mean goes, or not."""
    if not e.known:
        return "not measurable"
    if e.low > 0.0:
        return "holds"
    return "partly" if e.mean > 0.0 else "does not hold"


def negative(e: Estimate) -> Verdict:
    return positive(Estimate(-e.mean, e.half, e.count))


def within(e: Estimate, limit: float) -> Verdict:
    """Is it 0 but for less than `limit`: surely, as far as the mean goes, or not."""
    if not e.known:
        return "not measurable"
    if e.low > -limit and e.high < limit:
        return "holds"
    return "partly" if abs(e.mean) < limit else "does not hold"


def _worst(verdicts: Sequence[Verdict]) -> Verdict:
    """A superlative is only as good as its weakest comparison: beaten once surely, or unsettled, or best of all."""
    known = [verdict for verdict in verdicts if verdict != "not measurable"]
    if not known:
        return "not measurable"
    if "does not hold" in known:
        return "does not hold"
    return "holds" if all(verdict == "holds" for verdict in known) else "partly"


def _ahead(e: Estimate) -> Verdict:
    """For 'nobody is better': a tie is unsettled, not a defeat."""
    if not e.known:
        return "not measurable"
    if e.low > 0.0:
        return "holds"
    return "does not hold" if e.high < 0.0 else "partly"


def target_accuracy(family: Family, setting: Setting) -> float:
    """The same for every policy and seed: a part of the best policy's mean final accuracy."""
    finals = [np.mean([r.final_accuracy() for r in family.of(setting, name)]) for name in family.labels(setting)]
    return TARGET * float(max(finals))


def rounds_to(record: Record, target: float) -> float:
    """The first round after which the mean of the last three evaluations reaches the target; N + 1 if none does."""
    reached = np.flatnonzero(_smoothed(record.accuracy) >= target)
    return float(reached[0] + 1) if len(reached) else float(len(record.rounds) + 1)


def energy_to(record: Record, target: float) -> float:
    """What was spent by then; by the end if the target was not reached, which flatters that run."""
    return float(record.energy_j[int(min(rounds_to(record, target), len(record.rounds))) - 1])


def _rounds_later(target: float, baseline: Record, ours: Record) -> float:
    return rounds_to(baseline, target) - rounds_to(ours, target)


def _energy_saved(target: float, baseline: Record, ours: Record) -> float:
    return 1.0 - energy_to(ours, target) / energy_to(baseline, target)


def _smoothed(accuracy: FloatArray) -> FloatArray:
    """The mean of the last three rounds; a round without an evaluation has the last one's."""
    seen = np.maximum.accumulate(np.where(np.isfinite(accuracy), np.arange(len(accuracy)), 0))
    held = np.nan_to_num(accuracy[seen], nan=0.0)
    return np.array([held[max(0, n - 2) : n + 1].mean() for n in range(len(held))])


def _against(family: Family, setting: Setting, difference: Callable[[Record, Record], float]) -> dict[str, Estimate]:
    """For each baseline: `difference(baseline, QCCF)`, paired by seed."""
    result = {}
    for name in BASELINES:
        pairs = family.paired((setting, name), (setting, "qccf"))
        if pairs:
            result[name] = estimate(difference(theirs, ours) for theirs, ours in pairs)
    return result


def _listed(estimates: dict[str, Estimate], form: str, scale: float = 1.0, unit: str = "") -> str:
    return "; ".join(f"{name} {e.shown(form, scale, unit)}" for name, e in estimates.items())


def _fastest(family: Family) -> list[Finding]:
    findings = []
    for setting in family.comparisons():
        if not family.of(setting, "qccf"):
            continue
        target = target_accuracy(family, setting)
        late = _against(family, setting, partial(_rounds_later, target))
        ours = estimate(rounds_to(record, target) for record in family.of(setting, "qccf"))
        value = f"QCCF reaches {target:.1%} after {ours.shown('.1f')} rounds; later by: {_listed(late, '+.1f')}"
        findings.append(Finding(setting.beta_label, value, _worst([_ahead(e) for e in late.values()])))
    return findings


def _least_energy(family: Family) -> list[Finding]:
    findings = []
    for setting in family.comparisons():
        saved = _against(family, setting, lambda b, q: 1.0 - q.energy_j[-1] / b.energy_j[-1])
        if saved:
            value = f"less by: {_listed(saved, '.1f', 100, ' %')}"
            findings.append(Finding(setting.beta_label, value, _worst([_ahead(e) for e in saved.values()])))
    return findings


def _least_energy_to_target(family: Family) -> list[Finding]:
    findings = []
    for setting in family.comparisons():
        if not family.of(setting, "qccf"):
            continue
        target = target_accuracy(family, setting)
        saved = _against(family, setting, partial(_energy_saved, target))
        if saved:
            value = f"to {target:.1%}, less by: {_listed(saved, '.1f', 100, ' %')}"
            findings.append(Finding(setting.beta_label, value, _worst([_ahead(e) for e in saved.values()])))
    return findings


def _saving(baseline: str, papers: float) -> Callable[[Family], list[Finding]]:
    def measure(family: Family) -> list[Finding]:
        findings = []
        for setting in family.comparisons():
            e = _against(family, setting, lambda b, q: 1.0 - q.energy_j[-1] / b.energy_j[-1]).get(baseline)
            if e is None:
                continue
            verdict: Verdict = positive(e)
            if verdict == "holds" and not e.low <= papers <= e.high:
                verdict = "partly"
            note = "" if verdict == "not measurable" else _compared(e, papers)
            findings.append(Finding(setting.beta_label, e.shown(".1f", 100, " %") + note, verdict, e))
        return findings

    return measure


def _compared(e: Estimate, papers: float) -> str:
    if e.low <= papers <= e.high:
        return ", the paper's number included"
    return ", more than the paper's" if e.low > papers else ", less than the paper's"


def _beta_pairs(family: Family) -> list[tuple[Setting, Setting]]:
    """The lowest and the highest β at the same V."""
    settings = family.comparisons()
    pairs = []
    for weight in sorted({s.energy_weight for s in settings}):
        same = [s for s in settings if s.energy_weight == weight]
        if len(same) > 1:
            pairs.append((same[0], same[-1]))
    return pairs


def _beta(family: Family) -> list[Finding]:
    findings = []
    for low, high in _beta_pairs(family):
        for name in ("same-size", "principle", "qccf"):
            pairs = family.paired((high, name), (low, name))
            if not pairs:
                continue
            e = estimate(b.energy_j[-1] / a.energy_j[-1] - 1.0 for b, a in pairs)
            verdict = within(e, STABLE) if name == "qccf" else positive(e)
            findings.append(Finding(name, e.shown("+.1f", 100, " %"), verdict, e))
    return findings


def _late_slowdown(family: Family) -> list[Finding]:
    """Three parts: accuracy gained in the last third, uploads lost more and more, and lost by large clients."""
    findings = []
    for setting in family.comparisons():
        mine = family.of(setting, "principle")
        if not mine:
            continue
        gains = [
            _last_third_gain(a) - _last_third_gain(b)
            for a, b in family.paired((setting, "principle"), (setting, "qccf"))
        ]
        gain = estimate(gains)
        findings.append(
            Finding(
                f"{setting.beta_label}: gain in the last third, against QCCF",
                gain.shown("+.1f", 100, " points"),
                negative(gain),
                gain,
            )
        )
        if not any(record.uploads["missed"].any() for record in mine):
            findings.append(Finding(f"{setting.beta_label}: lost uploads", "none is lost", "does not hold"))
            continue
        over_rounds = estimate(
            rank_correlation(r.rounds["round"].to_numpy(float), r.rounds["missed"].to_numpy(float)) for r in mine
        )
        over_sizes = estimate(
            rank_correlation(r.uploads["dataset_size"].to_numpy(float), r.uploads["missed"].to_numpy(float))
            for r in mine
        )
        for part, e in (("lost uploads ~ round", over_rounds), ("lost uploads ~ D", over_sizes)):
            findings.append(Finding(f"{setting.beta_label}: {part}", e.shown("+.2f"), positive(e), e))
    return findings


def _last_third_gain(record: Record) -> float:
    smooth = _smoothed(record.accuracy)
    return float(smooth[-1] - smooth[-max(1, len(smooth) // 3) - 1]) if len(smooth) > 3 else float("nan")


def _weights(family: Family) -> list[Finding]:
    settings = family.weights()
    if len(settings) < 3:
        return []
    findings = []
    measures: dict[str, Callable[[Record], float]] = {
        "energy ~ V": lambda r: float(r.energy_j[-1]),
        "accuracy ~ V": lambda r: r.final_accuracy(),
    }
    for name, of in measures.items():
        e = estimate(
            rank_correlation(np.array([s.energy_weight for s in settings]), np.array([of(record) for record in runs]))
            for runs in _by_seed(family, settings)
        )
        findings.append(Finding(name, e.shown("+.2f"), negative(e), e))
    return findings


def _by_seed(family: Family, settings: Sequence[Setting]) -> list[list[Record]]:
    """QCCF's runs at all these settings, for each seed that has them all."""
    columns = [{record.seed: record for record in family.of(setting, "qccf")} for setting in settings]
    return [[c[seed] for c in columns] for seed in sorted(set.intersection(*(set(c) for c in columns)))]


def _flat(family: Family) -> list[Finding]:
    settings = family.weights()
    knee = 10.0 if family.task == "cifar10" else 100.0
    by_weight = {s.energy_weight: s for s in settings}
    if knee not in by_weight or not settings or settings[0].energy_weight >= knee:
        return []
    findings = []
    least = settings[0]
    pairs = family.paired((by_weight[knee], "qccf"), (least, "qccf"))
    e = estimate(a.final_accuracy() - b.final_accuracy() for a, b in pairs)
    part = f"V = {knee:g} against {least.energy_weight:g}"
    findings.append(Finding(part, e.shown("+.1f", 100, " points"), within(e, FLAT), e))
    most = settings[-1]
    if most.energy_weight > knee:
        e = estimate(
            a.final_accuracy() - b.final_accuracy() for a, b in family.paired((most, "qccf"), (by_weight[knee], "qccf"))
        )
        part = f"V = {most.energy_weight:g} against {knee:g}, where it should fall"
        findings.append(Finding(part, e.shown("+.1f", 100, " points"), negative(e), e))
    return findings


def _bits_over_rounds(family: Family) -> list[Finding]:
    findings = []
    for setting in family.comparisons():
        for name in ("principle", "same-size", "qccf", "channel-allocate"):
            mine = family.of(setting, name)
            if not mine:
                continue
            if name != "channel-allocate" and all(np.nanstd(r.mean_bits) == 0.0 for r in mine):
                findings.append(Finding(f"{setting.beta_label}: {name}", "constant", "does not hold"))
                continue
            e = estimate(rank_correlation(r.rounds["round"].to_numpy(float), r.mean_bits) for r in mine)
            verdict = _unrelated(e) if name == "channel-allocate" else positive(e)
            findings.append(Finding(f"{setting.beta_label}: {name}", e.shown("+.2f"), verdict, e))
    return findings


def _bits_over_sizes(family: Family) -> list[Finding]:
    findings = []
    expected: dict[str, Callable[[Estimate], Verdict]] = {
        "channel-allocate": negative,
        "qccf": negative,
        "same-size": _unrelated,
        "principle": positive,
    }
    for setting in family.comparisons():
        for name, judged in expected.items():
            mine = family.of(setting, name)
            if mine:
                e = estimate(
                    rank_correlation(r.uploads["dataset_size"].to_numpy(float), r.uploads["num_bits"].to_numpy(float))
                    for r in mine
                )
                findings.append(Finding(f"{setting.beta_label}: {name}", e.shown("+.2f"), judged(e), e))
    return findings


def _unrelated(e: Estimate) -> Verdict:
    """No relation must be shown like any other: the whole interval is near 0. A wide one around 0 settles nothing."""
    if within(e, UNRELATED) == "holds":
        return "holds"
    if not e.known:
        return "not measurable"
    return "partly" if e.low <= 0.0 <= e.high else "does not hold"


def _final_bits(family: Family) -> list[Finding]:
    findings = []
    for setting in family.comparisons():
        for name in ("qccf", "same-size"):
            pairs = family.paired((setting, "principle"), (setting, name))
            if pairs:
                e = estimate(a.final_bits() - b.final_bits() for a, b in pairs)
                findings.append(
                    Finding(f"{setting.beta_label}: above {name}", e.shown("+.2f", 1.0, " bits"), positive(e), e)
                )
    return findings


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "fastest",
        "QCCF needs the fewest rounds to learn.",
        "Figs. 3, 4 (a), (c)",
        "",
        "policies",
        _fastest,
        f"Rounds until the mean of three evaluations reaches {TARGET:.0%} of the best policy's final accuracy "
        "(N + 1 if never). Holds if QCCF is surely ahead of every baseline; a tie with one is 'partly'.",
    ),
    Claim(
        "least-energy",
        "QCCF spends the least energy over all rounds.",
        "Figs. 3, 4 (b), (d)",
        "",
        "policies",
        _least_energy,
        "Accumulated energy after the last round. Holds if it is surely below every baseline's.",
    ),
    Claim(
        "least-energy-to-target",
        "QCCF spends the least energy to reach the same accuracy.",
        "Figs. 3, 4",
        "",
        "efficiency",
        _least_energy_to_target,
        "Energy spent when the target accuracy is reached; by the end for a run that never does, which flatters it.",
    ),
    Claim(
        "saves-principle",
        "QCCF takes 48.21 % less energy than principle.",
        "Section I",
        "48.21 %",
        "policies",
        _saving("principle", 0.4821),
        "Holds if the interval contains the paper's number in one setting, for it does not say in which; 'partly' if "
        "QCCF surely saves, but another amount.",
        one_is_enough=True,
    ),
    Claim(
        "saves-same-size",
        "QCCF takes 35.42 % less energy than same-size.",
        "Section I",
        "35.42 %",
        "policies",
        _saving("same-size", 0.3542),
        "Holds if the interval contains the paper's number in one setting, for it does not say in which; 'partly' if "
        "QCCF surely saves, but another amount.",
        one_is_enough=True,
    ),
    Claim(
        "beta",
        "With more uneven datasets (larger β) same-size and principle spend more, and QCCF the same.",
        "Figs. 3, 4 (b) against (d)",
        "",
        "policies",
        _beta,
        f"Change of energy from the lowest to the highest β, by seed. QCCF is stable within ±{STABLE:.0%}.",
    ),
    Claim(
        "late-slowdown",
        "Principle learns too slowly late in training, because clients with much data miss the deadline.",
        "Figs. 3, 4 (a), (c)",
        "",
        "lost",
        _late_slowdown,
        "Accuracy gained in the last third of the rounds against QCCF's; rank correlation of lost uploads with the "
        "round and with the dataset size.",
    ),
    Claim(
        "weights",
        "Both accuracy and energy fall as V grows.",
        "Fig. 2",
        "",
        "weights",
        _weights,
        "Rank correlations over the values of V, by seed.",
    ),
    Claim(
        "flat",
        "Accuracy is flat up to V = 100 on the first task and V = 10 on the second, and falls beyond.",
        "Fig. 2",
        "V = 100, 10",
        "weights",
        _flat,
        f"Difference of final accuracies by seed; flat is within ±{FLAT * 100:.0f} point.",
    ),
    Claim(
        "bits-rounds",
        "Bits rise with the rounds for principle, same-size and QCCF, and do not for channel-allocate.",
        "Fig. 5 (a)",
        "",
        "bits",
        _bits_over_rounds,
        f"Rank correlation of a round's mean bits with its number; 'no relation' is an interval within ±{UNRELATED:g}.",
    ),
    Claim(
        "bits-sizes",
        "Bits fall with the dataset size for channel-allocate and QCCF, do not depend on it for same-size, and rise "
        "with it for principle.",
        "Fig. 5 (b)",
        "",
        "bits",
        _bits_over_sizes,
        "Rank correlation of an upload's bits with its client's dataset size; 'no relation' as above.",
    ),
    Claim(
        "final-bits",
        "Principle ends with more bits than QCCF and same-size.",
        "Fig. 5 (a)",
        "",
        "bits",
        _final_bits,
        "Difference of mean bits in the last tenth of the rounds, by seed.",
    ),
)
