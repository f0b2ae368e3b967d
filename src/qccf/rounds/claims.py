"""What a client reports about itself is a claim. This module turns claims into the statistics that a policy may use.

A claim is compared with what the other clients report, because the median of the others is not moved by one liar. The
limits are far beyond what honest clients showed (`docs/security.md` has the figures), so that honest runs are unchanged
bit for bit. A claim beyond its limit is not believed: the client's last trusted value stays, or, if there is none, the
median of the others is used. History limits nothing by itself: the gradient variance of an honest client grew 98-fold
from one of its reports to the next. Where the server has the upload itself, a claim that is high among the others must
also agree with it. A client that is not believed again and again is distrusted: the median of the others stands for
everything that it reports, and it may still take part.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qccf.core.contracts import BoolArray, FloatArray, IntArray, Statistics

NEAR = 2.0
"""A claim up to this many times the median of the others needs no evidence; one above may exceed its evidence by as
much."""

FEWEST_OTHERS = 2
"""With fewer other clients nobody can tell who lies, and only finite numbers are asked for."""

FEWEST_FRESH = 3
"""Others that report in the same round count as a reference of their own from this number on."""

DISTRUSTED = 3
"""Reports in a row that are not believed until a client is distrusted. Each report that is believed takes one back."""

MOST_DOUBTS = 2 * DISTRUSTED

NEVER, UNJUDGED = -2, -1
"""Doubts about a client that has not reported yet, and about one that did when nobody could tell who lies. What stands
for the first is no vote about the others; the second is judged as soon as others have reported."""

MOST_LOSS_RATIO = 100.0
"""The largest loss, in medians of the others' losses of the same round. Honest clients: 3.9."""


@dataclass(frozen=True)
class ClaimRules:
    """`tolerance` is a factor on every limit, `most_times_median` the limit of a dataset size."""

    tolerance: float = 1.0
    most_times_median: float = 4.0
    dataset_sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Subject:
    """Fields that are believed or not together. Limits are in medians of the others: `first` for the first report,
    `later` afterwards, `least` below."""

    name: str
    fields: tuple[str, ...]
    first: float
    later: float
    least: float = 0.0


SUBJECTS = (
    Subject("gradient_norm_sq", ("gradient_norms_sq",), first=20.0, later=100.0, least=1e-3),
    Subject("gradient_variance", ("gradient_variances",), first=20.0, later=50.0),
    Subject("weight_range", ("weight_ranges",), first=10.0, later=10.0),
    Subject("error_scale", ("error_scales", "upload_errors"), first=20.0, later=100.0),
    Subject("upload_bits", ("upload_bits",), first=10.0, later=10.0),
)


POSITIVE = ("upload_bits",)
"""Fields that cannot be 0."""

EXAMINED = ("weight_ranges", "error_scales", "upload_bits")
"""Fields that an upload itself shows."""


class Evidence(NamedTuple):
    """What the server measured itself on an upload, None where it cannot: the statistic of the same name."""

    weight_range: float | None = None
    error_scale: float | None = None
    num_bits: int = 0
    size_bits: float | None = None


Examine = Callable[[int], Evidence]
"""From a client to the evidence in its upload. It is asked only for claims that are high among the others."""


class Trusted(NamedTuple):
    """Statistics that a policy may use, each client's doubts, and one sentence for each claim that is not believed."""

    statistics: Statistics
    doubts: IntArray
    warnings: list[str]


Columns = dict[str, FloatArray]


def first_statistics(claimed: Statistics, reported: BoolArray, rules: ClaimRules) -> Trusted:
    """Trusted statistics before the first round.

    A client that has not reported gets the median of the others that is not 0, of two middle values the lower one: if
    only two have reported, one of them may lie.
    """
    columns = _columns(claimed)
    reports = np.flatnonzero(reported)
    refused, warnings = _refused(columns, None, reports, rules, lambda _: Evidence())
    for subject, rows in refused.items():
        for name in _of(subject, columns):
            members = np.setdiff1d(reports, rows)
            for row in rows:
                columns[name][row] = _median(columns[name], members)
    known = UNJUDGED if len(reports) <= FEWEST_OTHERS < claimed.num_clients else 0
    doubts = np.where(reported, known, NEVER).astype(np.int64)
    for row in {int(row) for rows in refused.values() for row in rows}:
        doubts[row] = 1
    for column in columns.values():
        column[~reported] = _median(column, reports, lower=True)
    return Trusted(replace(claimed, **columns), doubts, warnings)


