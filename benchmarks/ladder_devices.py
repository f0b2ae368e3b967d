"""Does the order of the ladder hold where computing costs what it really costs?

Run: python -m benchmarks.ladder_devices [--record docs/results/ladder.json] [--target 0.75] [--seeds 5]
Nothing is trained. Each rung of `benchmarks/ladder.py` is planned for as many rounds as it took to the target there,
with the same seed, in the cells below. That holds as long as everybody who took part in training takes part here as
well; the table says what share did. Rungs and seeds that did not reach the target are left out.

Encoding uploads and forecasting the next ones is charged and takes time of the deadline, except in the paper's model,
whose deadline has no room for it (`benchmarks/ladder.py` prices it afterwards).
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.ladder import (
    CODING_CYCLES,
    FEDERATION,
    FIRST,
    MOST_ROUNDS,
    ONE_CLIENT,
    VARIANTS,
    Changes,
    codec_of,
    record_key,
    rungs,
)
from qccf.core.errors import QccfError
from qccf.core.intervals import Estimate, estimate
from qccf.runtimes.planner import plan
from qccf.settings.loading import load_scenario

RECORD = Path("docs/results/ladder.json")
TODAY: Changes = {"federation.num_clients": 10, "radio.num_channels": 10, "radio.resource_blocks": 27}
"""The cell of the preset `3gpp` for the ten clients of the ladder: each has one of ten channels."""

CELLS: Mapping[str, tuple[str, Changes]] = {
    "the paper's model": ("femnist", {}),
    "phones": ("3gpp", {**TODAY, "devices.mix": {"pixel-2": 1.0, "galaxy-s6": 1.0}}),
    "boards": ("3gpp", {**TODAY, "devices.mix": {"raspberry-pi-4": 1.0, "raspberry-pi-5": 1.0}}),
    "GPUs and laptops": ("3gpp", {**TODAY, "devices.mix": {"jetson-orin-nano": 1.0, "laptop": 1.0}}),
}

ADAPTED = "control.power"
"""Power is adapted with Shannon's rates only, so where rates are those of real modulation it stays fixed."""


class Planned(NamedTuple):
    """One rung in one cell: joules to the target, the shares that uploads and coding have of it, and how many took
    part."""

    energy_j: float
    radio_share: float
    coding_share: float
    participation: float


def planned(cell: str, rung: str, rounds: int, seed: int) -> Planned | None:
    """A rung for some rounds in a cell; None where it cannot run there."""
    preset, there = CELLS[cell]
    learning = {key: value for key, value in FEDERATION.items() if key != "data.dataset"}  # plans need no data
    changes = {key: value for key, value in rungs()[rung].items() if key != ADAPTED or preset == "femnist"}
    common: dict[str, Any] = {"federation.rounds": rounds, "federation.seed": seed}
    if preset != "femnist":
        common["accounts.coding_cycles_per_parameter"] = CODING_CYCLES[codec_of(rung)]
    try:
        run = plan(load_scenario(preset, {**there, **learning, **changes, **common}), ["qccf"], 1)[0]
    except QccfError as error:
        print(f"{cell}, {rung}: {error}")
        return None
    coding_share = float(run.client_columns["coding_energy_j"].sum() / run.energy_j[-1])
    radio_share = 1.0 - run.computing_share() - coding_share
    return Planned(float(run.energy_j[-1]), radio_share, coding_share, float(run.by_round("arrived").mean()))


def results(record: Mapping[str, Any], cell: str, target: float, seeds: int) -> dict[str, dict[int, Planned]]:
    """Rung, seed: the rungs of the ladder that reached the target, planned in a cell."""
    found: dict[str, dict[int, Planned]] = {}
    for rung, changes in rungs().items():
        for seed in range(0 if rung in VARIANTS and rung != ONE_CLIENT else seeds):
            known = record.get(record_key(rung, changes, MOST_ROUNDS, seed), {"targets": {}})
            reached = known["targets"].get(f"{target:g}")
            if reached is not None and (one := planned(cell, rung, reached["rounds"], seed)) is not None:
                found.setdefault(rung, {})[seed] = one
    return found


def share(mine: Mapping[int, Planned], first: Mapping[int, Planned]) -> Estimate:
    """Energy as a share of the paper's, paired by seed."""
    return estimate(mine[seed].energy_j / first[seed].energy_j for seed in mine if seed in first)


def table(cell: str, found: Mapping[str, Mapping[int, Planned]], target: float) -> list[str]:
    lines = [
        f"\n**{cell}**\n",
        f"| rung | seeds | J to {target:.0%} | of the paper's | uploads | coding | take part |",
        "|---|---|---|---|---|---|---|",
    ]
    first = found.get(FIRST, {})
    for rung, mine in found.items():
        both = share(mine, first)
        cells = [
            estimate(one.energy_j for one in mine.values()).shown(".3g"),
            both.shown(".3g", scale=100.0, unit=" %") if both.count else "–",
            f"{estimate(one.radio_share for one in mine.values()).mean:.1%}",
            f"{estimate(one.coding_share for one in mine.values()).mean:.2%}",
            f"{estimate(one.participation for one in mine.values()).mean:.0%}",
        ]
        lines.append(f"| {rung} | {len(mine)} | " + " | ".join(cells) + " |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, default=RECORD, help=f"of the ladder; default {RECORD}")
    parser.add_argument("--target", type=float, default=0.75)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    record = json.loads(options.record.read_text(encoding="utf-8"))
    for cell in CELLS:
        print("\n".join(table(cell, results(record, cell, options.target, options.seeds), options.target)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
