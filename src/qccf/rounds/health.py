"""What is wrong with a run's decisions: one sentence per finding, with the number, its limit and a remedy.

A healthy run has no findings. `docs/health.md` lists them all.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from qccf.control.scale_free_form import TOLERATED_NOISE
from qccf.core.contracts import BoolArray, FloatArray, IntArray
from qccf.core.steps import usual_steps
from qccf.rounds.packed_table import Columns
from qccf.settings.schema import DEFAULT_CODEC, Scenario

LEAST_ABLE_SHARE = 0.5
"""Only a client that could upload in this share of the rounds counts as left out."""

LEAST_FAIR_SHARE = 0.5
"""A client is left behind if it took part in less than this share of its turns."""

TURNS_TO_JUDGE = 5.0
"""A client with fewer turns than this in the whole run may miss all of them by chance; with twice as many, half."""

MOST_ERROR_RATIO = 1.1
"""The mean error of the aggregates may exceed its budget by this factor."""

MOST_EARLY_ERROR_RATIO = 2.0
"""The same in a run of fewer than `ROUNDS_TO_JUDGE` rounds, in which the price of error has not settled."""

ROUNDS_TO_JUDGE = 20
"""Queues and bits are judged only in runs of at least this many rounds."""

DIVERGING_GROWTH = 1.5
"""A queue diverges if its mean in the last quarter of the run is at least this many times that in the first …"""

DIVERGING_PACE = 0.8
"""… and its growth between the last two quarters is at least this share of that between the first two.

Linear growth has 1; a queue that grows like a square root has 0.53 and settles in effect.
"""

OSCILLATION_BITS = 1.0
"""Bits oscillate if they jump by at least this many, up and down in turn, in most rounds of the last half …"""

OSCILLATION_CORRELATION = -0.5
"""… and the correlation of the bits of successive rounds is below this. Fading alone has 0, a strict alternation -1."""

MOST_NOISE = 10.0
"""Aggregates may err by this many times what learning tolerates."""

MOST_FORECAST_ERROR = 0.2
"""The median relative difference of the size of an upload from its forecast."""

MOST_LOST_SHARE = 0.01
"""The share of uploads that may be lost."""

ESTIMATES = ("estimated_rate_bps", "rate_bps")
MOST_BACKOFF_DB = 20.0
"""A larger back-off is no remedy: it would leave hardly any rate."""

MOST_LOSS_GROWTH = 2.0
"""Clients that learn too fast report a loss that has grown by more than this since the first round."""

NAMED_CLIENTS = 5
"""A sentence names at most this many clients."""


Kind = Literal[
    "empty-rounds",
    "never-scheduled",
    "left-behind",
    "never-able",
    "empty-batteries",
    "error-budget",
    "diverging-participation-queue",
    "diverging-quantization-queue",
    "diverging-error-price",
    "bits-at-one",
    "bits-at-most",
    "oscillating-bits",
    "noisy-aggregates",
    "forecast-too-small",
    "forecast-wrong",
    "optimistic-estimates",
    "lost-uploads",
    "clipped-updates",
    "nothing-kept",
    "diverging-training",
]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: its kind, and a sentence for the user."""

    kind: Kind
    message: str


class Service(NamedTuple):
    """How a run served its error budget and its clients; None where there is no budget or nobody could upload."""

    error_ratio: float | None
    participation_ratio: float | None
    jain: float | None
    empty_rounds: int | None


