"""Whether runs can judge the paper's claims, and the claims section of the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qccf.paper.claims import Judged, judge
from qccf.paper.diagnosis import Note, evidence, not_confirmed, read_notes, unsettled
from qccf.paper.families import Family, fixed_settings
from qccf.reports.page.forest import Axis, forest, measurable
from qccf.reports.page.numbers import listed
from qccf.settings.loading import load_scenario
from qccf.settings.schema import PAPERS_CODEC

STATED = (
    "federation.num_clients", "cell.radius_m", "radio.num_channels", "radio.transmit_power_w",
    "radio.noise_dbm_per_hz", "radio.rician_k", "device.deadline_s", "device.energy_coefficient",
    "device.frequency_min_hz", "device.frequency_max_hz", "learning.model", "learning.local_updates",
    "learning.local_epochs",
)  # fmt: skip
"""Settings that the paper states and that no scale of a reproduction changes. Paper: Table I."""


@dataclass(frozen=True)
class Unconfirmed:
    """A claimed advantage that does not hold in full: the numbers, and the cause if somebody wrote it down."""

    judged: Judged
    evidence: list[str]
    note: Note | None


@dataclass(frozen=True)
class ClaimsSection:
    """The verdicts of one family. `silence` says why there are none."""

    family: Family
    judged: list[Judged]
    axes: list[Axis]
    without_number: list[Judged]
    unconfirmed: list[Unconfirmed]
    unsettled: list[Judged]
    silence: str = ""

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for run in self.family.records})


def claims_section(family: Family, notes: str, *, reproduced: bool) -> ClaimsSection:
    """The claims as these runs judge them. The runs of a reproduction are judged with any settings of the user's."""
    judged = judge(family)
    silence = why_silent(family, judged, reproduced=reproduced)
    if silence:
        return ClaimsSection(family, [], [], [], [], [], silence)
    written = read_notes(notes)
    unconfirmed = [
        Unconfirmed(one, evidence(one), written.get((one.claim.key, one.family.key))) for one in not_confirmed(judged)
    ]
    without = [one for one in judged if not measurable(one)]
    return ClaimsSection(family, judged, forest(judged), without, unconfirmed, unsettled(judged))


def why_silent(family: Family, judged: Sequence[Judged], *, reproduced: bool) -> str:
    """Why these runs cannot speak of the paper's claims; empty where they can."""
    if not family.papers_form:
        return "they use the controller's default form, and the claims are about the paper's (control.form = \"paper\")"
    if all(run.codec != PAPERS_CODEC for run in family.records):
        return f'no run uses the paper\'s codec (codec.name = "{PAPERS_CODEC}")'
    changed = {} if reproduced else changed_settings(family)
    if changed:
        return f"their settings are not the paper's ({listed(f'{key} = {value}' for key, value in changed.items())})"
    if not any(run.finished for run in family.records):
        return "no run has finished"
    if not any(measurable(one) for one in judged):
        seeds = len({run.seed for run in family.records})
        if seeds < 2:
            return "one seed gives no interval, and every claim needs one"
        return "no two of these runs are a pair that a claim compares"
    return ""


def changed_settings(family: Family) -> dict[str, Any]:
    """The settings that the paper states and that have another value here."""
    ours, papers = (fixed_settings(scenario) for scenario in (family.scenario, load_scenario(family.task)))
    return {key: ours[key] for key in STATED if ours[key] != papers[key]}
