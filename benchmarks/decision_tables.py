"""Tables of the decisions that benchmarks.decisions has recorded.

Run: python -m benchmarks.decision_tables [--record FILE] [--page docs/results/decisions.md]
With --page the tables replace what follows the heading "## Tables" there.
Cells replay a few trainings in turn, and cells of one training are not independent. So ± and intervals (95 %) are over
the means of trainings, and n is the number of trainings. A saving is QCCF's, in per cent of the other policy's energy
in the same cell.
"Error" is the expected squared error of the aggregate that quantization causes, mean over rounds, from the recorded
models.
"""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.decisions import (
    CONSTANTS,
    NUM_TRAININGS,
    POLICIES,
    RECORD,
    Columns,
    Recorded,
    cells_of,
    points,
    read_record,
)
from qccf.core.files import write_text_whole
from qccf.core.intervals import MOST_CORRELATION, Estimate, correlation_estimate, estimate
from qccf.paper.claims import cause_of
from qccf.paper.findings import PAPERS_SAVINGS
from qccf.paper.verdicts import (
    BITS,
    CORRELATION,
    DOWN,
    ENERGY,
    UP,
    ZERO,
    Answer,
    Quantity,
    Rule,
    adjusted_chances,
    answer,
    chances,
    ordering,
)


def sends_updates(name: str) -> bool:
    return name.endswith(", updates")


ADAPTIVE = tuple(name for name in POLICIES if name not in (*CONSTANTS, "no-quantization") and not sends_updates(name))
"""The policies that send whole models, as the constants do."""
PAPERS_RIVALS = ("same-size, CPU follows", "principle, paper", "channel-allocate", "no-quantization")
"""The paper's four baselines in the readings that are nearest to its text."""
READINGS = ("same-size, CPU follows", "same-size, joint", "principle, paper")
"""Baselines whose energy grows with β, says the paper."""
WHOLE_MODELS = "principle, published"
"""The published rule with whole models. It is made for updates, so no claim rests on it."""
POINTS = replace(ENERGY, unit=" points")
"""A difference of two savings. Its margin is that of energies."""


def column(columns: Columns, policy: str, measure: str) -> np.ndarray:
    """One value per cell; NaN where the cell has none."""
    values = columns.get(policy, {}).get(measure, [None] * cells_of(columns))
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def over_trainings(values: np.ndarray) -> Estimate:
    """The mean and its interval, over the means of the cells of each training."""
    return estimate(_training_means(values))


def correlation_over_trainings(values: np.ndarray) -> Estimate:
    """The same for correlations, through Fisher's z."""
    z = np.arctanh(np.clip(values, -MOST_CORRELATION, MOST_CORRELATION))
    return correlation_estimate(np.tanh(_training_means(z)))


def _training_means(values: np.ndarray) -> np.ndarray:
    finite = [values[k::NUM_TRAININGS][np.isfinite(values[k::NUM_TRAININGS])] for k in range(NUM_TRAININGS)]
    return np.array([one.mean() for one in finite if len(one)])


def savings(columns: Columns, rival: str, *, per_upload: bool = False) -> Estimate:
    """QCCF's saving against a rival, cell by cell; cells in which one of them serves nobody are left out.

    A rival that sends updates is compared with QCCF that sends updates.

    Where the policies serve unequal numbers of clients, energies are compared per upload that arrives.
    """
    return over_trainings(saved_per_cell(columns, rival, per_upload=per_upload))


def saved_per_cell(columns: Columns, rival: str, *, per_upload: bool = False) -> np.ndarray:
    """The same for each cell; NaN where one of the two serves nobody."""
    own = "qccf, updates" if sends_updates(rival) else "qccf"
    ours, theirs = (
        column(columns, name, "energy_j") / (_positive(column(columns, name, "participation")) if per_upload else 1.0)
        for name in (own, rival)
    )
    return np.asarray(1.0 - ours / _positive(theirs))


def _positive(values: np.ndarray) -> np.ndarray:
    return np.where(values > 0.0, values, np.nan)