@dataclass(frozen=True)
class _Tables:
    """The tables of a run; columns of clients as arrays [round, client]."""

    scenario: Scenario
    rounds: Columns
    clients: Columns

    @property
    def num_rounds(self) -> int:
        return len(self.rounds["round"])

    def by_round(self, name: str) -> IntArray | FloatArray | BoolArray:
        column: IntArray | FloatArray | BoolArray = self.clients[name].reshape(self.num_rounds, -1)
        return column

    @cached_property
    def on(self) -> BoolArray:
        return np.asarray(self.by_round("participated"), dtype=bool)

    @cached_property
    def able(self) -> BoolArray:
        return np.asarray(self.by_round("able"), dtype=bool)

    @cached_property
    def turns(self) -> FloatArray:
        """Turns of each client over the whole run."""
        return np.asarray(self.by_round("turn"), dtype=float).sum(axis=0)

    @cached_property
    def empty(self) -> BoolArray:
        """Rounds without a participant although a client could upload."""
        return np.asarray(~self.on.any(axis=1) & self.able.any(axis=1))

    @cached_property
    def error_ratios(self) -> FloatArray:
        """Error over budget of each round; NaN where there is no budget or nothing arrived."""
        errors, budgets = self.rounds["aggregate_error"], self.rounds["error_budget"]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(errors == 0.0, 0.0, errors / budgets)
        return np.where(np.isfinite(budgets), ratios, np.nan)

    def error_ratio(self, part: slice = slice(None)) -> float | None:
        """The mean error over budget in these rounds; None where there is no budget.

        In the paper's form λ2 moves by the quantization term minus ε2, so its growth tells the mean of the term.
        """
        budget = self.scenario.control.paper.quantization_budget
        queue = self.rounds["quantization_queue"][part]
        if self.controlled and not self.scale_free and budget > 0.0 and len(queue) > 1 and (queue > 0.0).all():
            return max(0.0, 1.0 + float(queue[-1] - queue[0]) / ((len(queue) - 1) * budget))
        ratios = self.error_ratios[part]
        ratios = ratios[~np.isnan(ratios)]
        return float(ratios.mean()) if len(ratios) else None

    @property
    def most_error_ratio(self) -> float:
        return MOST_ERROR_RATIO if self.num_rounds >= ROUNDS_TO_JUDGE else MOST_EARLY_ERROR_RATIO

    def exceeds_budget(self, part: slice = slice(None)) -> float:
        """The mean error over budget in these rounds if it is above its limit, else 0."""
        ratio = self.error_ratio(part)
        return ratio if ratio is not None and ratio > self.most_error_ratio else 0.0

    @property
    def last_half(self) -> slice:
        return slice(self.num_rounds // 2, None)

    @property
    def controlled(self) -> bool:
        """Whether the policy is one that the section `control` configures."""
        return self.scenario.policy.name in ("qccf", "same-size")

    @property
    def scale_free(self) -> bool:
        return self.controlled and self.scenario.control.form == "scale-free"

    @property
    def share(self) -> float:
        """The share of its turns that a client is to have."""
        return float(self.scenario.control.share) if self.scale_free else 1.0

    def remedy(self, scale_free: str) -> str:
        """The remedy that the default form needs; other policies and the paper's form have that form as theirs."""
        if self.scale_free:
            return scale_free
        return 'set control.form = "scale-free"' if self.controlled else 'use policy.name = "qccf"'

    @property
    def larger_budget(self) -> str:
        """What lets the error budget be met."""
        control = self.scenario.control
        if self.scale_free:
            knobs = f"control.slack = {control.slack:g} or control.energy_weight = {control.energy_weight:g}"
            return f"raise {knobs}, device.deadline_s or radio.bandwidth_hz"
        if self.controlled:
            budget = control.paper.quantization_budget
            return f"{self.remedy('')}, or raise control.paper.quantization_budget = {budget:g}"
        return f"{self.remedy('')}, or raise device.deadline_s or radio.bandwidth_hz"


def is_recorded(rounds: Columns, clients: Columns) -> bool:
    """Whether the tables have the columns that health needs; those of older versions have not."""
    needed = {"able", "turn", "most_bits"} <= set(clients)
    return needed and {"aggregate_error", "error_budget", "error_price"} <= set(rounds)


def service(rounds: Columns, clients: Columns, scenario: Scenario) -> Service:
    """Error and participation as ratios to what was due, Jain's index of the clients' turns, and empty rounds."""
    if not is_recorded(rounds, clients):
        return Service(None, None, None, None)
    tables = _Tables(scenario, rounds, clients)
    ratio, turns = tables.error_ratio(), tables.turns
    in_round = np.asarray(tables.by_round("turn"), dtype=float).sum(axis=1)
    due = float(np.maximum(tables.share * in_round, 1.0)[in_round > 0.0].sum())
    return Service(
        error_ratio=ratio if ratio is None or np.isfinite(ratio) else None,
        participation_ratio=float(tables.on.sum() / due) if due else None,
        jain=jain_index(tables.on.sum(axis=0)[turns > 0.0] / turns[turns > 0.0]),
        empty_rounds=int(tables.empty.sum()),
    )


def jain_index(shares: FloatArray) -> float | None:
    """(Σx)²/(n·Σx²): 1 if all are equal, 1/n if one has everything; None if nobody has anything."""
    squares = float(np.square(shares).sum())
    return float(shares.sum()) ** 2 / (len(shares) * squares) if squares else None


def health(rounds: Columns, clients: Columns, scenario: Scenario) -> list[Finding]:
    """The findings of a run, in the order of `docs/health.md`; none where all is well."""
    if not len(rounds.get("round", ())) or not is_recorded(rounds, clients):
        return []
    tables = _Tables(scenario, rounds, clients)
    found = (check(tables) for check in CHECKS)
    return [finding for findings in found for finding in findings]


def _empty_rounds(tables: _Tables) -> Iterable[Finding]:
    if count := int(tables.empty.sum()):
        remedy = tables.remedy("raise device.deadline_s or radio.bandwidth_hz")
        yield Finding(
            "empty-rounds",
            f"{_of(count, tables.num_rounds, 'round')} had no participant although a client could upload, and none "
            f"should be empty: {remedy}.",
        )


def _left_out(tables: _Tables) -> Iterable[Finding]:
    """Clients that took part never, or in less than half of their turns."""
    turns, taken = tables.share * tables.turns, tables.on.sum(axis=0)
    due = (tables.able.mean(axis=0) >= LEAST_ABLE_SHARE) & (turns >= TURNS_TO_JUDGE)
    remedy = tables.remedy("raise device.deadline_s or radio.bandwidth_hz, so that more channels serve them")
    never = np.flatnonzero(due & (taken == 0))
    if len(never):
        yield Finding(
            "never-scheduled",
            f"{_clients(never, len(turns))} never took part, although {_each(never)} could upload in at least "
            f"{tables.able[:, never].mean(axis=0).min():.0%} of the rounds and had {turns[never].min():.0f} turns or "
            f"more: {remedy}.",
        )
    behind = np.flatnonzero(due & (turns >= 2.0 * TURNS_TO_JUDGE) & (taken > 0) & (taken < LEAST_FAIR_SHARE * turns))
    if len(behind):
        yield Finding(
            "left-behind",
            f"{_clients(behind, len(turns))} took part in {(taken / np.maximum(turns, 1.0))[behind].min():.0%} of "
            f"{_its(behind)} turns at the least, below {LEAST_FAIR_SHARE:.0%}: {remedy}.",
        )


def _never_able(tables: _Tables) -> Iterable[Finding]:
    arrived = np.asarray(tables.by_round("arrived"), dtype=bool)
    unable = np.flatnonzero(~tables.able.any(axis=0) & ~arrived.any(axis=0))
    if len(unable):
        backoff_db = tables.scenario.radio.backoff_db
        backoff = f"radio.backoff_db = {backoff_db:g}, " if backoff_db else ""
        papers = tables.scenario.devices.is_papers
        lower = "device.cycles_per_sample or cell.radius_m" if papers else "cell.radius_m"
        others = "" if papers else ", or give them fewer samples or faster devices"
        yield Finding(
            "never-able",
            f"{_clients(unable, arrived.shape[1])} could upload in none of the {tables.num_rounds} rounds within "
            f"device.deadline_s = {tables.scenario.device.deadline_s:g}: raise it, radio.bandwidth_hz or "
            f"radio.gain_db, or lower {backoff}{lower}{others}.",
        )


def _empty_batteries(tables: _Tables) -> Iterable[Finding]:
    """Clients whose batteries ran out. Without batteries there is no such column."""
    if "battery_j" not in tables.clients:
        return
    empty = np.asarray(tables.by_round("battery_j"), dtype=float) <= 0.0
    out = np.flatnonzero(empty[-1])
    if len(out):
        first = int(empty.any(axis=1).argmax())
        weight = tables.scenario.control.battery_weight
        spared = f"raise control.battery_weight = {weight:g} where channels are scarce, " if tables.scale_free else ""
        yield Finding(
            "empty-batteries",
            f"{_clients(out, empty.shape[1])} ran out of battery, the first in round {first}, and took no part from "
            f"then on: {spared}lower federation.rounds, learning.local_epochs or the samples per client, or recharge.",
        )


def _error_budget(tables: _Tables) -> Iterable[Finding]:
    if ratio := tables.exceeds_budget():
        lost = float(_lost(tables).sum() / max(tables.on.sum(), 1))
        remedy = tables.larger_budget
        if lost > MOST_LOST_SHARE:
            remedy = f"{lost:.0%} of the uploads were lost, so that fewer errors average out; mend that first"
        yield Finding(
            "error-budget",
            f"the error of the aggregates was {ratio:.3g} times its budget on average, above "
            f"{tables.most_error_ratio:g}: {remedy}.",
        )


def _queues(tables: _Tables) -> Iterable[Finding]:
    """Queues that diverge. A price of error that grows while the budget is met has not settled yet."""
    fairness = f"{tables.remedy('')}, or raise radio.num_channels"
    watched: tuple[tuple[Kind, str, str, str], ...] = (
        ("diverging-participation-queue", "participation_queue", "λ1", fairness),
        ("diverging-quantization-queue", "quantization_queue", "λ2", tables.larger_budget),
        ("diverging-error-price", "error_price", "the price of error", tables.larger_budget),
    )
    for kind, name, symbol, remedy in watched:
        levels = _quarters(tables.rounds[name])
        if _diverging(levels) and (name != "error_price" or tables.exceeds_budget(tables.last_half)):
            yield Finding(
                kind,
                f"{symbol} ({name}) grows without end: its mean rose from {levels[0]:.3g} in the first quarter of the "
                f"rounds to {levels[3]:.3g} in the last, by more than a factor of {DIVERGING_GROWTH:g}: {remedy}.",
            )


def diverges(series: FloatArray) -> bool:
    """Whether a queue grows without end: a lot, through all quarters of the run, and hardly slower at the end."""
    return _diverging(_quarters(series))


def _diverging(levels: FloatArray) -> bool:
    growth = np.diff(levels)
    fast = levels[3] >= DIVERGING_GROWTH * levels[0] and growth[2] >= DIVERGING_PACE * growth[0]
    return bool((growth > 0.0).all() and fast)


def _quarters(series: FloatArray) -> FloatArray:
    """Mean of each quarter of the known values; zeros if there are too few of them."""
    known = series[np.isfinite(series)]
    if len(known) < ROUNDS_TO_JUDGE:
        return np.zeros(4)
    return np.array([part.mean() for part in np.array_split(known, 4)])


def _bits(tables: _Tables) -> Iterable[Finding]:
    """Bits at a limit although the error budget is not met, or bits that jump up and down."""
    if tables.num_rounds < ROUNDS_TO_JUDGE:
        return
    late = tables.last_half
    on = tables.on[late]
    bits, most = (np.asarray(tables.by_round(name), dtype=float)[late] for name in ("num_bits", "most_bits"))
    if not on.any():
        return
    if tables.exceeds_budget(late) or diverges(tables.rounds["quantization_queue"]):
        if (bits[on] == 1).all():
            yield Finding(
                "bits-at-one",
                "all uploads of the last half had 1 bit, the least there is, and the error budget was not met: "
                f"{tables.larger_budget}.",
            )
        elif (bits[on] >= most[on]).all():
            yield Finding(
                "bits-at-most",
                f"all uploads of the last half had as many bits as their links carry, {bits[on].mean():.1f} on "
                f"average, and the error budget was not met: {tables.larger_budget}.",
            )
    if share := oscillation(bits, on):
        yield Finding(
            "oscillating-bits",
            f"bits jumped up and down by {OSCILLATION_BITS:g} or more in {share:.0%} of the rounds of the last half, "
            f"above 50%: {tables.remedy(f'raise control.slack = {tables.scenario.control.slack:g}')}.",
        )


def _noise(tables: _Tables) -> Iterable[Finding]:
    """Aggregates that err by far more than learning tolerates.

    The error budget cannot tell: it is a multiple of the least error that the links carry, so poor links meet it.
    """
    late, scenario = tables.last_half, tables.scenario
    on, errors = tables.on[late], tables.rounds["aggregate_error"][late]
    bits, most, norms_sq = (tables.by_round(name)[late] for name in ("num_bits", "most_bits", "gradient_norm_sq"))
    if tables.num_rounds < ROUNDS_TO_JUDGE or not on.any() or scenario.policy.name == "no-quantization":
        return
    steps = usual_steps(tables.by_round("dataset_size")[0], scenario.constants())
    update_sq = (scenario.learning.learning_rate * steps) ** 2 * np.median(norms_sq, axis=1)
    known = np.isfinite(errors) & (update_sq > 0.0)
    weight = scenario.control.energy_weight if tables.scale_free else 1.0
    noise = float((errors[known] / (TOLERATED_NOISE * weight * update_sq[known])).mean()) if known.any() else 0.0
    if noise <= MOST_NOISE:
        return
    sent, carried = float(bits[on].mean()), float(np.maximum(most[on], 1).mean())
    remedies = [f'use codec.name = "{DEFAULT_CODEC}"'] if scenario.codec.name != DEFAULT_CODEC else []
    if carried - sent >= 0.5:
        remedies.append(tables.remedy(f"lower control.slack = {scenario.control.slack:g}"))
    remedies.append("raise device.deadline_s or radio.bandwidth_hz")
    yield Finding(
        "noisy-aggregates",
        f"the aggregates of the last half erred by {noise:.3g} times what learning tolerates, above {MOST_NOISE:g}, "
        f"with {sent:.1f} of the {carried:.1f} bits per parameter that links carry: {', or '.join(remedies)}.",
    )


def oscillation(bits: FloatArray, on: BoolArray) -> float:
    """The share of rounds [round, client] in which bits jump back and forth; 0 if that is not what most rounds do.

    Each client is compared with its own mean, so that taking turns on unequal links does not count.
    """
    counts = np.maximum(on.sum(axis=0), 1)
    own = np.where(on, bits, 0.0).sum(axis=0) / counts
    kept = on.any(axis=1)
    deviations = (np.where(on, bits - own, 0.0).sum(axis=1) / np.maximum(on.sum(axis=1), 1))[kept]
    steps = np.diff(deviations)
    if len(steps) < ROUNDS_TO_JUDGE // 2 - 2 or not np.ptp(deviations):
        return 0.0
    large = np.abs(steps) >= OSCILLATION_BITS
    turned = large[1:] & large[:-1] & (np.sign(steps[1:]) != np.sign(steps[:-1]))
    centred = deviations - deviations.mean()
    correlation = float((centred[1:] * centred[:-1]).sum() / np.square(centred).sum())
    share = float(turned.mean())
    return share if share > 0.5 and correlation < OSCILLATION_CORRELATION else 0.0


def _forecasts(tables: _Tables) -> Iterable[Finding]:
    """Uploads that were lost because they were larger than forecast, and forecasts that were far off in general."""
    on, lost = tables.on, _lost(tables)
    sent, expected = (np.asarray(tables.by_round(name), dtype=float)[on] for name in ("payload_bits", "expected_bits"))
    if not len(sent):
        return
    excess = sent / expected - 1.0
    margin = tables.scenario.codec.safety_margin
    too_large = lost[on] & (excess > 0.0) & ~_overrated(tables)[on]
    if too_large.sum() > MOST_LOST_SHARE * len(sent):
        enough = (1.0 + margin) * (1.0 + float(np.quantile(excess[too_large], 0.95))) - 1.0
        largest = float(excess[too_large].max())
        size = f"{largest:.0%} at most" if largest >= 0.01 else "less than 1%"
        yield Finding(
            "forecast-too-small",
            f"{_of(int(too_large.sum()), len(sent), 'upload')} missed the deadline because they were larger than "
            f"forecast, by {size}, and at most {MOST_LOST_SHARE:.0%} may: raise "
            f"codec.safety_margin from {margin:g} to {np.ceil(enough * 100.0) / 100.0:g}.",
        )
    median = float(np.median(excess))
    if float(np.median(np.abs(excess))) > MOST_FORECAST_ERROR:
        remedy = (
            f"raise codec.safety_margin = {margin:g}"
            if median > 0.0
            else f"lower codec.safety_margin = {margin:g}, or use a codec whose sizes are known"
        )
        yield Finding(
            "forecast-wrong",
            f"uploads differed from their forecast size by {np.median(np.abs(excess)):.0%} in the median, above "
            f"{MOST_FORECAST_ERROR:.0%}: {remedy}.",
        )


def _overrated(tables: _Tables) -> BoolArray:
    """Uploads whose channel was worse than the server estimated; none in tables of older versions."""
    if "estimated_rate_bps" not in tables.clients:
        return np.zeros_like(tables.on)
    estimated, true = (np.asarray(tables.by_round(name), dtype=float) for name in ESTIMATES)
    return tables.on & (estimated > true)


def _estimates(tables: _Tables) -> Iterable[Finding]:
    """Uploads that were lost because the server took their channel for better than it was."""
    on, radio = tables.on, tables.scenario.radio
    count = int((_lost(tables) & _overrated(tables)).sum())
    if count > MOST_LOST_SHARE * on.sum():
        estimated, true = (np.asarray(tables.by_round(name), dtype=float)[on] for name in ESTIMATES)
        worst_db = float(np.quantile(_overrated_db(estimated, true, tables.scenario), 1.0 - MOST_LOST_SHARE))
        enough_db = np.ceil(radio.backoff_db + worst_db)
        raised = f"raise radio.backoff_db from {radio.backoff_db:g} to {enough_db:g}"
        ages = f"lower radio.estimate_age = {radio.estimate_age}"
        remedies = [raised if enough_db <= MOST_BACKOFF_DB else "raise the deadline"]
        remedies += [ages] if radio.estimate_age else []
        yield Finding(
            "optimistic-estimates",
            f"{_of(count, int(on.sum()), 'upload')} missed device.deadline_s = {tables.scenario.device.deadline_s:g} "
            f"because their channel was worse than estimated, and at most {MOST_LOST_SHARE:.0%} may: "
            f"{', or '.join(remedies)}.",
        )


def _overrated_db(estimated_bps: FloatArray, true_bps: FloatArray, scenario: Scenario) -> FloatArray:
    """By how much channels were overrated: their signal by Shannon's formula, or the rates of a trace themselves.

    A table may hold rates or gains. It counts as gains, which need more back-off.
    """
    if scenario.radio.trace_form == "ucc-5g" and scenario.radio.trace:
        ratios = estimated_bps, true_bps
    else:
        efficiency = np.log(2.0) / scenario.radio.bandwidth_hz
        ratios = np.expm1(estimated_bps * efficiency), np.expm1(true_bps * efficiency)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(10.0 * np.log10(ratios[0] / ratios[1]), nan=0.0, posinf=1e3, neginf=-1e3)


def _missed(tables: _Tables) -> Iterable[Finding]:
    """Uploads that were lost for another reason than their size or an estimate of their channel."""
    on, lost = tables.on, _lost(tables) & ~_overrated(tables)
    larger = np.asarray(tables.by_round("payload_bits")) > np.asarray(tables.by_round("expected_bits"))
    count = int((lost & ~larger).sum())
    if count > MOST_LOST_SHARE * on.sum():
        deadline_s = tables.scenario.device.deadline_s
        yield Finding(
            "lost-uploads",
            f"{_of(count, int(on.sum()), 'upload')} missed device.deadline_s = {deadline_s:g} or failed, and at most "
            f"{MOST_LOST_SHARE:.0%} may: raise the deadline"
            f"{'' if tables.controlled else ', or ' + tables.remedy('')}.",
        )


def _clipped(tables: _Tables) -> Iterable[Finding]:
    """Clients whose updates were much longer than usual. Rules that choose clients reject some by design."""
    if "kept" not in tables.clients:  # tables of older versions
        return
    kept = np.asarray(tables.by_round("kept"), dtype=float)
    clipped = (kept > 0.0) & (kept < 1.0)
    who = np.flatnonzero(clipped.any(axis=0))
    if len(who):
        arrived = np.isfinite(kept)
        limit = tables.scenario.aggregation.mean.most_norm
        yield Finding(
            "clipped-updates",
            f"{_of(int(clipped.sum()), int(arrived.sum()), 'upload')} were too long (aggregation.mean.most_norm = "
            f"{limit:g}) and were clipped to the usual length, those of {_clients(who, kept.shape[1])}: find out "
            "what these clients do, or raise the limit if they are honest.",
        )


def _nothing_kept(tables: _Tables) -> Iterable[Finding]:
    """Rounds whose aggregate holds nothing of what arrived: the median of coarse values is 0."""
    if "kept" not in tables.clients:
        return
    kept = np.asarray(tables.by_round("kept"), dtype=float)
    arrived = np.asarray(tables.by_round("arrived"), dtype=bool)
    empty = arrived.any(axis=1) & ((kept == 0.0) | ~arrived).all(axis=1)
    if empty.any():
        yield Finding(
            "nothing-kept",
            f"aggregation.rule = {tables.scenario.aggregation.rule!r} kept nothing of the uploads of "
            f"{_of(int(empty.sum()), tables.num_rounds, 'round')}, because most values of coarse uploads are 0: lower "
            'control.energy_weight, so that uploads have more bits, or use aggregation.rule = "mean" or "multi-krum".',
        )


def _training(tables: _Tables) -> Iterable[Finding]:
    """Losses of clients that end well above those of the first model. The median of the last quarter of the rounds
    counts, so that one bad round does not."""
    losses = np.asarray(tables.rounds.get("train_loss", ()), dtype=float)
    known = np.isfinite(losses)
    if not known.any():
        return
    reported = losses[known]
    first, last = float(reported[0]), float(np.median(reported[-max(1, len(reported) // 4) :]))
    if last > MOST_LOSS_GROWTH * first:
        server = tables.scenario.server.optimizer
        rate = getattr(getattr(tables.scenario.server, server, None), "learning_rate", None)
        more = "" if rate is None else f", or server.{server}.learning_rate = {rate:g}"
        yield Finding(
            "diverging-training",
            f"the loss that clients report rose from {first:.3g} to {last:.4g}, and at most {MOST_LOSS_GROWTH:g} times "
            f"is usual: lower learning.learning_rate = {tables.scenario.learning.learning_rate:g}{more}.",
        )


def _lost(tables: _Tables) -> BoolArray:
    """Uploads that missed the deadline and were not exempt from it; not those during which a battery emptied."""
    missed, arrived = (np.asarray(tables.by_round(name), dtype=bool) for name in ("missed", "arrived"))
    lost: BoolArray = tables.on & missed & ~arrived
    if "battery_j" in tables.clients:
        lost &= np.asarray(tables.by_round("battery_j"), dtype=float) > 0.0
    return lost


CHECKS: tuple[Callable[[_Tables], Iterable[Finding]], ...] = (
    _empty_rounds,
    _left_out,
    _never_able,
    _empty_batteries,
    _error_budget,
    _queues,
    _bits,
    _noise,
    _forecasts,
    _estimates,
    _missed,
    _clipped,
    _nothing_kept,
    _training,
)


def _of(count: int, total: int, noun: str) -> str:
    return f"{count} of {total} {noun}{'s' * (total != 1)}"


def _clients(indices: IntArray, total: int) -> str:
    """Which clients: their numbers, or the first of them."""
    named = ", ".join(str(index) for index in indices[:NAMED_CLIENTS])
    more = f" and {len(indices) - NAMED_CLIENTS} more" if len(indices) > NAMED_CLIENTS else ""
    return f"{_of(len(indices), total, 'client')} ({named}{more})"


def _each(indices: IntArray) -> str:
    return "it" if len(indices) == 1 else "they"


def _its(indices: IntArray) -> str:
    return "its" if len(indices) == 1 else "their"


def gathered(named: Sequence[tuple[str, str, Sequence[Finding]]]) -> list[str]:
    """One sentence per group and kind of finding over many runs, each given as (group, run, findings).

    The sentence is that of the first run, and says in how many others the same was found.
    """
    first: dict[tuple[str, str], tuple[str, str]] = {}
    count: dict[tuple[str, str], int] = {}
    totals: dict[str, int] = {}
    for group, run, findings in named:
        totals[group] = totals.get(group, 0) + 1
        for finding in findings:
            key = (group, finding.kind)
            first.setdefault(key, (run, finding.message))
            count[key] = count.get(key, 0) + 1
    sentences = []
    for (group, kind), (run, message) in first.items():
        others = count[group, kind] - 1
        where = ", ".join(part for part in (group, run if totals[group] > 1 else "") if part)
        also = f" Also in {others} other run{'s' * (others > 1)}." if others else ""
        sentences.append(f"{where}: {message}{also}" if where else message + also)
    return sentences
