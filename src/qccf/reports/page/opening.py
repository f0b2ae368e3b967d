"""The first sentences of the page: what was run, what came out, and whether something is wrong."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from qccf.core.intervals import Estimate, estimate
from qccf.paper.families import Family, Setting
from qccf.paper.verdicts import ACCURACY
from qccf.reports.figures.builders import FEW_SEEDS
from qccf.reports.page.numbers import counted, energies_shown, listed, percent_shown
from qccf.reports.page.render import plural
from qccf.reports.page.results import total_energy_j
from qccf.rounds.run import Run, health_sentences

SAME_ENERGY = 0.001
"""Relative differences below this are told as such."""

MOST_RESULTS = 2
"""With more families, the table tells the results of the others."""


@dataclass(frozen=True)
class Manifest:
    """What a reproduction was asked to do, and what it could not do."""

    command: str = ""
    scale: str = ""
    not_run: tuple[tuple[str, str], ...] = ()
    """Tasks that were left out, with the reasons."""
    failed: tuple[tuple[str, str], ...] = ()
    """Runs that failed, with the errors."""
    unfinished: int = 0


@dataclass(frozen=True)
class _Kind:
    """The runs of one policy and codec in one setting."""

    label: str
    runs: list[Run]

    @property
    def name(self) -> str:
        """In a sentence: the policy, and the codec where there are several."""
        run = self.runs[0]
        return run.policy if self.label == run.policy else f"{run.policy} with codec {run.codec}"

    @property
    def energy_j(self) -> Estimate:
        return _told(estimate(total_energy_j(run) for run in self.runs))

    @property
    def accuracy(self) -> Estimate:
        return _told(estimate(run.final_accuracy() for run in self.runs))


def _told(e: Estimate) -> Estimate:
    """Without its interval where that comes from two seeds, which is wider than anything it could tell."""
    return Estimate(e.mean, math.nan, e.count) if e.count < FEW_SEEDS else e


def opening_sentences(families: Sequence[Family], remarks: Sequence[str]) -> list[str]:
    results = [result_sentence(family, named=len(families) > 1) for family in families[:MOST_RESULTS]]
    if len(families) > MOST_RESULTS:
        results.append("The table shows the other settings.")
    return [run_sentence(families), " ".join(results), state_sentence(families, remarks)]


def run_sentence(families: Sequence[Family]) -> str:
    """What was run: data, clients, channels, rounds, seeds, policies and codecs."""
    runs = [run for family in families for run in family.records]
    data = listed(dict.fromkeys(family.title.replace("(synthetic)", "(synthetic data)") for family in families))
    clients = counted((run.scenario.federation.num_clients for run in runs), "client")
    channels = counted((run.scenario.radio.num_channels for run in runs), "channel")
    rounds = counted((run.num_rounds for run in runs), "round")
    seeds = plural(len({run.seed for run in runs}), "seed")
    policies = list(dict.fromkeys(run.policy for run in runs))
    codecs = list(dict.fromkeys(run.codec for run in runs))
    return (
        f"{plural(len(runs), 'training run')} on {data}: {clients} on {channels}, {rounds}, {seeds}, "
        f"{'policy' if len(policies) == 1 else 'policies'} {listed(policies)}, "
        f"codec{'s' * (len(codecs) > 1)} {listed(codecs)}."
    )


def result_sentence(family: Family, *, named: bool) -> str:
    """Who spends the least energy in the main setting, at which accuracy, and against whom."""
    setting = family.main_setting()
    kinds = [_Kind(label, family.of(setting, label)) for label in family.labels(setting)]
    kinds.sort(key=_by_energy)
    several = len(family.comparisons()) > 1
    where = _where(family, setting, named=named, several=several)
    best, *others = kinds
    same = [kind for kind in others if _energies(kind) == _energies(best)][: len(others) - 1]
    others = [kind for kind in others if kind not in same]
    compared = [best, *others[:1]]
    top = max(kinds, key=_reached)
    more_accurate = top is not best and top.accuracy.mean - best.accuracy.mean > ACCURACY.margin
    energies = energies_shown([kind.energy_j for kind in (*compared, top)])
    if not others:
        return f"{where}{best.name} spends {energies[0]} and reaches {_accuracy(best)}."
    other = others[0]
    spend = f"{listed([best.name, *(kind.name for kind in same)])} {'spend' if same else 'spends'}"
    sentence = (
        f"{where}{spend} the least energy, {energies[0]} at {_accuracy(best)}"
        f"{_saving(best, other)} {other.name} ({energies[1]} at {_accuracy(other)})"
    )
    if more_accurate:
        sentence += (
            f"; {top.name} is the most accurate"
            if top is other
            else f"; {top.name} is the most accurate, {percent_shown(top.accuracy)} for {energies[-1]}"
        )
    return f"{sentence}."


def _energies(kind: _Kind) -> dict[int, float]:
    """The energy of each seed, without rounding errors."""
    return {run.seed: float(f"{total_energy_j(run):.9g}") for run in kind.runs}


def _by_energy(kind: _Kind) -> tuple[float, float]:
    """The least energy first; of equal energies, up to rounding, the better accuracy."""
    return float(f"{kind.energy_j.mean:.9g}"), -_reached(kind)


def _reached(kind: _Kind) -> float:
    return kind.accuracy.mean if kind.accuracy.count else -1.0


def _where(family: Family, setting: Setting, *, named: bool, several: bool) -> str:
    title = family.title if named else ""
    label = ", ".join([title] * bool(title) + [setting.beta_label] * several)
    return f"{'On' if title else 'With'} {label}, " if label else ""


def _accuracy(kind: _Kind) -> str:
    return f"{percent_shown(kind.accuracy)} accuracy" if kind.accuracy.count else "an accuracy that was not evaluated"


def _saving(best: _Kind, other: _Kind) -> str:
    """By how much, on the same seeds: the same cell, fading and data."""
    theirs = {run.seed: total_energy_j(run) for run in other.runs}
    saved = estimate(1.0 - total_energy_j(run) / theirs[run.seed] for run in best.runs if theirs.get(run.seed))
    if not saved.count:
        return ", less than"
    if _energies(best) == _energies(other):
        return ", the same as"
    if abs(saved.mean) < SAME_ENERGY:
        return f", within {SAME_ENERGY:.1%} of"
    if saved.known and saved.low <= 0.0:
        return f", but {saved.count} seeds do not settle the difference of {percent_shown(saved)} to"
    return f": {percent_shown(saved)} less than"


def state_sentence(families: Sequence[Family], remarks: Sequence[str]) -> str:
    """That all is well, or how much is not."""
    if remarks:
        return "One thing needs attention." if len(remarks) == 1 else f"{len(remarks)} things need attention."
    checked = all("health" in run.summary for family in families for run in family.records)
    return "All runs finished" + (", and their health checks found nothing wrong." if checked else ".")


def all_remarks(families: Sequence[Family], manifest: Manifest, *, unfinished: int, shown: bool) -> list[str]:
    """What a reader must know before the numbers, one sentence each: what is missing, and what went wrong.

    `unfinished` runs are `shown` only where no run is finished.
    """
    remarks = [f"Task {task} was not run: {reason}." for task, reason in manifest.not_run]
    remarks += [f"A run failed, {label}: {sentence}" for label, sentence in manifest.failed]
    if unfinished:
        fate = "shown up to their last round, and not judged" if shown else "left out"
        remarks.append(f"Unfinished runs: {unfinished}, {fate}.")
    if manifest.unfinished:
        remarks.append(f"Of the plan, {manifest.unfinished} runs or studies are not finished yet.")
    return remarks + [sentence for family in families for sentence in _health(family, named=len(families) > 1)]


def _health(family: Family, *, named: bool) -> list[str]:
    """What is wrong with the decisions of the runs, by setting; nothing where all is well."""
    settings = family.settings()
    found = []
    for setting in settings:
        runs = [run for label in family.labels(setting) for run in family.of(setting, label)]
        title = f"{family.setting_title(setting)}: " if named or len(settings) > 1 else ""
        found += [title + sentence for sentence in health_sentences(runs)]
    return found
