"""Four rules that turn an interval into a verdict. They were fixed before the runs and favour no side.

Each number is a mean over seeds with a 95 % interval; `margin` is a change that is too small to matter. An interval
that contains both answers settles nothing, whatever its mean is. With fewer than two seeds there is no interval.
The page shows `RULES`.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from qccf.core.intervals import Estimate

Verdict = Literal["holds", "partly", "does not hold", "not measurable"]
"""The verdict on a claim."""
Answer = Literal["holds", "partly", "does not hold", "not settled", "not measurable"]
"""The verdict on a part. `not settled`: its interval contains both answers; `not measurable`: it has no interval."""

RULES: dict[str, str] = {
    "direction": "The number is above (or below) 0. Holds if the whole interval is on the claim's side and not "
    "entirely within ±margin. Does not hold if the whole interval is on the other side, or entirely within ±margin: "
    "such a difference does not matter.",
    "equivalence": "The number is 0. Holds if the whole interval is within ±margin, does not hold if all of it is "
    "outside.",
    "magnitude": "The number is the paper's. Holds if its direction holds and the whole interval is within ±margin of "
    "the paper's number; partly if only the direction holds.",
    "ordering": "First among several. Holds if the direction holds against every rival, does not hold if it is refuted "
    "against one, partly if it holds against some and the others are not settled.",
    "a claim": "Holds if all its parts hold, partly if some hold, does not hold if a part is refuted and none holds. "
    "If no part is settled, these runs cannot answer: not measurable.",
}

SIGNS: dict[Answer, str] = {
    "holds": "✓", "partly": "≈", "does not hold": "✗", "not settled": "?", "not measurable": "–",
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


def direction(e: Estimate, sign: int, margin: float) -> Answer:
    """Is the number above 0 (`sign` 1) or below 0 (-1)?"""
    if not e.known:
        return "not measurable"
    low, high = sorted((sign * e.low, sign * e.high))
    if high < 0.0 or _inside(e, margin):
        return "does not hold"
    return "holds" if low > 0.0 else "not settled"


def equivalence(e: Estimate, margin: float) -> Answer:
    """Is the number 0, up to the margin?"""
    if not e.known:
        return "not measurable"
    if _inside(e, margin):
        return "holds"
    return "does not hold" if e.low >= margin or e.high <= -margin else "not settled"


def magnitude(e: Estimate, papers: float, margin: float) -> Answer:
    """Is it the paper's number, which is above 0?"""
    answer = direction(e, 1, margin)
    if answer == "holds" and equivalence(Estimate(e.mean - papers, e.half, e.count), margin) != "holds":
        return "partly"
    return answer


def ordering(answers: Collection[Answer]) -> Answer:
    """Is QCCF ahead of every rival, given the answer for each?"""
    if "does not hold" in answers:
        return "does not hold"
    if "holds" in answers:
        return "holds" if all(answer == "holds" for answer in answers) else "partly"
    return "not settled" if "not settled" in answers else "not measurable"


def combined(answers: Collection[Answer]) -> Verdict:
    """The verdict on a claim, from the answers on its parts."""
    if answers and all(answer == "holds" for answer in answers):
        return "holds"
    if "holds" in answers or "partly" in answers:
        return "partly"
    return "does not hold" if "does not hold" in answers else "not measurable"


def _inside(e: Estimate, margin: float) -> bool:
    return e.low > -margin and e.high < margin
