"""Rules that turn numbers into verdicts. They were fixed before the runs and favour no side.

Each number is a mean over seeds; `margin` is a change that is too small to matter. A number is settled by tests that
are significant at 5 % after Holm's method has allowed for all tests that rest on the same cause. With fewer than two
seeds there is no test. The page shows `RULES`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from qccf.core.intervals import Estimate, holm

Answer = Literal["holds", "holds in part", "tie", "refuted", "not settled", "not measurable"]
"""The verdict on a number, on a part of a claim, and on a claim."""
Kind = Literal["direction", "equivalence", "magnitude"]
SIGNIFICANCE = 0.05

RULES: dict[str, str] = {
    "direction": "The number is above (or below) 0. Tie if two one-sided tests place it within ±margin; else holds if "
    "it differs from 0 on the claim's side, and refuted if it does on the other.",
    "equivalence": "The number is 0. Holds if two one-sided tests place it within ±margin, refuted if it is beyond the "
    "margin.",
    "magnitude": "The number is the paper's. Holds if its direction does and two one-sided tests place it within "
    "±margin of the paper's number; holds in part if only the direction does.",
    "ordering": "First among several. Refuted if a rival is ahead; holds if the direction holds against every rival; "
    "in part if against some; tie if all rivals tie.",
    "not settled, not measurable": "Not settled: no test is significant, so the data agree with both answers. Not "
    "measurable: there is no interval, or the run without quantization learned less than was required before the runs.",
    "a claim": "Holds if all its parts hold; in part if some do. If none does: refuted if a part is refuted, tie if "
    "all measured parts tie, else not settled.",
    "several tests": "Numbers that rest on one cause are one group. Holm's method adjusts all tests of a group on one "
    "dataset together, so that 5 % is the chance of a single false answer in the group.",
}

SIGNS: dict[Answer, str] = {
    "holds": "✓", "holds in part": "≈", "tie": "=", "refuted": "✗", "not settled": "?", "not measurable": "–",
}  # fmt: skip


@dataclass(frozen=True)
class Quantity:
    """A measured quantity: its margin (a change too small to matter) and its format."""

    name: str
    margin: float
    form: str
    scale: float = 1.0
    unit: str = ""
    grain: float = 0.0
    """The step in which it is counted: equal counts on a few seeds do not mean that there is no spread."""

    def shown(self, e: Estimate) -> str:
        return e.shown(self.form, self.scale, self.unit)

    def margin_shown(self) -> str:
        return f"{self.name} ±{self.margin * self.scale:g}{self.unit}"


ENERGY = Quantity("energy", 0.05, "+.1f", 100.0, " %")
ACCURACY = Quantity("accuracy", 0.01, "+.1f", 100.0, " points")
CORRELATION = Quantity("rank correlation", 0.2, "+.2f")
ROUNDS = Quantity("rounds", 1.0, "+.1f", unit=" rounds", grain=1.0)
BITS = Quantity("bits", 0.5, "+.2f", unit=" bits")
QUANTITIES = (ENERGY, ACCURACY, CORRELATION, ROUNDS, BITS)


@dataclass(frozen=True)
class Rule:
    """What a claim says of one number. `sign` is its side of 0 for a direction, `papers` the paper's number."""

    kind: Kind
    sign: int = 1
    papers: float = 0.0


UP, DOWN, ZERO = Rule("direction", 1), Rule("direction", -1), Rule("equivalence")

Test = Literal["unequal", "within", "beyond", "as stated"]


def chances(e: Estimate, rule: Rule, margin: float) -> dict[Test, float]:
    """The p-values of the tests that a rule needs; none without an interval."""
    if not e.known:
        return {}
    within = e.chance_within(0.0, margin)
    if rule.kind == "equivalence":
        return {"within": within, "beyond": e.chance_beyond(0.0, margin)}
    found: dict[Test, float] = {"within": within, "unequal": e.chance_unequal(0.0)}
    return found | {"as stated": e.chance_within(rule.papers, margin)} if rule.kind == "magnitude" else found


def answer(e: Estimate, rule: Rule, adjusted: Mapping[Test, float]) -> Answer:
    """The verdict on a number from its adjusted p-values."""
    if not e.known:
        return "not measurable"
    settled = {test for test, chance in adjusted.items() if chance < SIGNIFICANCE}
    if rule.kind == "equivalence":
        return "holds" if "within" in settled else "refuted" if "beyond" in settled else "not settled"
    if "within" in settled:
        return "tie"
    if "unequal" not in settled:
        return "not settled"
    if rule.sign * e.centre < 0.0:
        return "refuted"
    return "holds in part" if rule.kind == "magnitude" and "as stated" not in settled else "holds"


def adjusted_chances(found: Collection[Mapping[Test, float]]) -> list[dict[Test, float]]:
    """The p-values of several numbers, adjusted together by Holm's method."""
    tests = [(index, test) for index, one in enumerate(found) for test in one]
    flat = holm([one[test] for one in found for test in one])
    adjusted: list[dict[Test, float]] = [{} for _ in found]
    for (index, test), chance in zip(tests, flat, strict=True):
        adjusted[index][test] = chance
    return adjusted


def ordering(answers: Collection[Answer]) -> Answer:
    """Is QCCF ahead of every rival, given the answer for each?"""
    return "refuted" if "refuted" in answers else combined(answers)


def combined(answers: Collection[Answer]) -> Answer:
    """The verdict on a claim, from the answers on its parts."""
    if answers and all(one == "holds" for one in answers):
        return "holds"
    if "holds" in answers or "holds in part" in answers:
        return "holds in part"
    if "refuted" in answers:
        return "refuted"
    if "not settled" in answers:
        return "not settled"
    return "tie" if "tie" in answers else "not measurable"