def next_statistics(
    known: Statistics,
    claimed: Statistics,
    reports: IntArray,
    doubts: IntArray,
    rules: ClaimRules,
    examine: Examine = lambda _: Evidence(),
) -> Trusted:
    """Trusted statistics after a round: `known` ones, and what the clients in `reports` claim, as far as believed."""
    columns, before = _columns(claimed), _columns(known)
    new = doubts < 0  # there is no trusted value of theirs
    voters = np.union1d(np.flatnonzero(doubts != NEVER), reports)
    can_tell = len(voters) > FEWEST_OTHERS
    judged = np.union1d(reports, np.flatnonzero(doubts == UNJUDGED)) if can_tell else reports
    refused, sentences = _refused(
        columns,
        columns if new.any() else before,
        judged,
        rules,
        lambda client: examine(client) if client in reports else Evidence(),
        voters=voters,
        new=new,
    )
    for subject, rows in refused.items():
        for name in _of(subject, columns):
            columns[name][rows] = before[name][rows]
            columns[name][new & np.isin(np.arange(len(new)), rows)] = _median(columns[name], np.setdiff1d(voters, rows))
    doubted = np.zeros(len(doubts), dtype=bool)
    doubted[[int(row) for rows in refused.values() for row in rows]] = True
    after = doubts.copy()
    after[judged] = np.clip(np.maximum(doubts[judged], 0) + np.where(doubted[judged], 1, -1), 0, MOST_DOUBTS)
    if not can_tell:
        after[reports[new[reports]]] = UNJUDGED
    was, now = doubts >= DISTRUSTED, after >= DISTRUSTED
    warnings = [text for client, text in sentences if not was[client]]
    warnings += [
        f"client {client} is distrusted: {DISTRUSTED} of its reports were not believed. The median of the others is "
        "used for it until its reports are believed again."
        for client in np.flatnonzero(now & ~was)
    ]
    warnings += [f"client {client} is trusted again." for client in np.flatnonzero(was & ~now)]
    if now.any() and not now.all():
        members = np.flatnonzero(~now)
        for column in columns.values():
            column[now] = _median(column, members)
    return Trusted(replace(claimed, **columns), after, warnings)


def believed_losses(losses: FloatArray, rules: ClaimRules) -> tuple[FloatArray, list[str]]:
    """The reported losses, NaN where one is far beyond the others of its round."""
    known = np.flatnonzero(np.isfinite(losses))
    if len(known) <= FEWEST_OTHERS:
        return losses, []
    _, others = medians_of_others(np.abs(losses[known]))
    limits = MOST_LOSS_RATIO * rules.tolerance * others
    beyond = known[(np.abs(losses[known]) > limits) & (others > 0.0)]
    believed = losses.copy()
    believed[beyond] = np.nan
    limit_of = dict(zip(known, limits, strict=True))
    return believed, [
        f"client {client} reported loss = {losses[client]:.4g}, and the limit is {limit_of[client]:.4g}: it is ignored."
        for client in beyond
    ]