def best_constants(columns: Columns, policy: str) -> np.ndarray:
    """The least energy, in each cell, of one constant or of two in turns, with no larger error and no fewer uploads.

    Constants are whole numbers of bits. If one of them had to be as precise in every round, a policy would win by its
    fractions alone; two constants in turns have any mean error between theirs.
    """
    names = [one for one in CONSTANTS if one in columns]
    energies, errors, served = (
        np.array([column(columns, name, measure) for name in names])
        for measure in ("energy_j", "error", "participation")
    )
    most, needed = column(columns, policy, "error"), column(columns, policy, "participation") - 1e-9
    found = np.full(len(most), np.nan)
    for cell in range(len(most)):
        able = [
            (errors[k, cell], energies[k, cell])
            for k in range(len(names))
            if served[k, cell] >= needed[cell] and np.isfinite(energies[k, cell])
        ]
        costs = [energy for error, energy in able if error <= most[cell]]
        for (low, dear), (high, cheap) in product(able, able):
            if low <= most[cell] < high:
                share = (most[cell] - low) / (high - low)
                costs.append((1.0 - share) * dear + share * cheap)
        found[cell] = min(costs, default=np.nan)
    return found


def policies_table(title: str, columns: Columns) -> list[str]:
    lines = [
        f"\n**{title}**, {cells_of(columns)} cells\n",
        "| policy | energy (J) | QCCF saves (%) | error | late (%) | bits | bits ~ round | bits ~ D |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in columns:
        saved = "" if name.startswith("qccf") else savings(columns, name).shown(".1f", 100.0)
        correlations = [
            correlation_over_trainings(column(columns, name, measure)).shown("+.2f")
            for measure in ("bits_round", "bits_size")
        ]
        if name in (*CONSTANTS, "no-quantization"):
            correlations = ["–", "–"]
        cells = [
            over_trainings(column(columns, name, "energy_j")).shown(".2f"),
            saved,
            over_trainings(column(columns, name, "error")).shown(".3g"),
            over_trainings(100.0 * column(columns, name, "late")).shown(".1f"),
            over_trainings(column(columns, name, "bits")).shown(".2f"),
            *correlations,
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


Judgement = tuple[str, str, str, Estimate, Rule, Quantity]
"""The cause that the claim rests on, the claim, the paper's figure, our number, and how it is judged."""


def judgements(recorded: Recorded) -> Iterable[Judgement]:
    """The paper's claims about decisions, at both β and in every reading of the baselines."""
    by_beta = {beta: recorded.get(f"policies: β = {beta}", {}) for beta in (150, 300)}
    for beta, columns in by_beta.items():
        for rival in [name for name in columns if not name.startswith("qccf") and name != WHOLE_MODELS]:
            family = rival.partition(",")[0]
            papers = PAPERS_SAVINGS.get(family)
            rule = UP if papers is None else Rule("magnitude", papers=papers)
            cause = cause_of("energy", rival)
            shown = "" if papers is None else f"{papers:.2%}"
            yield cause, f"QCCF saves against {rival}, β = {beta}", shown, savings(columns, rival), rule, ENERGY
        for name, over_rounds, over_sizes in (
            ("qccf", UP, DOWN), ("same-size, CPU follows", UP, ZERO), ("same-size, joint", UP, ZERO),
            ("principle, paper", UP, UP), ("principle, published, updates", UP, UP), ("channel-allocate", ZERO, DOWN),
        ):  # fmt: skip
            rounds, sizes = (correlation_over_trainings(column(columns, name, f"bits_{x}")) for x in ("round", "size"))
            yield (
                "bits",
                f"bits of {name} over rounds, β = {beta}",
                _word(over_rounds),
                rounds,
                over_rounds,
                CORRELATION,
            )
            yield (
                "bits",
                f"bits of {name} over dataset sizes, β = {beta}",
                _word(over_sizes),
                sizes,
                over_sizes,
                CORRELATION,
            )
        for other in ("qccf", PAPERS_RIVALS[0]):
            more = over_trainings(
                column(columns, "principle, paper", "last_bits") - column(columns, other, "last_bits")
            )
            yield "principle", f"last bits of principle, paper minus {other}, β = {beta}", "more", more, UP, BITS
    low, high = by_beta.values()
    cells = min(cells_of(low), cells_of(high))
    for name in ("qccf", *READINGS):
        more = over_trainings(column(high, name, "energy_j")[:cells] / column(low, name, "energy_j")[:cells] - 1.0)
        rule = ZERO if name == "qccf" else UP
        yield cause_of("energy", name), f"energy of {name} from β = 150 to 300", _word(rule), more, rule, ENERGY
    for name in READINGS:
        grown = saved_per_cell(high, name)[:cells] - saved_per_cell(low, name)[:cells]
        words = f"saving against {name}, β = 300 minus β = 150"
        yield cause_of("energy", name), words, "more", over_trainings(grown), UP, POINTS


def _word(rule: Rule) -> str:
    return "the same" if rule.kind == "equivalence" else "more" if rule.sign > 0 else "less"


def why(e: Estimate, rule: Rule, quantity: Quantity, verdict: Answer) -> str:
    """What of the numbers led to the verdict."""
    small = f"±{quantity.margin * quantity.scale:g}{quantity.unit}"
    if verdict == "holds in part":
        return f"the direction holds, and the number is {'above' if e.mean > rule.papers else 'below'} the paper's"
    if verdict == "holds" and rule.kind == "magnitude":
        return f"within {small} of the paper's"
    if verdict == "not settled" and rule.kind == "equivalence":
        if max(-e.low, e.high) < quantity.margin:
            return f"the interval is within {small}, but not after Holm's correction"
        return f"too few trainings to show that it is within {small}, or beyond"
    if verdict == "not settled":
        inside = e.low < 0.0 < e.high
        return "0 is inside the interval" if inside else "0 is outside the interval, but not after Holm's correction"
    if rule.kind == "equivalence":
        return f"{'within' if verdict == 'holds' else 'beyond'} {small}"
    return {
        "holds": "the interval is on the claimed side of 0",
        "refuted": "the interval is on the other side of 0",
        "tie": f"within {small}, too small to matter",
    }.get(verdict, "no interval")


def claims_table(recorded: Recorded) -> list[str]:
    """The claims with the paper's figure, ours, the verdict, and why; tests of one cause are adjusted together."""
    every = list(judgements(recorded))
    lines = [
        "\n**The paper's claims about decisions**\n",
        "| rests on | claim | paper | here | n | verdict | why |",
        "|---|---|---|---|---|---|---|",
    ]
    verdicts: dict[str, Answer] = {}
    for cause in dict.fromkeys(one[0] for one in every):
        mine = [one for one in every if one[0] == cause]
        adjusted = adjusted_chances([chances(e, rule, q.margin) for *_, e, rule, q in mine])
        for (_, words, papers, e, rule, quantity), tests in zip(mine, adjusted, strict=True):
            verdict = verdicts[words] = answer(e, rule, tests)
            reason = why(e, rule, quantity, verdict)
            lines.append(f"| {cause} | {words} | {papers} | {quantity.shown(e)} | {e.count} | {verdict} | {reason} |")
    for beta in (150, 300):
        answers = {rival: verdicts[f"QCCF saves against {rival}, β = {beta}"] for rival in PAPERS_RIVALS}
        least = ordering(list(answers.values()))
        ahead = [rival for rival, verdict in answers.items() if verdict == "refuted"]
        ours = sum(verdict.startswith("holds") for verdict in answers.values())
        reason = f"{' and '.join(ahead)} spends less" if ahead else f"it is ahead of {ours} of {len(answers)}"
        count = min(NUM_TRAININGS, cells_of(recorded[f"policies: β = {beta}"]))
        words = f"QCCF spends the least of the paper's five, β = {beta}"
        lines.append(f"| energy | {words} | least | | {count} | {least} | {reason} |")
    return lines


def with_constants(recorded: Recorded) -> Columns:
    """All policies at β = 300, in the cells that are recorded for all of them."""
    parts = [recorded.get(f"{study}: β = 300", {}) for study in ("policies", "constants")]
    cells = min(map(cells_of, parts))
    return {
        name: {measure: values[:cells] for measure, values in measured.items()}
        for part in parts
        for name, measured in part.items()
    }


def constants_table(title: str, columns: Columns) -> list[str]:
    """Does each adaptive policy beat the best constants that are as precise?"""
    names = [name for name in ADAPTIVE if name in columns]
    constants = [best_constants(columns, name) for name in names]
    saved = [
        over_trainings(1.0 - column(columns, name, "energy_j") / best)
        for name, best in zip(names, constants, strict=True)
    ]
    adjusted = adjusted_chances([chances(e, UP, ENERGY.margin) for e in saved])
    lines = [
        f"\n**{title}**: energy saved against the best constant, or two in turns, that is as precise in the same "
        "cell\n",
        "| policy | cells with such constants | saves (%) | beats them |",
        "|---|---|---|---|",
    ]
    for name, best, e, tests in zip(names, constants, saved, adjusted, strict=True):
        lines.append(f"| {name} | {np.isfinite(best).sum()} | {e.shown('+.1f', 100.0)} | {answer(e, UP, tests)} |")
    return lines


def energy_at_error(recorded: Recorded, errors: np.ndarray) -> np.ndarray:
    """The energy at which QCCF has these errors, one per cell: between the values of V, log-log. NaN beyond them."""
    fronts = [columns for key, columns in recorded.items() if key.startswith("V: ")]
    cells = min((cells_of(columns) for columns in fronts), default=0)
    found = np.full(len(errors), np.nan)
    for cell in range(min(cells, len(errors))):
        front = sorted((column(c, "qccf", "error")[cell], column(c, "qccf", "energy_j")[cell]) for c in fronts)
        x, y = np.log(np.array(front)).T
        found[cell] = np.exp(np.interp(np.log(errors[cell]), x, y, left=np.nan, right=np.nan))
    return found


def front_table(recorded: Recorded) -> list[str]:
    """QCCF with the V that gives another policy's error, against that policy."""
    columns = with_constants(recorded)
    names = [name for name in (*ADAPTIVE, *CONSTANTS) if name in columns and name != "qccf"]
    ours = {name: energy_at_error(recorded, column(columns, name, "error")) for name in names}
    saved = {name: over_trainings(1.0 - ours[name] / column(columns, name, "energy_j")) for name in names}
    adjusted = adjusted_chances([chances(e, UP, ENERGY.margin) for e in saved.values()])
    cells = min((cells_of(c) for key, c in recorded.items() if key.startswith("V: ")), default=0)
    lines = [
        f"\n**QCCF at the error of another policy**, with V chosen in each of {cells} cells to have it, β = 300\n",
        "| against | cells in which some V has its error | QCCF saves (%) | beats it |",
        "|---|---|---|---|",
    ]
    for (name, e), tests in zip(saved.items(), adjusted, strict=True):
        known = np.isfinite(ours[name]).sum()
        lines.append(f"| {name} | {known} | {e.shown('+.1f', 100.0)} | {answer(e, UP, tests)} |")
    return lines


def weights_table(recorded: Recorded, constants: Columns) -> list[str]:
    """QCCF over V, and the constants beside it."""
    lines = [
        "\n**Energy and error over V**, and of constants\n",
        "| | cells | energy (J) | mean error | bits |",
        "|---|---|---|---|---|",
    ]
    rows = [(key.partition(": ")[2], columns, "qccf") for key, columns in recorded.items() if key.startswith("V: ")]
    rows += [(name, constants, name) for name in CONSTANTS if name in constants]
    for label, columns, name in rows:
        cells = [
            over_trainings(column(columns, name, "energy_j")).shown(".2f"),
            over_trainings(column(columns, name, "error")).shown(".3g"),
            over_trainings(column(columns, name, "bits")).shown(".2f"),
        ]
        lines.append(f"| {label} | {cells_of(columns)} | " + " | ".join(cells) + " |")
    return lines


def map_table(study: str, recorded: Recorded, rivals: Sequence[str] = READINGS) -> list[str]:
    """QCCF's savings at every point of a map, one column per rival."""
    lines = [
        f"\n**{study}**: QCCF saves per upload that arrives (%) against\n",
        "| | cells | " + " | ".join(rivals) + " | uploads of QCCF (%) | of same-size |",
        "|---" * (len(rivals) + 4) + "|",
    ]
    for point in points():
        columns = recorded.get(point.key)
        if point.study != study or columns is None:
            continue
        feasible = int(np.isfinite(column(columns, "qccf", "energy_j")).sum())
        shown = [savings(columns, rival, per_upload=True).shown(".1f", 100.0) for rival in rivals]
        served = [
            f"{100.0 * np.nanmean(column(columns, name, 'participation')):.0f}" if feasible else "–"
            for name in ("qccf", READINGS[0])
        ]
        lines.append(f"| {point.label} | {feasible} of {cells_of(columns)} | " + " | ".join([*shown, *served]) + " |")
    return lines


def genetic_table(recorded: Recorded) -> list[str]:
    """The gap by size of the search, with and without an elite: median, least and most over the other settings."""
    keys = [key for key in recorded if key.startswith("genetic: ")]
    if not keys:
        return []
    cells = "/".join(map(str, dict.fromkeys(cells_of(recorded[key]) for key in keys)))
    lines = [
        f"\n**The genetic algorithm's gap**, mean over {cells} cells: per cent of the gain of participation, and mJ "
        "per round that would raise J as much; median over crossover, mutation and exponent (least to most)\n",
        "| population x generations | " + " | ".join(key.partition(": ")[2] for key in keys) + " |",
        "|---" * (len(keys) + 1) + "|",
    ]
    kinds = dict.fromkeys((name.partition(",")[0], "elitism" in name) for name in recorded[keys[0]])
    for size, elite in kinds:
        names = [name for name in recorded[keys[0]] if (name.partition(",")[0], "elitism" in name) == (size, elite)]
        shown = []
        for key in keys:
            gaps, lost_mj = (
                scale * np.array([np.nanmean(column(recorded[key], name, measure)) for name in names])
                for measure, scale in (("gap", 100.0), ("lost_j", 1e3))
            )
            words = f"{np.median(gaps):.2g} ({gaps.min():.2g} to {gaps.max():.2g}) %"
            if np.isfinite(lost_mj).all():
                words += f", {np.median(lost_mj):.2g} mJ ({lost_mj.min():.2g} to {lost_mj.max():.2g})"
            shown.append(words)
        lines.append(f"| {size}{', elitism 1' * elite} | " + " | ".join(shown) + " |")
    return lines


def tables(recorded: Recorded) -> Iterable[str]:
    """All tables for which something is recorded."""
    if "policies: β = 150" in recorded:
        yield from claims_table(recorded)
    for key, columns in recorded.items():
        if key.startswith(("policies: ", "trained under ", "channels: ")):
            title = key.partition(": ")[2] if key.startswith(("policies", "channels")) else key.replace(": ", ", ")
            yield from policies_table(title, columns)
    yield from constants_table("β = 300", with_constants(recorded))
    yield from weights_table(recorded, with_constants(recorded))
    if any(key.startswith("V: ") for key in recorded):
        yield from front_table(recorded)
    for study in dict.fromkeys(point.study for point in points() if "×" in point.study):
        if any(key.startswith(f"{study}: ") for key in recorded):
            yield from map_table(study, recorded)
    yield from genetic_table(recorded)


TABLES = "## Tables\n"


def with_tables(page: str, lines: Iterable[str]) -> str:
    """The page with these lines after its heading of tables, which is its last."""
    before, heading, _ = page.partition(TABLES)
    if not heading:
        raise SystemExit(f'The page has no heading "{TABLES.strip()}".')
    return before + heading + "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, default=RECORD, metavar="FILE")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the tables into this page")
    options = parser.parse_args()
    lines = list(tables(read_record(options.record)))
    if options.page is None:
        print("\n".join(lines))
    else:
        write_text_whole(options.page, with_tables(options.page.read_text(encoding="utf-8"), lines))


if __name__ == "__main__":
    main()
