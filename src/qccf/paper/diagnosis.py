"""Why QCCF's advantage does not appear: the numbers of the runs, and the cause as somebody wrote it down.

The numbers are computed. The cause (our own error, a baseline too strong or too weak, the claim itself) is written by
hand in `diagnosis.md` beside the runs. Each of its sections names the claim, the dataset and the verdict that it
explains, so that the page can warn when the verdict has changed:

    ## least-energy, emnist: refuted
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
    """The cause written down for one claim on one dataset, and the verdict at that time."""

    verdict: str
    text: str


def read_notes(text: str) -> dict[tuple[str, str], Note]:
    """The sections of a diagnosis by claim and dataset; other text is ignored."""
    notes = {}
    for section in re.split(r"(?m)^## ", text)[1:]:
        heading, _, body = section.partition("\n")
        if match := re.fullmatch(r"([\w-]+), ([\w-]+): ([a-z ]+)", heading.strip()):
            notes[match[1], match[2]] = Note(match[3], body.strip())
    return notes


def not_confirmed(judged: Sequence[Judged]) -> list[Judged]:
    """The claimed advantages that hold only in part or not at all."""
    return [one for one in judged if one.claim.key in ADVANTAGES and one.verdict in ("holds in part", "tie", "refuted")]


def unsettled(judged: Sequence[Judged]) -> list[Judged]:
    """The claimed advantages of which no part is settled."""
    return [one for one in judged if one.claim.key in ADVANTAGES and one.verdict in ("not settled", "not measurable")]


def evidence(one: Judged) -> list[str]:
    """The numbers of each baseline that QCCF does not beat, one sentence per baseline."""
    return [
        f"{finding.setting.beta_label}, {rival}: {_compared(one.family, finding.setting, rival)}"
        for finding in one.findings
        if finding.setting is not None
        for rival in finding.rivals
    ]


def _compared(family: Family, setting: Setting, rival: str) -> str:
    pairs = family.paired((setting, rival), (setting, "qccf"))
    energy = estimate(float(theirs.energy_j[-1] / ours.energy_j[-1] - 1.0) for theirs, ours in pairs)
    accuracy = estimate(theirs.final_accuracy() - ours.final_accuracy() for theirs, ours in pairs)
    runs = {name: family.of(setting, name) for name in (rival, "qccf")}
    bits, computing, lost = (
        [estimate(of(run) for run in mine).mean for mine in runs.values()]
        for of in (Run.mean_upload_bits, Run.computing_share, Run.missed_share)
    )
    return (
        f"energy {ENERGY.shown(energy)}, final accuracy {ACCURACY.shown(accuracy)} against QCCF; {bits[0]:.2f} bits "
        f"(QCCF {bits[1]:.2f}), {computing[0]:.0%} of its energy for computing (QCCF {computing[1]:.0%}), "
        f"{lost[0]:.1%} of its uploads late (QCCF {lost[1]:.1%})"
    )
