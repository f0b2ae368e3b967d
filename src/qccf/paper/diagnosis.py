"""Where QCCF's advantage does not appear: what the runs show of it, and what somebody has found out about the cause.

The numbers are ours to give. The cause (a fault of ours, a baseline too strong or too weak, the claim) takes thought:
it is written by hand in `diagnosis.md` beside the runs. Each of its sections names the claim, the dataset and the
verdict that it explains, so that the page can tell when the runs have moved on:

    ## least-energy, emnist: does not hold
    **The claim.** Principle stays at three bits …
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from qccf.core.intervals import estimate
from qccf.paper.claims import Judged
from qccf.paper.families import Family, Setting
from qccf.paper.verdicts import ACCURACY, ENERGY
from qccf.rounds.run import Run

NOTES = "diagnosis.md"
ADVANTAGES = ("fastest", "least-energy", "least-energy-to-target", "saves-principle", "saves-same-size")


@dataclass(frozen=True)
class Note:
    """What was written about one claim on one dataset, and the verdict that it was written for."""

    verdict: str
    text: str


def read_notes(text: str) -> dict[tuple[str, str], Note]:
    """The sections of a diagnosis by claim and dataset; other sections and what stands before them are not ours."""
    notes = {}
    for section in re.split(r"(?m)^## ", text)[1:]:
        heading, _, body = section.partition("\n")
        if match := re.fullmatch(r"([\w-]+), ([\w-]+): ([a-z ]+)", heading.strip()):
            notes[match[1], match[2]] = Note(match[3], body.strip())
    return notes


def lacking(judged: Sequence[Judged]) -> list[Judged]:
    """The claims of an advantage that the runs do not bear out in full, but speak of."""
    return [one for one in judged if one.claim.key in ADVANTAGES and one.verdict in ("partly", "does not hold")]


def unsettled(judged: Sequence[Judged]) -> list[Judged]:
    """The claims of an advantage of which no part is settled."""
    return [one for one in judged if one.claim.key in ADVANTAGES and one.verdict == "not measurable"]


def evidence(one: Judged) -> list[str]:
    """For each baseline that QCCF is not ahead of: what it does otherwise, in numbers."""
    return [
        f"{finding.setting.beta_label}, {rival}: {_compared(one.family, finding.setting, rival)}"
        for finding in one.findings
        if finding.setting is not None
        for rival in finding.rivals
    ]


def _compared(family: Family, setting: Setting, rival: str) -> str:
    pairs = family.paired((setting, rival), (setting, "qccf"))
    more = estimate(float(theirs.energy_j[-1] / ours.energy_j[-1] - 1.0) for theirs, ours in pairs)
    better = estimate(theirs.final_accuracy() - ours.final_accuracy() for theirs, ours in pairs)
    runs = {name: family.of(setting, name) for name in (rival, "qccf")}
    bits, computing, lost = (
        [estimate(of(record) for record in mine).mean for mine in runs.values()]
        for of in (Run.mean_upload_bits, Run.computing_share, Run.missed_share)
    )
    return (
        f"energy {ENERGY.shown(more)}, final accuracy {ACCURACY.shown(better)} against QCCF; {bits[0]:.2f} bits "
        f"(QCCF {bits[1]:.2f}), {computing[0]:.0%} of its energy for computing (QCCF {computing[1]:.0%}), "
        f"{lost[0]:.1%} of its uploads late (QCCF {lost[1]:.1%})"
    )