def registered_sizes(stated: Mapping[int, int], num_clients: int, rules: ClaimRules) -> tuple[FloatArray, list[str]]:
    """The dataset size of each client, from what clients state when they register.

    Sizes that the settings announce are used instead. A size above its limit is cut to it, because a weight in the
    aggregate and energy are paid for by size. A client that has stated none gets the median of the others, of two
    middle values the lower one. The limits follow from all sizes that are stated so far, so they change when clients
    register.
    """
    sizes, warnings = np.zeros(num_clients), []
    if rules.dataset_sizes:
        sizes[:] = rules.dataset_sizes
        differing = [client for client, size in stated.items() if size != sizes[client]]
        return sizes, [
            f"client {client} states {stated[client]} samples, and claims.dataset_sizes announces {sizes[client]:.0f}, "
            "which is used."
            for client in differing
        ]
    clients = np.array(sorted(stated), dtype=np.int64)
    claims = np.array([stated[client] for client in sorted(stated)], dtype=np.float64)
    sizes[clients] = claims
    if len(clients) > 1 and num_clients > FEWEST_OTHERS:
        limits = np.maximum(np.floor(rules.most_times_median * medians_of_others(claims)[1]), 1.0)
        sizes[clients] = np.minimum(claims, limits)
        warnings = [
            f"client {client} states {claim:.0f} samples, and the limit is {limit:.0f} "
            f"({rules.most_times_median:g} times the median of the others), which is used: announce its size in "
            "claims.dataset_sizes, or raise claims.most_times_median."
            for client, claim, limit in zip(clients, claims, limits, strict=True)
            if claim > limit
        ]
    absent = np.setdiff1d(np.arange(num_clients), clients)
    if len(clients):
        sizes[absent] = np.sort(sizes[clients])[(len(clients) - 1) // 2]
    return sizes, warnings


def medians_of_others(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Lower and upper median of all rows but each one, column by column. There are at least two rows."""
    ordered, count = np.sort(values, axis=0), len(values) - 1

    def ranked(index: int) -> FloatArray:
        """What has this rank once a row's own value is taken out of the order."""
        return np.where(values <= ordered[index], ordered[index + 1], ordered[index])

    return ranked((count - 1) // 2), ranked(count // 2)


Refused = dict[Subject, list[int]]


def _refused(
    claimed: Columns,
    known: Columns | None,
    reports: IntArray,
    rules: ClaimRules,
    examine: Examine,
    *,
    voters: IntArray | None = None,
    new: BoolArray | None = None,
) -> tuple[Refused, list[Any]]:
    """The claims that are not believed, and a sentence for each: with its client where something is known.

    Claims are compared with what is known of the `voters`. Of `new` clients nothing is trusted yet.
    """
    refused: Refused = {}
    sentences: list[Any] = []
    found: dict[int, Evidence] = {}

    def examined(client: int) -> Evidence:
        if client not in found:
            found[client] = examine(client)
        return found[client]

    for subject in SUBJECTS:
        reasons: dict[int, str] = {}
        for name in _of(subject, claimed):
            reasons = _reasons(subject, name, claimed, known, reports, voters, rules, examined) | reasons
        for client, reason in reasons.items():
            instead = "the median of the others" if new is None or new[client] else "its last trusted value"
            text = f"client {client} reported {reason}: {instead} is used."
            sentences.append(text if known is None else (client, text))
        if reasons:
            refused[subject] = sorted(reasons)
    return refused, sentences


def _reasons(
    subject: Subject,
    name: str,
    claimed: Columns,
    known: Columns | None,
    reports: IntArray,
    voters: IntArray | None,
    rules: ClaimRules,
    examine: Examine,
) -> dict[int, str]:
    """Why claims about one field are not believed, by client."""
    values = claimed[name].reshape(len(claimed[name]), -1)
    possible = np.isfinite(values) & ((values > 0.0) if name in POSITIVE else (values >= 0.0))
    sound = np.asarray(possible.all(axis=1))
    needed = "above 0" if name in POSITIVE else "not negative"
    reasons = {
        int(client): f"{subject.name} = {values[client][~possible[client]][0]:g}, and it must be finite and {needed}"
        for client in reports[~sound[reports]]
    }
    rows = reports[sound[reports]]
    low, high = _references(name, values, claimed, known, rows, voters)
    if low is None or high is None:
        return reasons
    most = rules.tolerance * (subject.first if known is None else subject.later)
    least = subject.least / rules.tolerance
    ratios = _ratios(values[rows], high)
    below = np.asarray((values[rows] < least * low).any(axis=1))
    for row, client in enumerate(map(int, rows)):
        column = int(ratios[row].argmax())
        value, reference = values[client][column], high[row][column]
        said = f"{subject.name if values.shape[1] == 1 else f'{name} (q = {column + 1})'} = {value:.4g}"
        if ratios[row][column] > most:
            reasons[client] = f"{said}, and the limit is {most * reference:.4g} ({most:g} times the others' median)"
        elif below[row]:
            reasons[client] = f"{said}, and at least {least:g} of the others' median {low[row][column]:.4g} is expected"
        elif name in EXAMINED and ratios[row][column] > NEAR:
            evidence = _evident(name, values[client], examine(client))
            if evidence is not None and evidence[0] > NEAR * max(1.0, rules.tolerance) * evidence[1]:
                reasons[client] = f"{subject.name} = {evidence[0]:.4g}, and its upload shows {evidence[1]:.4g}"
    return reasons


def _references(
    name: str, values: FloatArray, claimed: Columns, known: Columns | None, rows: IntArray, voters: IntArray | None
) -> tuple[FloatArray | None, FloatArray | None]:
    """What the others' values are, for each of these clients: for limits below, and for limits above.

    Others that report now and the last values of all others both count, because values change as training proceeds and
    most clients of a large federation have not reported for long. Of two middle values the one that admits more
    counts: one liar among two others must not make an honest claim look wrong.
    """
    found = []
    if known is not None and voters is not None and len(voters) > FEWEST_OTHERS:
        before, places = known[name].reshape(len(values), -1)[voters], np.searchsorted(voters, rows)
        found.append([side[places] for side in medians_of_others(before)])
    if len(rows) > (FEWEST_OTHERS if known is None else FEWEST_FRESH):
        found.append(list(medians_of_others(values[rows])))
    if not found:
        return None, None
    low, high = np.minimum.reduce([one[0] for one in found]), np.maximum.reduce([one[1] for one in found])
    if name == "gradient_variances":  # zero for a client with a single batch, so norms of gradients count as well
        norms = _references("gradient_norms_sq", claimed["gradient_norms_sq"][:, None], claimed, known, rows, voters)[1]
        high = high if norms is None else np.maximum(high, norms)
    return low, high


def _ratios(values: FloatArray, reference: FloatArray) -> FloatArray:
    """How many times the reference; 0 where the reference is 0, which limits nothing."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(reference > 0.0, values / reference, 0.0)


def _evident(name: str, claim: FloatArray, evidence: Evidence) -> tuple[float, float] | None:
    """A claim and what the upload shows of the same; None where it shows nothing."""
    if name == "weight_ranges" and evidence.weight_range is not None:
        return float(claim[0]), evidence.weight_range
    if name == "error_scales" and evidence.error_scale is not None:
        return float(claim[0]), evidence.error_scale
    if name == "upload_bits" and evidence.size_bits is not None and evidence.num_bits:
        return float(claim[evidence.num_bits - 1]), evidence.size_bits
    return None


def _columns(statistics: Statistics) -> Columns:
    """Copies of all fields that claims are about; the dataset sizes are fixed when clients register."""
    found = {one.name: getattr(statistics, one.name) for one in fields(Statistics) if one.name != "dataset_sizes"}
    return {name: np.array(column, dtype=np.float64) for name, column in found.items() if column is not None}


def _of(subject: Subject, columns: Columns) -> list[str]:
    return [name for name in subject.fields if name in columns]


def _median(column: NDArray[Any], members: IntArray, *, lower: bool = False) -> Any:
    """The median over some clients: of two middle values their mean; or the lower one of those that are not 0."""
    if not len(members):
        return 0.0
    if not lower:
        return np.median(column[members], axis=0)
    ordered = np.sort(np.where(column[members] > 0.0, column[members], np.inf), axis=0)
    middle = np.maximum(np.isfinite(ordered).sum(axis=0) - 1, 0) // 2
    found = np.take_along_axis(ordered, np.expand_dims(middle, 0), axis=0)[0]
    return np.where(np.isfinite(found), found, 0.0)
